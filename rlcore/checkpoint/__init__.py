"""Checkpoints: state trees of arrays and JSON, saved atomically, verified when loaded, never pickled."""

from rlcore.checkpoint.completion import read_completion, write_completion
from rlcore.checkpoint.lock import RunLock
from rlcore.checkpoint.store import CheckpointInfo, CheckpointStore

__all__ = ["CheckpointInfo", "CheckpointStore", "RunLock", "read_completion", "write_completion"]
