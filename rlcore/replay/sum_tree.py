"""A sum tree that samples and updates whole batches at once.

Every node has 64 children instead of two: a million leaves are four levels, and an update or a descent is a handful of
numpy calls a level however large the batch is. A node is always recomputed from its children, so no rounding error
builds up.
"""

from __future__ import annotations

import numpy as np

FANOUT = 64


class SumTree:
    """Non-negative float64 values at `capacity` leaves, sampled in proportion to them.

    Args:
        capacity: leaves, all of value zero at first.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a sum tree of capacity {capacity}: at least one leaf is needed")
        self.capacity = capacity
        # From the leaves up, each [nodes, FANOUT]: entry i of level l is the sum of row i of level l - 1.
        self._sums: list[np.ndarray] = []
        nodes = capacity
        while not self._sums or nodes > 1:
            nodes = -(-nodes // FANOUT)
            self._sums.append(np.zeros((nodes, FANOUT)))

    @property
    def total(self) -> float:
        """Sum of all leaves."""
        return float(self._sums[-1].sum())

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        """Leaves at `indices`, float64."""
        return self._sums[0].reshape(-1)[indices]

    def update(self, indices: np.ndarray, values: np.ndarray) -> None:
        """Sets leaves; of an index named twice the last value stays.

        Args:
            indices: int [B], 0 .. capacity - 1.
            values: [B], finite and not negative.

        Raises:
            ValueError: a value that is negative or not finite, an index out of range.
        """
        values = np.asarray(values, np.float64)
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise ValueError("values of a sum tree must be finite and not negative")
        if len(indices) and not (indices.min() >= 0 and indices.max() < self.capacity):
            raise ValueError(f"indices {indices.min()}..{indices.max()} of a sum tree with {self.capacity} leaves")
        self._sums[0].reshape(-1)[indices] = values
        nodes = np.asarray(indices)
        for below in range(len(self._sums) - 1):
            nodes = nodes // FANOUT
            self._sums[below + 1].reshape(-1)[nodes] = self._sums[below][nodes].sum(axis=1)

    def find(self, masses: np.ndarray) -> np.ndarray:
        """The leaves at which the running sum of all leaves passes `masses`, int64 [B].

        Args:
            masses: float64 [B], 0 <= mass < total; a leaf of value zero is never found.

        Raises:
            ValueError: all leaves are zero.
        """
        if self.total <= 0.0:
            raise ValueError("nothing to sample: all leaves of the sum tree are zero")
        left = np.asarray(masses, np.float64).copy()
        nodes = np.zeros(len(left), np.int64)
        rows = np.arange(len(left))
        for level in reversed(self._sums):
            running = level[nodes].cumsum(axis=1)
            # Rounding may leave a little more mass than the node has: its last child with any mass takes it.
            left = np.minimum(left, np.nextafter(running[:, -1], 0.0))
            child = (running <= left[:, None]).sum(axis=1)
            left -= np.where(child > 0, running[rows, child - 1], 0.0)
            nodes = nodes * FANOUT + child
        return nodes
