"""Proportional prioritised replay (Schaul et al. 2016, arXiv 1511.05952, section 3 and algorithm 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcore.replay.replay_buffer import ReplayBuffer, Replayed
from rlcore.replay.sum_tree import SumTree
from rlcore.sample_batch import PRIORITIES, WEIGHTS, SampleBatch


class PrioritizedReplay(ReplayBuffer):
    """Row i is drawn with probability p_i^alpha / sum_k p_k^alpha, p = |TD error| + epsilon.

    Drawn batches carry a column `weights`, (P(i) N)^-beta over the largest such weight of the batch, as in algorithm 1.
    Over the largest of the whole buffer, as in much code, one row that is predicted to the last digit makes all other
    weights nearly zero, and learning ends as soon as beta is near 1. Rows may bring priorities of their own (a column
    `priorities`, not kept as a column); others get the largest seen so far.

    Args:
        capacity: rows.
        seed: of the draws.
        alpha: 0 is uniform.
        epsilon: added to every priority, so that nothing is forgotten.
    """

    def __init__(self, capacity: int, *, seed: int, alpha: float = 0.6, epsilon: float = 1e-6) -> None:
        super().__init__(capacity, seed=seed)
        self.alpha, self.epsilon = alpha, epsilon
        self.largest = 1.0
        self._tree = SumTree(capacity)

    def _added(self, numbers: np.ndarray, batch: SampleBatch) -> None:
        if PRIORITIES in batch:
            self._set(numbers, batch[PRIORITIES][-len(numbers) :])
        else:
            self._tree.update(self.rows.positions(numbers), np.full(len(numbers), self.largest**self.alpha))

    def sample(self, count: int, *, beta: float = 0.0) -> Replayed:
        if not len(self.rows):
            raise ValueError("nothing to sample: the replay buffer is empty")
        # One draw from each of `count` equal shares of the mass, as in the paper's appendix B.2.1.
        masses = (np.arange(count) + self._rng.random(count)) * (self._tree.total / count)
        positions = self._tree.find(masses)
        # The smallest mass has the largest weight: (P(i) N)^-beta over it is (p_min / p_i)^beta.
        drawn = self._tree[positions]
        weights = (drawn.min() / drawn) ** beta
        numbers = self._numbers(positions)
        batch = self.rows.take(numbers).with_columns(**{WEIGHTS: weights.astype(np.float32)})
        return Replayed(numbers, batch)

    def update_priorities(self, numbers: np.ndarray, priorities: np.ndarray) -> int:
        there = self.rows.holds(numbers)
        self._set(numbers[there], priorities[there])
        return int(np.count_nonzero(~there))

    def _set(self, numbers: np.ndarray, priorities: np.ndarray) -> None:
        if not len(numbers):
            return
        raised = np.abs(priorities.astype(np.float64)) + self.epsilon
        self.largest = max(self.largest, float(raised.max()))
        self._tree.update(self.rows.positions(numbers), raised**self.alpha)

    def _numbers(self, positions: np.ndarray) -> np.ndarray:
        """Of the rows at these positions: the newest number with that remainder."""
        last = self.rows.end - 1
        return last - (last - positions) % self.capacity

    def _own_state(self, numbers: np.ndarray) -> dict[str, Any]:
        return {"masses": self._tree[self.rows.positions(numbers)], "largest": self.largest}

    def _set_own_state(self, numbers: np.ndarray, state: dict[str, Any]) -> None:
        self.largest = float(state["largest"])
        self._tree = SumTree(self.capacity)
        masses = np.asarray(state["masses"])
        self._tree.update(self.rows.positions(numbers), masses[len(masses) - len(numbers) :])
