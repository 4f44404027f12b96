"""Whole batches: what recurrent policies replay, whose sequences must stay as they were sampled."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from rlcore.compression import PackedColumn, pack_column, unpack_column
from rlcore.replay.saved import load_columns, save_columns
from rlcore.sample_batch import SampleBatch

_Packed = dict[str, PackedColumn]


class BatchReplay:
    """The newest batches of together at most `capacity` timesteps, LZ4 where it pays; drawn uniformly.

    A batch is cut into its sequences when it comes in, so that a draw mixes episodes.

    Args:
        capacity: timesteps.
        seed: of the draws.
    """

    def __init__(self, capacity: int, *, seed: int) -> None:
        self.capacity = capacity
        self._rng = np.random.default_rng([seed, 3])
        self._entries: deque[tuple[_Packed, int]] = deque()
        self._time_major = False
        self._timesteps = 0

    def __len__(self) -> int:
        """Timesteps held."""
        return self._timesteps

    @property
    def size_bytes(self) -> int:
        """Bytes of all that is held."""
        return sum(column.size_bytes for columns, _ in self._entries for column in columns.values())

    def add(self, batch: SampleBatch) -> None:
        """Takes a batch in, in place of the oldest."""
        self._time_major = batch.time_major
        for index in range(batch.size if batch.time_major else min(1, batch.size)):
            part = batch.take(slice(index, index + 1)) if batch.time_major else batch
            self._append({name: pack_column(column) for name, column in part.items()}, part.count)
        while self._timesteps > self.capacity and len(self._entries) > 1:
            self._timesteps -= self._entries.popleft()[1]

    def sample(self, timesteps: int) -> SampleBatch:
        """Entries drawn with replacement until they hold at least `timesteps`, joined.

        Raises:
            ValueError: nothing is there.
        """
        if not self._entries:
            raise ValueError("nothing to sample: the replay buffer is empty")
        drawn, count = [], 0
        while count < timesteps:
            columns, held = self._entries[int(self._rng.integers(len(self._entries)))]
            drawn.append(self._unpacked(columns))
            count += max(1, held)
        return SampleBatch.concat(drawn)

    def get_state(self, largest_bytes: int) -> dict[str, Any]:
        """Arrays to go on from: the newest entries that take at most so many bytes."""
        kept: list[tuple[_Packed, int]] = []
        size_bytes = 0
        for columns, count in reversed(self._entries):
            size_bytes += sum(column.size_bytes for column in columns.values())
            if size_bytes > largest_bytes:
                break
            kept.append((columns, count))
        entries = [self._unpacked(columns) for columns, _ in reversed(kept)]
        return {
            "rng": self._rng.bit_generator.state,
            "time_major": self._time_major,
            "entries": [save_columns(entry) for entry in entries],
            "counts": [count for _, count in reversed(kept)],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self._rng.bit_generator.state = state["rng"]
        self._time_major = bool(state["time_major"])
        self._entries.clear()
        self._timesteps = 0
        for entry, count in zip(state["entries"], state["counts"], strict=True):
            columns = {name: pack_column(column) for name, column in load_columns(entry).items()}
            self._append(columns, int(count))

    def _append(self, columns: _Packed, count: int) -> None:
        self._entries.append((columns, count))
        self._timesteps += count

    def _unpacked(self, columns: _Packed) -> SampleBatch:
        return SampleBatch({n: unpack_column(c) for n, c in columns.items()}, time_major=self._time_major)
