"""What every replay buffer of rows does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcore.replay.frame_ring import FrameRing
from rlcore.replay.rows import ReplayRows, RowRing
from rlcore.sample_batch import PRIORITIES, SampleBatch


@dataclass(frozen=True)
class Replayed:
    """Rows drawn from a buffer, and their numbers there, int64 [B]."""

    numbers: np.ndarray
    batch: SampleBatch


class ReplayBuffer(ABC):
    """The newest `capacity` rows, and a way to draw from them.

    Args:
        capacity: rows.
        seed: of the draws.
    """

    def __init__(self, capacity: int, *, seed: int) -> None:
        self.capacity = capacity
        self.rows: RowRing = RowRing(capacity)
        self._rng = np.random.default_rng([seed, 3])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size_bytes(self) -> int:
        """Bytes of all that is held."""
        return self.rows.size_bytes

    def add(self, rows: ReplayRows) -> None:
        """Takes rows in, in place of the oldest."""
        if rows.frames is not None and not isinstance(self.rows, FrameRing):
            if len(self.rows):
                raise ValueError("rows that refer to images, for a replay buffer whose rows hold theirs")
            self.rows = FrameRing(self.capacity)
        kept = ReplayRows(rows.batch.without(PRIORITIES), rows.frames)
        self._added(self.rows.add(kept), rows.batch)

    def _added(self, numbers: np.ndarray, batch: SampleBatch) -> None:  # noqa: B027 - nothing to note for some
        """Told the numbers of the rows that came in (of a batch beyond the capacity, its last rows)."""

    @abstractmethod
    def sample(self, count: int, *, beta: float = 0.0) -> Replayed:
        """Draws rows, with replacement.

        Args:
            count: rows.
            beta: how far the bias of prioritised draws is corrected: 0 not at all, 1 fully.

        Raises:
            ValueError: the buffer is empty.
        """

    def update_priorities(self, numbers: np.ndarray, priorities: np.ndarray) -> int:
        """Sets priorities; those of rows that were replaced meanwhile are left out. Returns how many those are."""
        return 0

    def get_state(self, largest_bytes: int) -> dict[str, Any]:
        """Arrays to go on from: the newest rows that take at most so many bytes."""
        numbers = self.rows.newest_that_fit(largest_bytes)
        return {
            "rng": self._rng.bit_generator.state,
            "frames": isinstance(self.rows, FrameRing),
            "rows": self.rows.get_state(numbers),
            **self._own_state(numbers),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self._rng.bit_generator.state = state["rng"]
        self.rows = FrameRing(self.capacity) if state["frames"] else RowRing(self.capacity)
        self._set_own_state(self.rows.set_state(state["rows"]), state)

    def _own_state(self, numbers: np.ndarray) -> dict[str, Any]:
        return {}

    def _set_own_state(self, numbers: np.ndarray, state: dict[str, Any]) -> None:  # noqa: B027
        """Takes over what `_own_state` gave, for the rows that came back."""
