"""Rows of experience on their way into a replay buffer, and what keeps them there: one preallocated array a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcore.replay.frames import FrameBlock
from rlcore.replay.saved import load_columns, save_columns
from rlcore.sample_batch import SampleBatch


@dataclass(frozen=True)
class ReplayRows:
    """One policy's rows: a batch, and the images it refers to where those are kept once (see `frames`)."""

    batch: SampleBatch
    frames: FrameBlock | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of all columns and images."""
        return self.batch.size_bytes + (self.frames.size_bytes if self.frames is not None else 0)


class RowRing:
    """The newest `capacity` rows.

    A row is known by its number: how many rows came before it. Row i lies at position i % capacity until row
    i + capacity takes its place, so that numbers can travel and come back late.

    Args:
        capacity: rows.

    Attributes:
        first: number of the oldest row that is still there.
        end: number of the next row.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a replay capacity of {capacity}: at least one row is needed")
        self.capacity = capacity
        self.first = self.end = 0
        self._columns: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows that are there; memory behind rows still to come is not touched."""
        return sum(column.nbytes for column in self._columns.values()) * len(self) // self.capacity

    def positions(self, numbers: np.ndarray) -> np.ndarray:
        """Where rows lie."""
        return numbers % self.capacity

    def holds(self, numbers: np.ndarray) -> np.ndarray:
        """bool [B]: the row is still there."""
        return (numbers >= self.first) & (numbers < self.end)

    def add(self, rows: ReplayRows) -> np.ndarray:
        """Takes rows in, in place of the oldest; returns their numbers, int64 [B].

        Raises:
            ValueError: other columns than the first rows had.
        """
        batch = rows.batch
        if batch.size > self.capacity:
            self.end += batch.size - self.capacity
            batch = batch.take(slice(batch.size - self.capacity, batch.size))
        if not self._columns:
            self._columns = {n: np.empty((self.capacity, *c.shape[1:]), c.dtype) for n, c in batch.items()}
        if set(batch) != set(self._columns):
            raise ValueError(f"rows with columns {sorted(batch)} for a replay buffer of {sorted(self._columns)}")
        numbers = np.arange(self.end, self.end + batch.size)
        positions = self.positions(numbers)
        for name, column in self._columns.items():
            column[positions] = batch[name]
        self.end += batch.size
        self.first = max(self.first, self.end - self.capacity)
        return numbers

    def take(self, numbers: np.ndarray) -> SampleBatch:
        """Copies of rows."""
        positions = self.positions(numbers)
        return SampleBatch({name: column[positions] for name, column in self._columns.items()})

    def newest_that_fit(self, largest_bytes: int) -> np.ndarray:
        """Numbers of as many of the newest rows as take at most so many bytes."""
        each = max(1, self.size_bytes // max(1, len(self)))
        return np.arange(max(self.first, self.end - largest_bytes // each), self.end)

    def get_state(self, numbers: np.ndarray) -> dict[str, Any]:
        """The rows with these (the newest) numbers, as arrays."""
        columns = {name: column[self.positions(numbers)] for name, column in self._columns.items()}
        return {"end": self.end, "columns": save_columns(columns)}

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        """Goes on from `get_state`, possibly with another capacity; returns the numbers of the rows that came back."""
        columns = load_columns(state["columns"])
        saved = len(next(iter(columns.values()))) if columns else 0
        kept = min(saved, self.capacity)
        self.end = int(state["end"])
        self.first = self.end - kept
        numbers = np.arange(self.first, self.end)
        self._columns = {n: np.empty((self.capacity, *c.shape[1:]), c.dtype) for n, c in columns.items()}
        for name, column in self._columns.items():
            column[self.positions(numbers)] = columns[name][saved - kept :]
        return numbers
