"""Pods lost: written down once each, so that preemptions are counted and heads that die again and again are seen."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api.status import Attempt, Loss
from rljob_operator import names
from rljob_operator.draft import Draft
from rljob_operator.losses import DELETED, DISRUPTIONS
from rljob_operator.observed import LostPod
from rljob_operator.timestamps import to_rfc3339, to_seconds

KEPT_NEWEST, KEPT_HEADS = 15, 5
"""Of all losses, and heads of what is older: these decide whether an attempt goes on. The schema takes twenty."""

NAMED = 3
"""Pods that an event names; of the rest it tells the number."""


def record_losses(draft: Draft) -> None:
    """Takes new losses into the status, each pod once; disruptions are counted as preemptions."""
    attempt = draft.open_attempt
    # Pods that we gave back ourselves are not lost.
    if attempt is None or attempt.stopping_at is not None or attempt.reason == "Succeeded" or _is_suspended(draft):
        return
    fresh = _fresh(draft, attempt)
    if not fresh:
        return
    losses = [*draft.old.losses, *map(_as_status, fresh)]
    heads = [loss for loss in losses[:-KEPT_NEWEST] if loss.role == names.HEAD]
    draft.set(losses=[*heads[-KEPT_HEADS:], *losses[-KEPT_NEWEST:]])
    preempted = sum(loss.failure_class in DISRUPTIONS - {DELETED} for loss in fresh)
    if preempted:
        draft.set(preemptions=(draft.get("preemptions") or 0) + preempted)
    for role, failure_class in dict.fromkeys((loss.role, loss.failure_class) for loss in fresh):
        _tell(draft, [loss for loss in fresh if (loss.role, loss.failure_class) == (role, failure_class)])


def _fresh(draft: Draft, attempt: Attempt) -> list[LostPod]:
    """Losses of an attempt that are not written down yet.

    Where more were than the status keeps, their order tells: what was seen before a known one was counted with it.
    """
    known = {loss.uid for loss in draft.old.losses}
    lost = [loss for loss in draft.observed.lost if loss.attempt == attempt.number and not _is_given_back(draft, loss)]
    if len(known) >= KEPT_NEWEST:
        last_known = max((index for index, loss in enumerate(lost) if loss.uid in known), default=-1)
        lost = lost[last_known + 1 :]
    return [loss for loss in lost if loss.uid not in known]


def _is_given_back(draft: Draft, loss: LostPod) -> bool:
    """A pod that was deleted with no sign of a disruption: of a pool that became smaller, or when a queue took all."""
    if loss.failure_class != DELETED:
        return False
    status = (draft.observed.ray_job or {}).get("status") or {}
    began_s = to_seconds(status.get("startTime")) or 0.0  # anew when the queue lets it go on
    return loss.role == names.EVALUATOR or loss.time_s < began_s


def _is_suspended(draft: Draft) -> bool:
    """Whether a queue has taken the RayJob's pods, is about to, or has only just let it begin anew."""
    found = draft.observed.ray_job
    if found is None:
        return False
    deployment = (found.get("status") or {}).get("jobDeploymentStatus")
    return bool((found.get("spec") or {}).get("suspend")) or deployment in (None, "", "Suspending", "Suspended")


def _tell(draft: Draft, losses: Sequence[LostPod]) -> None:
    first = losses[0]
    pods = ", ".join(loss.name for loss in losses[:NAMED])
    more = f" and {len(losses) - NAMED} more" if len(losses) > NAMED else ""
    text = f"{'pod' if len(losses) == 1 else 'pods'} {pods}{more}: {first.failure_class}: {first.message}"
    warn = first.role != names.EVALUATOR or first.failure_class not in DISRUPTIONS
    draft.event(f"{first.role.capitalize()}Lost", text, warn=warn)


def head_losses_without_progress(draft: Draft) -> list[Loss]:
    """Heads that this attempt lost since its last checkpoint and not by disruption."""
    checkpoint = draft.get("checkpoint")
    written_s = (to_seconds(checkpoint.time) if checkpoint is not None else None) or 0.0
    return [
        loss
        for loss in _head_losses(draft)
        if loss.failure_class not in DISRUPTIONS and (to_seconds(loss.time) or 0.0) >= written_s
    ]


def newest_head_loss(draft: Draft, within_s: float = float("inf")) -> LostPod | None:
    """The last head that this attempt lost, in the last so many seconds; None where it lost none."""
    attempt = draft.open_attempt
    number = attempt.number if attempt is not None else 0
    # What was written down tells less, and lasts longer.
    written = [
        LostPod(loss.uid, loss.pod, "", names.HEAD, number, loss.failure_class, None, "its end was seen", when)
        for loss in _head_losses(draft)
        if (when := to_seconds(loss.time)) is not None
    ]
    seen = [loss for loss in draft.observed.lost if loss.role == names.HEAD and loss.attempt == number]
    recent = [loss for loss in (*written, *seen) if draft.now_s - loss.time_s <= within_s]
    return recent[-1] if recent else None


def _head_losses(draft: Draft) -> list[Loss]:
    attempt = draft.open_attempt
    begun_s = (to_seconds(attempt.started_at) if attempt else None) or 0.0
    losses: list[Loss] = draft.get("losses")
    return [loss for loss in losses if loss.role == names.HEAD and (to_seconds(loss.time) or 0.0) >= begun_s]


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
