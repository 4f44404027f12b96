"""Pods lost: written down once each, so that preemptions are counted and heads that die again and again are seen."""

from __future__ import annotations

from rlcore.api.status import Loss
from rljob_operator import names
from rljob_operator.draft import Draft
from rljob_operator.losses import DISRUPTIONS, PREEMPTED
from rljob_operator.observed import LostPod
from rljob_operator.timestamps import to_rfc3339, to_seconds

KEPT = 20
COUNTED_AS_PREEMPTION = frozenset(DISRUPTIONS - {"Deleted"}) | {PREEMPTED}


def record_losses(draft: Draft) -> None:
    """Takes new losses into the status: each pod once, the last twenty; disruptions are counted as preemptions."""
    known = {loss.uid for loss in draft.old.losses}
    attempt = draft.open_attempt
    fresh = [
        loss
        for loss in draft.observed.lost
        if loss.uid not in known and attempt is not None and loss.attempt == attempt.number
    ]
    # Pods that we gave back ourselves are not lost.
    if attempt is None or attempt.stopping_at is not None or attempt.reason == "Succeeded" or not fresh:
        return
    draft.set(losses=[*draft.old.losses, *(_as_status(loss) for loss in fresh)][-KEPT:])
    preempted = sum(loss.failure_class in COUNTED_AS_PREEMPTION for loss in fresh)
    if preempted:
        draft.set(preemptions=(draft.get("preemptions") or 0) + preempted)
    for loss in fresh:
        warn = loss.role != names.EVALUATOR or loss.failure_class not in DISRUPTIONS
        draft.event(
            f"{loss.role.capitalize()}Lost", f"pod {loss.name}: {loss.failure_class}: {loss.message}", warn=warn
        )


def losses_of(draft: Draft, attempt: int) -> list[LostPod]:
    """Losses of an attempt that are not yet, or were just, written down."""
    return [loss for loss in draft.observed.lost if loss.attempt == attempt]


def head_losses_without_progress(draft: Draft) -> list[Loss]:
    """Heads that this attempt lost since its last checkpoint and not by disruption."""
    attempt = draft.open_attempt
    checkpoint = draft.get("checkpoint")
    since = (to_seconds(attempt.started_at) if attempt else None) or 0.0
    if checkpoint is not None:
        since = max(since, to_seconds(checkpoint.time) or 0.0)
    return [
        loss
        for loss in draft.get("losses")
        if loss.role == names.HEAD and loss.failure_class not in DISRUPTIONS and (to_seconds(loss.time) or 0.0) >= since
    ]


def last_head_loss_s(draft: Draft) -> float | None:
    """When this attempt last lost its head, seconds since 1970."""
    attempt = draft.open_attempt
    begun = (to_seconds(attempt.started_at) if attempt else None) or 0.0
    times = [to_seconds(loss.time) or 0.0 for loss in draft.get("losses") if loss.role == names.HEAD]
    recent = [time for time in times if time >= begun]
    return max(recent) if recent else None


def _as_status(loss: LostPod) -> Loss:
    return Loss.model_validate(
        {
            "uid": loss.uid,
            "pod": loss.name,
            "role": loss.role,
            "class": loss.failure_class,
            "time": to_rfc3339(loss.time_s),
        }
    )
