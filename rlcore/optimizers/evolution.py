"""EvolutionOptimizer: evaluators try directions in parameter space; their returns, joined, make one step (ES, ARS).

    step: broadcast θ; every evaluator plays whole episodes with θ + σε and θ - σε; θ moves along Σ weight·ε

Source: Salimans et al. 2017 (arXiv 1703.03864), algorithm 2; the aggregation tree is that of Ray's ES (Moritz et al.
2018, arXiv 1712.05889, section 5.3).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcore.compression import unpack
from rlcore.evaluation.evaluator_set import CALL_DEADLINE_S, Sample
from rlcore.evaluation.sample_info import Gradients
from rlcore.optimizers.aggregation import EVALUATORS_PER_AGGREGATOR, AggregationTree, aggregators_needed
from rlcore.optimizers.perturbed import SharedNoise, give_work
from rlcore.optimizers.policy_optimizer import OptimizerConfig, PolicyOptimizer
from rlcore.policy.policy_graph import Stats
from rlcore.sample_batch import RETURNS, MultiAgentBatch, SampleBatch

WORK = "work_with_info"


@dataclass(frozen=True, kw_only=True)
class EvolutionConfig(OptimizerConfig):
    """What Evolution needs to know of a job.

    Attributes:
        directions: tried in one step, at least; more until `train_batch_size` timesteps were made.
        noise_table_size: numbers that directions are cut from.
        make_work: (noise, directions of one call) -> what each evaluator does; it gives one row a direction.
        evaluators_per_aggregator: beyond so many, actors join their rows, one for each so many.
        gradient: (rows, noise [size], parameters P) -> what is descended, float32 [P], and statistics.
    """

    directions: int
    noise_table_size: int
    make_work: Callable[[SharedNoise, int], Any]
    gradient: Callable[[SampleBatch, np.ndarray, int], tuple[np.ndarray, Stats]]
    evaluators_per_aggregator: int = EVALUATORS_PER_AGGREGATOR


class EvolutionOptimizer(PolicyOptimizer):
    """Moves one policy along the directions whose episodes earned more; what travels is indices and returns."""

    config: EvolutionConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.counters |= {"directions": 0, "stale_directions": 0}
        weights = self.learner.get_weights()
        self.policy_id: str = next(iter(weights))
        self._parameters = len(weights[self.policy_id])
        self._noise = SharedNoise.of(self.config.noise_table_size, remote=self.evaluators.remote)
        self._work: Any = None
        self._share = 0
        self._tree: AggregationTree | None = None

    def step(self) -> None:
        self.broadcast()
        rows = self._join(self._try_directions())
        with self.timed("gradient"):
            tried = rows.policy_batches[self.policy_id]
            gradient, stats = self.config.gradient(tried, self._noise.array(), self._parameters)
        self.counters["directions"] += tried.size
        stats |= {"return_mean": float(tried[RETURNS].mean()), "return_max": float(tried[RETURNS].max())}
        gradients = Gradients({self.policy_id: gradient}, {self.policy_id: stats}, rows.count)
        update = self.learner.apply_gradients(gradients, self.timesteps_sampled)
        assert update is not None, "it did not travel by reference: it cannot be lost"
        self.note_update(update.report)

    def _try_directions(self) -> list[Any]:
        """Rows (or references) of all directions of this step, in the order of evaluators."""
        self._share_out()
        kept: list[Sample] = []
        while self._ask(kept):
            for sample in self._wait():
                if not sample.info.timesteps:  # it took a lost one's place, and was not told yet what to do
                    self.evaluators.foreach(give_work, self._work)
                elif sample.info.policy_version == self.version:
                    kept.append(sample)
                else:
                    self.counters["stale_directions"] += self._share
        # The sort is stable: the same rows in the same order whoever was first.
        return [sample.batch for sample in sorted(kept, key=lambda sample: sample.index)]

    def _ask(self, kept: list[Sample]) -> bool:
        """Asks whoever is idle for as much as is missing; whether there is something to wait for."""
        evaluators = self.evaluators
        asked = sum(evaluators.pending(index) for index in evaluators.indices)
        short_of_timesteps = sum(sample.info.timesteps for sample in kept) < self.config.train_batch_size
        for index in evaluators.indices:
            missing = (len(kept) + asked) * self._share < self.config.directions
            if (missing or (short_of_timesteps and not asked)) and not evaluators.pending(index):
                evaluators.request(index, WORK)
                asked += 1
        return asked > 0 or not kept

    def _share_out(self) -> None:
        """Tells all evaluators how many directions are theirs, where that has changed."""
        share = -(-self.config.directions // max(1, len(self.evaluators.indices)))
        if share != self._share:
            self._share = share
            self._work = self.config.make_work(self._noise, share)
            self.evaluators.foreach(give_work, self._work)

    def _wait(self) -> list[Sample]:
        started = time.perf_counter()
        samples = self.evaluators.wait_any(CALL_DEADLINE_S)
        self.note(samples, time.perf_counter() - started)
        return samples

    def _join(self, kept: list[Any]) -> MultiAgentBatch:
        """All rows; joined by a tree of actors where there are too many evaluators for one process to ask."""
        count, each = len(self.evaluators.indices), self.config.evaluators_per_aggregator
        leaves = aggregators_needed(0, count, each) if self.evaluators.remote else 0
        if leaves and (self._tree is None or self._tree.leaves != leaves):
            self._stop_tree()
            self._tree = AggregationTree(leaves)
        with self.timed("load"):
            if leaves and self._tree is not None:
                kept = [self._tree.join(kept)]
            return MultiAgentBatch.concat([unpack(rows) for rows in self.evaluators.fetch(kept)])

    def _stop_tree(self) -> None:
        if self._tree is not None:
            self._tree.stop()
            self._tree = None

    def stop(self) -> None:
        self._stop_tree()
        super().stop()
