"""One shard of replay: an object in the driver's process, or an actor beside others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcore.optimizers.replay_config import ReplayConfig
from rlcore.replay import PrioritizedReplay, ReplayBuffer, UniformReplay
from rlcore.replay.sample import ReplaySample
from rlcore.sample_batch import MultiAgentBatch


@dataclass(frozen=True)
class Held:
    """How full a shard is.

    Attributes:
        timesteps: rows of the policy that has the fewest; 0 before there are any.
        size_bytes: of all that it holds.
        outdated: priorities that came for rows which were replaced meanwhile, since the beginning.
    """

    timesteps: int = 0
    size_bytes: int = 0
    outdated: int = 0


@dataclass(frozen=True)
class Drawn:
    """What the driver keeps of a drawn batch: policy id -> numbers of its rows, and how full the shard was."""

    numbers: dict[str, np.ndarray]
    held: Held


class ReplayShard:
    """A part of a job's replay, a buffer for each policy.

    Args:
        config: of the job; its capacity is shared evenly.
        number: of this shard; tells its draws from the others'.
    """

    def __init__(self, config: ReplayConfig, number: int) -> None:
        self._config, self._number = config, number
        self._buffers: dict[str, ReplayBuffer] = {}
        self._outdated = 0

    def add(self, sample: ReplaySample) -> Held:
        """Takes a sample in."""
        for policy_id, rows in sample.rows().items():
            self._buffer(policy_id).add(rows)
        return self.held()

    def draw(self, beta: float) -> tuple[MultiAgentBatch, Drawn]:
        """One gradient step's rows of each policy; a shard that is empty gives an empty batch."""
        size = self._config.train_batch_size
        found = {p: buffer.sample(size, beta=beta) for p, buffer in self._buffers.items() if len(buffer)}
        batch = MultiAgentBatch({p: replayed.batch for p, replayed in found.items()}, size if found else 0)
        return batch, Drawn({p: replayed.numbers for p, replayed in found.items()}, self.held())

    def update_priorities(self, numbers: Mapping[str, np.ndarray], priorities: Mapping[str, np.ndarray]) -> None:
        """New priorities of rows that were drawn here."""
        for policy_id, values in priorities.items():
            if policy_id in self._buffers:
                self._outdated += self._buffers[policy_id].update_priorities(numbers[policy_id], values)

    def held(self) -> Held:
        """How full it is."""
        buffers = self._buffers.values()
        timesteps = min((len(buffer) for buffer in buffers), default=0)
        return Held(timesteps, sum(buffer.size_bytes for buffer in buffers), self._outdated)

    def get_state(self, largest_bytes: int) -> dict[str, Any]:
        """Arrays to go on from, the newest rows that take at most so many bytes."""
        share = largest_bytes // max(1, len(self._buffers))
        return {policy_id: buffer.get_state(share) for policy_id, buffer in self._buffers.items()}

    def set_state(self, state: Mapping[str, Any]) -> Held:
        """Goes on from `get_state`."""
        self._buffers.clear()
        for policy_id, saved in state.items():
            self._buffer(policy_id).set_state(saved)
        return self.held()

    def _buffer(self, policy_id: str) -> ReplayBuffer:
        if policy_id not in self._buffers:
            capacity = -(-self._config.capacity // self._config.shards)
            number = self._number + self._config.shards * len(self._buffers)
            self._buffers[policy_id] = make_buffer(self._config, capacity, number)
        return self._buffers[policy_id]


def make_buffer(config: ReplayConfig, capacity: int, number: int) -> ReplayBuffer:
    """A buffer of the job's kind; `number` tells the draws of several apart."""
    seed = config.seed + 7919 * number
    if config.prioritized:
        return PrioritizedReplay(capacity, seed=seed, alpha=config.alpha, epsilon=config.priority_epsilon)
    return UniformReplay(capacity, seed=seed)
