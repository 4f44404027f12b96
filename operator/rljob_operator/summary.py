"""The part of the status that shows rather than remembers: pods, the driver's numbers, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlcore.api.status import (
    CheckpointStatus,
    EvaluatorsStatus,
    LearnersStatus,
    PoolStatus,
    TrainingStatus,
)
from rljob_operator import names
from rljob_operator.draft import Draft, clip
from rljob_operator.observed import is_alive, is_ready
from rljob_operator.spot import SPOT_UNAVAILABLE, pool_statuses
from rljob_operator.timestamps import to_rfc3339
from rljob_operator.waiting import Wait, why_pods_wait

Since = Mapping[str, str | None]

LAST_MOMENT_S = 253_402_300_800.0
"""The end of the year 9999, seconds since 1970."""


def summarize(draft: Draft, moved: Since | None = None, draining: Since | None = None) -> None:
    """Pods by pool, and learners.

    Args:
        draft: to write to.
        moved: pool -> since when others make up for its minimum, where that was judged just now.
        draining: pool -> since when it is drained, the same.
    """
    job = draft.observed.job
    if job is None:
        return
    _note_pods(draft, moved, draining)


def _note_pods(draft: Draft, moved: Since | None, draining: Since | None) -> None:
    observed, attempt = draft.observed, draft.open_attempt
    job = draft.job
    number = attempt.number if attempt else 0
    targets = _targets(draft) if attempt else {}
    before = pool_statuses(draft) if attempt else []
    moved_at = {pool.name: pool.moved_at for pool in before} | dict(moved or {})
    draining_since = {pool.name: pool.draining_since for pool in before} | dict(draining or {})
    pools = []
    for pool in job.spec.evaluators.pools:
        pods = [pod for pod in observed.pods_of(number, names.EVALUATOR, pool.name) if is_alive(pod)]
        wait = why_pods_wait(pods)
        if wait is None and moved_at.get(pool.name):
            wait = Wait(
                SPOT_UNAVAILABLE, "it got no nodes: on-demand pools make up for its minimum until it is retried"
            )
        pools.append(
            PoolStatus(
                name=pool.name,
                target=targets.get(pool.name, 0),
                replicas=len(pods),
                ready=sum(map(is_ready, pods)),
                reason=wait.reason if wait else "",
                message=clip(wait.message) if wait else "",
                draining_since=draining_since.get(pool.name),
                moved_at=moved_at.get(pool.name),
            )
        )
    draft.set(
        evaluators=EvaluatorsStatus(
            target=sum(pool.target or 0 for pool in pools),
            replicas=sum(pool.replicas or 0 for pool in pools),
            ready=sum(pool.ready or 0 for pool in pools),
            selector=names.evaluator_selector(observed.name),
            pools=pools,
        )
    )
    learners = [pod for pod in observed.pods_of(number, names.LEARNER) if is_alive(pod)]
    draft.set(learners=LearnersStatus(target=targets.get(names.LEARNER, 0), ready=sum(map(is_ready, learners))))


def _targets(draft: Draft) -> dict[str, int]:
    """Group -> replicas that the RayCluster (or, before it is there, the RayJob) asks for."""
    observed = draft.observed
    spec: dict[str, Any] = {}
    if observed.ray_cluster is not None:
        spec = dict(observed.ray_cluster.get("spec") or {})
    elif observed.ray_job is not None:
        spec = dict((observed.ray_job.get("spec") or {}).get("rayClusterSpec") or {})
    return {
        str(group.get("groupName")): int(group.get("replicas") or 0) for group in spec.get("workerGroupSpecs") or []
    }


def note_training(draft: Draft) -> None:
    """The driver's numbers, once it has any."""
    report = draft.observed.report
    if report is None:
        return
    values = report.values
    if values.get("iteration") is not None:
        evaluation = values.get("evaluation") or {}
        draft.set(
            training=TrainingStatus(
                iteration=_count(values.get("iteration")),
                timesteps=_count(values.get("timesteps")),
                episodes=_count(values.get("episodes")),
                episode_reward_mean=_rounded(values.get("episode_reward_mean"), 3),
                evaluation_reward_mean=_rounded(evaluation.get("episode_reward_mean"), 3),
                timesteps_per_second=_rounded(values.get("timesteps_per_s"), 1),
                bottleneck=clip(str(values.get("bottleneck") or "")),
                observed_at=to_rfc3339(report.received_s),
            )
        )
    checkpoint = report.checkpoint
    if checkpoint.get("timesteps") is not None:
        draft.set(
            checkpoint=CheckpointStatus(
                latest=clip(str(checkpoint.get("location") or "")),
                timesteps=_count(checkpoint.get("timesteps")),
                time=_time(checkpoint.get("time_s")),
            )
        )
        draft.set_condition("Checkpointed", True, "CheckpointWritten", "status.checkpoint names the newest one")


# A driver may be of another version than the operator: what it says wrongly is left out, and holds nothing up.


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _time(value: Any) -> str | None:
    return to_rfc3339(value) if isinstance(value, int | float) and 0 <= value < LAST_MOMENT_S else None


def _rounded(value: Any, digits: int) -> float | None:
    return round(float(value), digits) if isinstance(value, int | float) and math.isfinite(value) else None
