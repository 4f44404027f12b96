"""OfflineSamplesOptimizer: train batches come from records; no environment is stepped.

Every transition is learned from once an epoch, in an order that depends on the epoch alone, so that a resume goes
on exactly. Timesteps are recorded ones that were read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcore.offline.dataset import OfflineDataset
from rlcore.optimizers.policy_optimizer import OptimizerConfig, PolicyOptimizer
from rlcore.sample_batch import OBSERVATIONS, MultiAgentBatch, SampleBatch


@dataclass(frozen=True, kw_only=True)
class OfflineConfig(OptimizerConfig):
    """What OfflineSamples needs to know of a job.

    Attributes:
        source: folder of records, or minari:NAME.
        gamma: discount of the returns.
        with_returns: batches say what came after each transition.
    """

    source: str
    gamma: float
    with_returns: bool


class OfflineSamplesOptimizer(PolicyOptimizer):
    """Learns one policy from records; arguments as PolicyOptimizer's, with an evaluator set that is empty."""

    config: OfflineConfig
    plays = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.policy_id: str = next(iter(self.learner.get_weights()))
        self.dataset = OfflineDataset.read(self.config.source, self.config.gamma)
        self._epoch = self._position = 0
        self._order = self._shuffled()
        for filter_ in self.filters.values():
            filter_.observe(self.dataset.rows[OBSERVATIONS])
            filter_.merge([filter_.take_delta()])

    def step(self) -> None:
        config = self.config
        self.learner.set_timesteps(self.timesteps_sampled)
        batch = self._next_batch()
        self.learner.load([MultiAgentBatch({self.policy_id: batch}, batch.size)])
        report = self.learner.sgd(num_epochs=config.num_epochs, minibatch_size=config.minibatch_size)
        self.note_update(report)
        self.version = report.version

    def _next_batch(self) -> SampleBatch:
        """The next `train_batch_size` transitions; the end of an epoch may make it smaller."""
        started = time.perf_counter()
        if self._position >= self.dataset.size:
            self._epoch, self._position = self._epoch + 1, 0
            self._order = self._shuffled()
        chosen = self._order[self._position : self._position + self.config.train_batch_size]
        self._position += len(chosen)
        batch = self.dataset.batch(chosen, with_returns=self.config.with_returns)
        for filter_ in self.filters.values():
            filtered = {n: filter_(c) for n, c in batch.items() if n.endswith(OBSERVATIONS)}
            batch = batch.with_columns(**filtered)
        self.timesteps_sampled += batch.size
        self._progress.timesteps_sampled += batch.size
        self._add_time("sample", time.perf_counter() - started)
        return batch

    def _shuffled(self) -> np.ndarray:
        return np.random.default_rng([17, self._epoch]).permutation(self.dataset.size)

    def collect_metrics(self) -> Any:
        self.counters["epochs"] = self._epoch
        return super().collect_metrics()

    def save(self) -> dict[str, Any]:
        return {**super().save(), "epoch": self._epoch, "position": self._position}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._epoch, self._position = state["epoch"], state["position"]
        self._order = self._shuffled()
