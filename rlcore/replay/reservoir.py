"""A uniform sample of everything that was ever seen (Vitter 1985, algorithm R)."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcore.replay.saved import load_columns, save_columns
from rlcore.sample_batch import SampleBatch


class Reservoir:
    """`capacity` rows of a stream; after n rows each of them is here with probability capacity / n.

    Args:
        capacity: rows.
        seed: of what stays and of the draws.
    """

    def __init__(self, capacity: int, *, seed: int) -> None:
        if capacity < 1:
            raise ValueError(f"a reservoir of capacity {capacity}: at least one row is needed")
        self.capacity = capacity
        self.seen = 0
        self._rng = np.random.default_rng([seed, 4])
        self._columns: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    def add(self, batch: SampleBatch) -> None:
        """Offers rows."""
        if not self._columns:
            self._columns = {n: np.empty((self.capacity, *c.shape[1:]), c.dtype) for n, c in batch.items()}
        if set(batch) != set(self._columns):
            raise ValueError(f"rows with columns {sorted(batch)} for a reservoir of {sorted(self._columns)}")
        numbers = np.arange(self.seen, self.seen + batch.size)
        # Row i takes a place drawn from 0..i, if there is such a place; the first ones all have their own.
        places = np.where(numbers < self.capacity, numbers, self._rng.integers(0, numbers + 1))
        kept = places < self.capacity
        for name, column in self._columns.items():
            column[places[kept]] = batch[name][kept]
        self.seen += batch.size

    def sample(self, count: int) -> SampleBatch:
        """Rows drawn with replacement.

        Raises:
            ValueError: nothing is there.
        """
        if not self.seen:
            raise ValueError("nothing to sample: the reservoir is empty")
        rows = self._rng.integers(0, len(self), count)
        return SampleBatch({name: column[rows] for name, column in self._columns.items()})

    def get_state(self) -> dict[str, Any]:
        """Arrays to go on from."""
        columns = {name: column[: len(self)] for name, column in self._columns.items()}
        return {"rng": self._rng.bit_generator.state, "seen": self.seen, "columns": save_columns(columns)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state` of a reservoir with this capacity."""
        self._rng.bit_generator.state = state["rng"]
        self.seen = int(state["seen"])
        columns = load_columns(state["columns"])
        self._columns = {n: np.empty((self.capacity, *c.shape[1:]), c.dtype) for n, c in columns.items()}
        for name, column in columns.items():
            self._columns[name][: len(column)] = column
