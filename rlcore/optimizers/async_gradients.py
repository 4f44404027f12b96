"""AsyncGradientsOptimizer: evaluators compute gradients on their own samples; each is applied as it comes (A3C).

A gradient was computed with the policy that its evaluator had, and is applied to the one that there is by then. How
many updates lie between is its staleness; beyond a bound a gradient is dropped, and counted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from rlcore.evaluation.evaluator_set import CALL_DEADLINE_S, Evaluators, Sample
from rlcore.optimizers.learner import Learner, Update
from rlcore.optimizers.policy_optimizer import OptimizerConfig, PolicyOptimizer

GRADIENTS = "gradients_with_info"
EVALUATORS_TO_STALENESS = 4


@dataclass(frozen=True)
class AsyncGradientsConfig(OptimizerConfig):
    """What AsyncGradients and ShardedParameterServer need to know of a job.

    Attributes:
        max_staleness: in updates; None: four times the number of evaluators.
        parameter_shards: actors that hold the parameters; for ShardedParameterServer.
        adam_epsilon: Adam's; for ShardedParameterServer.
    """

    max_staleness: int | None = None
    parameter_shards: int = 2
    adam_epsilon: float = 1e-5


class AsyncGradientsOptimizer(PolicyOptimizer):
    """A3C's optimizer: the learner applies `updates_per_step` gradients, whoever is first.

    Over Ray evaluators work on between two steps; in one process each step ends with nothing under way.
    """

    config: AsyncGradientsConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.counters |= {"stale_gradients": 0, "staleness_total": 0, "gradients_applied": 0, "gradients_lost": 0}

    def step(self) -> None:
        self.evaluators.await_one()
        self.broadcast()
        applied = 0
        while applied < self.config.updates_per_step:
            self._ask(applied)
            for sample in self._wait():
                update = self._apply(sample) if self._fresh(sample) else None
                applied += update is not None
                self._send_weights(sample.index, self.learner.get_weights() if update is None else update.weights)

    @property
    def max_staleness(self) -> int:
        """Updates that a gradient may be behind."""
        return most_stale(self.config.max_staleness, self.evaluators)

    def _ask(self, applied: int) -> None:
        """Sets idle evaluators to work: all of them over Ray, no more than are needed in one process."""
        ask_idle(self.evaluators, GRADIENTS, self.config.updates_per_step - applied)

    def _wait(self) -> list[Sample]:
        started = time.perf_counter()
        samples = self.evaluators.wait_any(CALL_DEADLINE_S)
        self.note(samples, time.perf_counter() - started)
        return samples

    def _fresh(self, sample: Sample) -> bool:
        if self.version - sample.info.policy_version <= self.max_staleness:
            return True
        self.counters["stale_gradients"] += 1
        self.counters["discarded_timesteps"] += sample.info.timesteps
        return False

    def _apply(self, sample: Sample) -> Update | None:
        """One update; None where the gradient was lost with its node, or empty."""
        gradients = sample.batch
        if isinstance(self.learner, Learner):
            found = self.evaluators.fetch([gradients])
            gradients = found[0] if found else None
        with self.timed("apply"):
            update = None if gradients is None else self.learner.apply_gradients(gradients, self.timesteps_sampled)
        if update is None:
            self.counters["gradients_lost"] += 1
            return None
        self.counters["gradients_applied"] += 1
        self.counters["staleness_total"] += self.version - sample.info.policy_version
        self.note_update(replace(update.report, sgd_time_s=0.0))  # which `apply` holds already
        self.version = update.report.version
        return update

    def _send_weights(self, index: int, weights: Any) -> None:
        with self.timed("broadcast"):
            self.evaluators.set_global_state(self.state_with(weights), [index])
        self.weight_syncs += 1


def ask_idle(evaluators: Evaluators, method: str, wanted: int) -> None:
    """One request to each evaluator that owes nothing; in one process `wanted` requests at most are under way."""
    evaluators.await_one()
    owed = evaluators.owed()
    idle = [index for index in evaluators.indices if not owed[index]]
    if not evaluators.remote:
        idle = idle[: max(0, wanted - (len(evaluators.indices) - len(idle)))]
    for index in idle:
        evaluators.request(index, method)


def most_stale(configured: int | None, evaluators: Evaluators) -> int:
    """The bound of the configuration, or one that follows the number of evaluators."""
    return EVALUATORS_TO_STALENESS * len(evaluators.indices) if configured is None else configured
