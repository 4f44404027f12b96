"""Checkpoints: state trees of arrays and JSON, saved atomically, verified when loaded, never pickled."""

from rlcore.checkpoint.completion import read_completion, write_completion
from rlcore.checkpoint.failure import FailureRecord, write_failure
from rlcore.checkpoint.lock import RunLock
from rlcore.checkpoint.owner import Owner, Ownership
from rlcore.checkpoint.store import CheckpointInfo, CheckpointStore

__all__ = [
    "CheckpointInfo",
    "CheckpointStore",
    "FailureRecord",
    "Owner",
    "Ownership",
    "RunLock",
    "read_completion",
    "write_completion",
    "write_failure",
]
