"""Replay: where experience waits to be trained on more than once."""

from rlcore.replay.batches import BatchReplay
from rlcore.replay.prioritized import PrioritizedReplay
from rlcore.replay.replay_buffer import ReplayBuffer, Replayed
from rlcore.replay.reservoir import Reservoir
from rlcore.replay.rows import ReplayRows
from rlcore.replay.uniform import UniformReplay

__all__ = [
    "BatchReplay",
    "PrioritizedReplay",
    "ReplayBuffer",
    "ReplayRows",
    "Replayed",
    "Reservoir",
    "UniformReplay",
]
