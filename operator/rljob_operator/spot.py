"""Preemptible pools that get no nodes: on-demand pools make up for their minimum until it is tried again."""

from __future__ import annotations

from rlcore.api.status import PoolStatus
from rljob_operator import names
from rljob_operator.draft import Draft
from rljob_operator.observed import Manifest, condition, is_alive
from rljob_operator.timestamps import to_seconds

SPOT_UNAVAILABLE = "SpotUnavailable"
"""A condition, and an event."""


def moved_pools(draft: Draft) -> dict[str, int]:
    """Pools whose minimum is made up for by others at present, and how many pods of each have a node."""
    return {pool.name: placed(draft, pool.name) for pool in pool_statuses(draft) if pool.moved_at is not None}


def placed(draft: Draft, pool: str) -> int:
    """Pods of a pool that have a node."""
    return sum(is_alive(pod) and not _unscheduled_s(draft, pod) for pod in _pods_of(draft, pool))


def unplaced(draft: Draft, pool: str) -> list[str]:
    """Names of a pool's pods that no node takes."""
    return [
        str(pod["metadata"]["name"]) for pod in _pods_of(draft, pool) if is_alive(pod) and _unscheduled_s(draft, pod)
    ]


def _pods_of(draft: Draft, pool: str) -> list[Manifest]:
    return draft.observed.pods_of(draft.current.number, names.EVALUATOR, pool)


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
        result[pool.name] = _moved_since(draft, pool.name, before.get(pool.name)) if pool.preemptible else None
    _tell(draft, [name for name, since in result.items() if since is not None])
    return result


def _tell(draft: Draft, moved: list[str]) -> None:
    """A condition while it is so."""
    if moved:
        text = f"pools without nodes: {', '.join(moved)}; on-demand pools make up for their minimum, up to maxReplicas"
        draft.set_condition(SPOT_UNAVAILABLE, True, "NoNodes", text, quiet=True)
    elif draft.condition(SPOT_UNAVAILABLE) is not None:
        draft.drop_condition(SPOT_UNAVAILABLE)
        draft.event("SpotRetried", "preemptible pools are asked for their minimum again")


def _moved_since(draft: Draft, pool: str, since: str | None) -> str | None:
    """Since when a preemptible pool is moved, None where it is not."""
    if since is not None:
        left = (to_seconds(since) or 0.0) + draft.times.spot_retry_s - draft.now_s
        if left > 0:
            draft.look_again(left)
            return since
    unscheduled_s = max((_unscheduled_s(draft, pod) for pod in _pods_of(draft, pool) if is_alive(pod)), default=0.0)
    left = draft.times.spot_unavailable_s - unscheduled_s
    if left > 0:
        if unscheduled_s:
            draft.look_again(left)
        return None
    if since is None:
        text = f"pool {pool} got no node for {unscheduled_s:.0f} s: on-demand pools make up for its minimum"
        draft.event(SPOT_UNAVAILABLE, text, warn=True)
    return draft.now  # anew, or still: the autoscaler keeps asking for what it wanted before


def _unscheduled_s(draft: Draft, pod: Manifest) -> float:
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return 0.0
    since = to_seconds(scheduled.get("lastTransitionTime"))
    return 0.0 if since is None else max(0.001, draft.now_s - since)
