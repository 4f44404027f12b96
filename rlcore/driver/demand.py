"""How many evaluators a job could use, and asking Ray's autoscaler for nodes to hold them.

The job asks for more while its training mostly waits for samples, and never beyond its pools' limits. It does not ask
for fewer: what is there is used. Without an autoscaler nobody hears the request, and it does no harm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rlcore.api import RLJobSpec, fill_order
from rlcore.driver.control import Control
from rlcore.driver.elasticity import EVALUATOR, POOL_PREFIX, pod_limits
from rlcore.metrics.result import IterationResult

logger = logging.getLogger("rlcore.driver")

JUDGE_EVERY_S = 30.0
SAMPLING_BOUND = 0.6
"""Share of the time spent sampling or waiting for samples from which more evaluators are worth their price."""

Bundle = dict[str, float]


class Demand:
    """Follows a job's need for evaluators.

    Args:
        spec: the manifest.
        ask: Ray's request_resources; the newest request replaces those before it.
        clock: seconds, monotonic.
    """

    def __init__(
        self, spec: RLJobSpec, ask: Callable[[list[Bundle]], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spec = spec
        self._ask = ask
        self._clock = clock
        self._judged_at_s = clock()
        self._sampling_s = self._total_s = 0.0
        self._target = 0
        self._asked: list[Bundle] | None = None

    def observe(self, result: IterationResult) -> None:
        """One iteration's times."""
        sampling_s = result.sample_time_s + result.wait_time_s
        self._sampling_s += sampling_s
        self._total_s += sampling_s + result.learn_time_s

    def update(self, control: Control, evaluators: int) -> None:
        """Asks for what the job could use; `evaluators` are at work now."""
        if control.replicas is not None:
            return  # somebody has said how many there shall be
        self._target = max(self._target, evaluators)
        if self._clock() - self._judged_at_s >= JUDGE_EVERY_S and self._total_s > 0:
            share = self._sampling_s / self._total_s
            self._judged_at_s, self._sampling_s, self._total_s = self._clock(), 0.0, 0.0
            if share >= SAMPLING_BOUND and evaluators >= self._target:
                self._target = 2 * evaluators
        bundles = evaluator_bundles(self._spec, control, self._target)
        self._target = min(self._target, len(bundles))
        if bundles != self._asked:
            logger.info("evaluators asked for: %d", len(bundles))
            self._ask(bundles)
            self._asked = bundles


def evaluator_bundles(spec: RLJobSpec, control: Control, target: int) -> list[Bundle]:
    """What `target` evaluators take, one bundle each: every pool's minimum, then preemptible pools, then the others."""
    limits = pod_limits(spec, control)
    size = {pool.name: pool.evaluators_per_pod for pool in spec.evaluators.pools}
    counts = {name: limit.min_replicas * size[name] for name, limit in limits.items()}
    left = max(target, 1) - sum(counts.values())
    for pool in fill_order(spec.evaluators.pools):
        more = min(max(0, left), limits[pool.name].max_replicas * size[pool.name] - counts[pool.name])
        counts[pool.name] += more
        left -= more
    return [{EVALUATOR: 1, f"{POOL_PREFIX}{name}": 1} for name, count in counts.items() for _ in range(count)]


def ask_autoscaler(bundles: list[Bundle]) -> None:
    """Tells Ray's autoscaler what the cluster has to hold."""
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=bundles)
