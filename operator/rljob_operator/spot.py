"""Preemptible pools that get no nodes: on-demand pools make up for their minimum until it is tried again."""

from __future__ import annotations

from rlcore.api.status import PoolStatus
from rljob_operator import names
from rljob_operator.draft import Draft
from rljob_operator.observed import Manifest, condition
from rljob_operator.timestamps import to_seconds


def moved_pools(draft: Draft) -> set[str]:
    """Names of pools whose minimum is made up for by others at present."""
    return {pool.name for pool in pool_statuses(draft) if pool.moved_at is not None}


def pool_statuses(draft: Draft) -> list[PoolStatus]:
    """status.evaluators.pools."""
    evaluators = draft.get("evaluators")
    return list(evaluators.pools) if evaluators is not None else []


def judge_pools(draft: Draft) -> dict[str, str | None]:
    """Pool -> since when its minimum is moved, RFC 3339, or None.

    A preemptible pool is moved when one of its pods found no node for spotUnavailableSeconds, if there is an on-demand
    pool to move to; and tried again after spotRetrySeconds.
    """
    job = draft.job
    before = {pool.name: pool.moved_at for pool in pool_statuses(draft)}
    if all(pool.preemptible for pool in job.spec.evaluators.pools):
        return {pool.name: None for pool in job.spec.evaluators.pools}
    result: dict[str, str | None] = {}
    for pool in job.spec.evaluators.pools:
        since = before.get(pool.name)
        if not pool.preemptible:
            result[pool.name] = None
        elif since is not None:
            left = (to_seconds(since) or 0.0) + draft.times.spot_retry_s - draft.now_s
            result[pool.name] = since if left > 0 else None
            draft.look_again(max(left, 0.1))
        else:
            pods = draft.observed.pods_of(draft.current.number, names.EVALUATOR, pool.name)
            unscheduled_s = max((_unscheduled_s(draft, pod) for pod in pods), default=0.0)
            moved = unscheduled_s >= draft.times.spot_unavailable_s
            result[pool.name] = draft.now if moved else None
            if moved:
                message = (
                    f"pool {pool.name} got no node for {unscheduled_s:.0f} s: on-demand pools make up for its minimum"
                )
                draft.event("SpotUnavailable", message, warn=True)
            elif unscheduled_s:
                draft.look_again(draft.times.spot_unavailable_s - unscheduled_s + 0.1)
    return result


def _unscheduled_s(draft: Draft, pod: Manifest) -> float:
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return 0.0
    since = to_seconds(scheduled.get("lastTransitionTime"))
    return 0.0 if since is None else max(0.001, draft.now_s - since)
