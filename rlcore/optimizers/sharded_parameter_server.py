"""ShardedParameterServerOptimizer: parameters live in shards; evaluators pull, compute gradients, and push (A3C).

The driver only keeps evaluators busy and counts: neither samples, nor gradients, nor weights pass through it. After
each step it takes a copy of the shards into the learner, for evaluations and checkpoints, and for the case that a
shard's node is lost: that shard goes on from the copy.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np

from rlcore.errors import UserError
from rlcore.evaluation.evaluator_set import CALL_DEADLINE_S, Sample
from rlcore.evaluation.policy_evaluator import set_worker
from rlcore.optimizers.async_gradients import AsyncGradientsConfig, ask_idle, most_stale
from rlcore.optimizers.learner import LearnerReport
from rlcore.optimizers.parameter_shard import (
    ParameterShard,
    Pushed,
    ShardWorker,
    call_all,
    lost_shard_errors,
    spans_of,
)
from rlcore.optimizers.policy_optimizer import PolicyOptimizer

logger = logging.getLogger("rlcore.optimizers")

WORK = "work_with_info"
LOSSES_IN_A_ROW = 3


class ShardedParameterServerOptimizer(PolicyOptimizer):
    """The paper's parameter server. A step ends after `updates_per_step` gradients that all shards took."""

    config: AsyncGradientsConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.counters |= {"stale_gradients": 0, "staleness_total": 0, "gradients_applied": 0, "shards_lost": 0}
        self._shards: list[Any] = []
        self._snapshots: list[dict[str, Any]] = []
        self._steps: list[dict[str, int]] | None = None
        self._losses_in_a_row = 0

    def step(self) -> None:
        self.evaluators.await_one()
        if not self._shards:
            self._start_shards()
        with self.timed("broadcast"):
            self.evaluators.set_global_state(self.state_with({}))
        applied = 0
        while applied < self.config.updates_per_step:
            ask_idle(self.evaluators, WORK, self.config.updates_per_step - applied)
            applied += sum(self._take(sample, pushed) for sample, pushed in self._wait())
        self._copy_shards()

    def _wait(self) -> list[tuple[Sample, Pushed | None]]:
        started = time.perf_counter()
        samples = self.evaluators.wait_any(CALL_DEADLINE_S)
        results = [(sample, self.evaluators.fetch([sample.batch])) for sample in samples]
        self.note(samples, time.perf_counter() - started)
        return [(sample, found[0] if found else None) for sample, found in results]

    def _take(self, sample: Sample, pushed: Pushed | None) -> int:
        """Counts what became of a gradient; returns 1 where it was applied."""
        if pushed is None:
            self._connect()  # an evaluator that is new, or took a lost one's place
            return 0
        if pushed.shard_lost:
            self._mend_shards()
            return 0
        if not pushed.accepted:
            self.counters["stale_gradients"] += 1
            self.counters["discarded_timesteps"] += sample.info.timesteps
            return 0
        self._losses_in_a_row = 0
        self.counters["gradients_applied"] += 1
        self.counters["staleness_total"] += pushed.staleness
        self._progress.staleness = max(self._progress.staleness, pushed.staleness)
        self.version += 1
        self.note_update(LearnerReport(pushed.stats, pushed.timesteps, 0.0, 0.0, version=self.version))
        return 1

    # shards --------------------

    def _start_shards(self) -> None:
        """Shards with the learner's parameters and moments, and evaluators that know them."""
        state = self.learner.get_state()
        self.version = state["version"]
        policies = state["policies"]
        spans = spans_of({p: len(s["weights"]) for p, s in policies.items()}, self.config.parameter_shards)
        # Each shard counts its own steps; after a change of their number the largest count does for all.
        steps = self._steps if self._steps and len(self._steps) == len(spans) else [None] * len(spans)
        self._snapshots = [_slice(policies, span, self.version, n) for span, n in zip(spans, steps, strict=True)]
        self._shards = [self._start(snapshot) for snapshot in self._snapshots]
        self._connect()

    def _start(self, snapshot: dict[str, Any]) -> Any:
        arguments = (snapshot, self.config.adam_epsilon, most_stale(self.config.max_staleness, self.evaluators))
        if not self.evaluators.remote:
            return ParameterShard(*arguments)
        import ray

        return ray.remote(num_cpus=0)(ParameterShard).remote(*arguments)

    def _connect(self) -> None:
        self.evaluators.foreach(set_worker, ShardWorker(self._shards))

    def _mend_shards(self) -> None:
        """Starts lost shards again from the last copy.

        Raises:
            UserError: they are lost again and again.
        """
        lost = [i for i, shard in enumerate(self._shards) if not _answers(shard)]
        if not lost:
            return
        self._losses_in_a_row += 1
        if self._losses_in_a_row > LOSSES_IN_A_ROW:
            raise UserError(
                f"parameter shards died {self._losses_in_a_row} times in a row",
                hint="out of memory? give the head more, or raise spec.config.parameterShards",
            )
        logger.warning("parameter shards lost, started again: %s", lost)
        self.counters["shards_lost"] += len(lost)
        for i in lost:
            # Versions go on from the others', or what they hold would look stale to it, and its to them.
            self._snapshots[i]["version"] = self.version
            self._shards[i] = self._start(self._snapshots[i])
        self._connect()

    def _copy_shards(self) -> None:
        """The shards' contents into the learner."""
        with self.timed("load"):
            try:
                self._snapshots = call_all(self._shards, "get_state")
            except lost_shard_errors():
                self._mend_shards()
                return
            self.learner.take_policies(_joined(self._snapshots), self.version)

    # state --------------------

    def save(self) -> dict[str, Any]:
        steps = [{p: adam["steps"] for p, adam in snapshot["adam"].items()} for snapshot in self._snapshots]
        return {**super().save(), "shard_steps": steps}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._stop_shards()
        self._steps = state["shard_steps"]

    def stop(self) -> None:
        super().stop()
        self._stop_shards()

    def _stop_shards(self) -> None:
        if self.evaluators.remote and self._shards:
            import ray

            for shard in self._shards:
                ray.kill(shard)
        self._shards = []


def _slice(
    policies: dict[str, Any], spans: dict[str, tuple[int, int]], version: int, steps: dict[str, int] | None
) -> dict[str, Any]:
    """One shard's part of all policies' states."""
    adam = {}
    for policy_id, (a, b) in spans.items():
        whole = policies[policy_id]["adam"]
        count = whole["steps"] if steps is None else steps[policy_id]
        adam[policy_id] = {"first": whole["first"][a:b], "second": whole["second"][a:b], "steps": count}
    weights = {policy_id: policies[policy_id]["weights"][a:b] for policy_id, (a, b) in spans.items()}
    return {"weights": weights, "adam": adam, "version": version}


def _joined(snapshots: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """All shards' parts as policies' states."""
    states: dict[str, dict[str, Any]] = {}
    for policy_id in snapshots[0]["weights"]:
        adams = [snapshot["adam"][policy_id] for snapshot in snapshots]
        states[policy_id] = {
            "weights": np.concatenate([snapshot["weights"][policy_id] for snapshot in snapshots]),
            "adam": {
                "first": np.concatenate([adam["first"] for adam in adams]),
                "second": np.concatenate([adam["second"] for adam in adams]),
                "steps": max(adam["steps"] for adam in adams),
            },
        }
    return states


def _answers(shard: Any) -> bool:
    try:
        call_all([shard], "pull_version")
    except lost_shard_errors():
        return False
    return True
