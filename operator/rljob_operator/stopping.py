"""An orderly end of an attempt: why it is wanted, and how its pods are given back after a last checkpoint."""

from __future__ import annotations

from rlcore.api.status import Attempt
from rljob_operator import names
from rljob_operator.actions import TryRayJob
from rljob_operator.draft import Draft
from rljob_operator.observed import is_alive
from rljob_operator.pools import is_autoscaled
from rljob_operator.provision import in_terms_of, is_queued, ray_job, spec_hash
from rljob_operator.run_config import apply_config, checkpoint_answered, stop_token
from rljob_operator.timestamps import to_seconds

LOOK_AT_INVALID_S = 10.0
"""What is in the way of a valid manifest may go away: nobody tells."""

_CAN_SAVE = ("Running", "Paused", "Recovering", "Stopping")


def suspended_by(draft: Draft) -> tuple[str, str] | None:
    """Reason and message where the job shall not run now."""
    job = draft.job
    if job.spec.suspend:
        return "Suspended", "spec.suspend is true; set it to false to go on from the newest checkpoint"
    maximum, cost = job.spec.budget.maximum_cost, draft.get("cost")
    if maximum is not None and cost is not None and (cost.amount or 0.0) >= maximum:
        amount = f"{maximum:g} {job.spec.budget.currency}"
        return "BudgetExhausted", f"the estimated cost reached budget.maximumCost {amount}; raise it to go on"
    return None


def wish_to_end(draft: Draft) -> tuple[str, str] | None:
    """Reason and message for giving the attempt's pods back in order, or None."""
    job, found = draft.job, draft.observed.ray_job
    why = suspended_by(draft)
    if why is not None:
        return why
    if wanted_restart(draft):
        return "RestartRequested", f"annotation {names.ANNOTATION_RESTART} has a new value"
    if found is not None and not draft.observed.problem:
        annotations = found["metadata"].get("annotations") or {}
        made_from = annotations.get(names.ANNOTATION_SPEC_HASH)
        if made_from is not None and made_from != spec_hash(job) and _can_be_made(draft):
            return "SpecChanged", "pods are made anew from the changed manifest, training goes on from a checkpoint"
        autoscaled = is_autoscaled(job.spec, enabled=draft.settings.autoscaler.enabled, queued=is_queued(job))
        if autoscaled and annotations.get(names.ANNOTATION_RANGES) == "false":
            return "SpecChanged", "pools are ranges now: pods are made anew with an autoscaler, training goes on"
    return None


def _can_be_made(draft: Draft) -> bool:
    """Whether the manifest as it is now would be taken: a mistake in it costs no running attempt its pods."""
    observed, job = draft.observed, draft.job
    problem, reason = observed.rejected, observed.rejected_reason
    try:
        manifest = ray_job(job, draft.current.number + 1, draft.settings)
    except ValueError as error:
        problem, reason = str(error), "InvalidPodTemplate"
    if problem:
        draft.refuse(reason, f"{in_terms_of(job, problem)}; the pods stay as they are")
        if observed.try_again and problem == observed.rejected:
            draft.act(TryRayJob(manifest))
        draft.look_again(LOOK_AT_INVALID_S)
        return False
    if not observed.accepted:
        draft.act(TryRayJob(manifest))
        draft.look_again(0.05)
    return observed.accepted


def wanted_restart(draft: Draft) -> str:
    """The value of the annotation that asks for a restart and was not acted on yet; else empty."""
    value = draft.observed.request(names.ANNOTATION_RESTART)
    return value if value != draft.requests.restart else ""


def note_restart(draft: Draft) -> None:
    """What begins now also answers a restart that was asked for."""
    value = wanted_restart(draft)
    if value:
        draft.set(requests=draft.requests.model_copy(update={"restart": value}))


def begin_stopping(draft: Draft, reason: str, message: str) -> None:
    """From here on the attempt ends, whatever becomes of the wish."""
    draft.change_attempt(stopping_at=draft.now, reason=reason)
    if reason == "RestartRequested":
        note_restart(draft)
    if reason in ("Suspended", "BudgetExhausted"):
        draft.set_condition("Suspended", False, "Checkpointing", f"{message}: waiting for a last checkpoint")
    else:
        draft.event(reason, message)
    apply_config(draft)
    go_on_stopping(draft, draft.current)


def go_on_stopping(draft: Draft, attempt: Attempt) -> None:
    """Waits for the last checkpoint (not for ever, and not without a head), then deletes the RayJob."""
    observed, found = draft.observed, draft.observed.ray_job
    assert found is not None
    waited_s = draft.now_s - (to_seconds(attempt.stopping_at) or draft.now_s)
    can_save = (
        observed.report is not None
        and observed.report.phase in _CAN_SAVE
        and any(map(is_alive, observed.pods_of(attempt.number, names.HEAD)))
    )
    answered = checkpoint_answered(observed, stop_token(attempt))
    if can_save and not answered and waited_s < draft.times.checkpoint_request_s:
        draft.look_again(min(1.0, draft.times.poll_s))
        return
    draft.delete_ray_job(found)
    draft.look_again(2.0)
