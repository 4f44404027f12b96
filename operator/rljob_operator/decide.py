"""What to do about a job: one pure function from what is observed to a decision.

    finished?            clean up, and delete the job when its time to live is over
    no open attempt      begin one, unless suspended, backing off, or waiting for the last one's pods to go
    an open attempt      create its RayJob; watch it; end it in order (suspend, restart, new pods) or judge its end

All memory is in the RLJob's status, so that an operator that was restarted goes on where the last one stood.
"""

from __future__ import annotations

from rlcore.api.quantity import parse_duration
from rlcore.api.status import Attempt
from rljob_operator import names
from rljob_operator.actions import ApplyClaim, CreateRayJob, DeleteJob, DeleteRayJob, TouchPod
from rljob_operator.cost import update_cost
from rljob_operator.draft import Decision, Draft
from rljob_operator.endings import close, ended, fail, settle, succeed
from rljob_operator.failures import Failure
from rljob_operator.history import record_losses
from rljob_operator.observed import Manifest, Observed, is_alive
from rljob_operator.provision import claim, ray_job, spec_hash
from rljob_operator.run_config import apply_config, checkpoint_answered, stop_token
from rljob_operator.running import start_phase, watch
from rljob_operator.settings import Settings
from rljob_operator.spot import moved_pools
from rljob_operator.summary import note_training, summarize
from rljob_operator.timestamps import to_seconds

LAST_PODS_S = 120.0
"""How long a new attempt waits for the RayJob of the last one to be gone."""


def decide(observed: Observed, settings: Settings) -> Decision:
    """The decision for one job."""
    draft = Draft(observed, settings)
    if observed.raw["metadata"].get("deletionTimestamp"):
        return draft.decision()  # what it owns goes with it
    if observed.annotations.get(names.ANNOTATION_PAUSED) == "true":
        draft.set_condition("Paused", True, "PausedByAnnotation", f"remove {names.ANNOTATION_PAUSED} to go on")
        return draft.decision()
    if draft.condition("Paused") is not None:
        draft.drop_condition("Paused")
        draft.event("Unpaused", "reconciliation goes on")
    draft.set(observed_generation=observed.generation)
    record_losses(draft)
    if draft.holds("Complete") or draft.holds("Failed"):
        _after_the_end(draft)
    elif observed.job is None:
        _invalid(draft)
    elif not observed.kuberay:
        _without_kuberay(draft)
    else:
        draft.set_condition("Valid", True, "Valid", "the manifest is valid", quiet=True)
        _go_on(draft)
    return draft.decision()


def _go_on(draft: Draft) -> None:
    job = draft.job
    update_cost(draft)
    started = to_seconds(draft.get("started_at"))
    deadline = job.spec.active_deadline
    if started is not None and deadline is not None:
        left = started + parse_duration(deadline) - draft.now_s
        if left <= 0:
            fail(draft, Failure("ActiveDeadlineExceeded", True, True, f"activeDeadline {deadline} is over"))
            return
        draft.look_again(left)
    if draft.open_attempt is None:
        _between_attempts(draft)
    else:
        _in_attempt(draft)
    summarize(draft)


# no attempt is under way --------------------


def _between_attempts(draft: Draft) -> None:
    why = suspended_by(draft)
    if why is not None:
        draft.set(phase="Suspended")
        draft.set_condition("Suspended", True, *why)
        _delete_ray_jobs(draft)
        return
    last = draft.attempt
    if last is not None and not _is_due(draft, last):
        return
    number = last.number + 1 if last is not None else 1
    if number > names.MAX_ATTEMPTS:
        fail(draft, Failure("AttemptsExhausted", True, True, f"{names.MAX_ATTEMPTS} attempts were made"))
        return
    if draft.condition("Suspended") is not None:
        draft.set_condition("Suspended", False, "Resumed", "goes on from the newest checkpoint")
    draft.add_attempt(Attempt(number=number, started_at=draft.now))
    if draft.get("started_at") is None:
        draft.set(started_at=draft.now)
    draft.set(ray_job="", ray_cluster="", dashboard_url="", phase=start_phase(draft.attempts))
    draft.set(requests=draft.requests.model_copy(update={"restart": _wanted_restart(draft) or draft.requests.restart}))
    draft.set_condition("Provisioned", False, "Creating", f"attempt {number} begins")
    _create(draft)


def _is_due(draft: Draft, last: Attempt) -> bool:
    """Whether the next attempt may begin: back-off is over, the last one's RayJob is gone."""
    ended = to_seconds(last.ended_at) or 0.0
    if last.counted:
        policy = draft.job.spec.restart_policy
        wait = min(policy.max_backoff_s, policy.backoff_s * 2 ** max(0, (draft.get("restarts") or 1) - 1))
        left = ended + wait - draft.now_s
        if left > 0:
            draft.set(phase="Recovering")
            draft.look_again(left)
            _delete_ray_jobs(draft)
            return False
    if _delete_ray_jobs(draft) and draft.now_s < ended + LAST_PODS_S:
        draft.look_again(2.0)
        return False
    return True


def _delete_ray_jobs(draft: Draft) -> bool:
    """Deletes what is left of ended attempts; whether there is anything left."""
    observed = draft.observed
    left = [*observed.old_ray_jobs, *([observed.ray_job] if observed.ray_job else [])]
    for found in left:
        _delete(draft, found)
    return bool(left)


def _delete(draft: Draft, found: Manifest) -> None:
    if not found["metadata"].get("deletionTimestamp"):
        draft.act(DeleteRayJob(found["metadata"]["name"], found["metadata"].get("uid", "")))


# an attempt is under way --------------------


def _in_attempt(draft: Draft) -> None:
    attempt, observed = draft.current, draft.observed
    note_training(draft)
    for old in observed.old_ray_jobs:
        _delete(draft, old)
    if attempt.stopping_at is not None:
        _stopping(draft, attempt)
        return
    why = wish_to_end(draft)
    if observed.ray_job is None:
        if draft.old.ray_job == names.ray_job_name(observed.name, attempt.number):
            _vanished(draft, attempt)
        elif why is not None:
            settle(draft, why[0])
        else:
            _create(draft)
        return
    _note_ray_job(draft, observed.ray_job)
    apply_config(draft)
    if ended(draft, attempt):
        return
    if observed.ray_job["metadata"].get("deletionTimestamp"):
        draft.look_again(5.0)  # somebody deletes it: what follows is seen when it is gone
    elif why is not None:
        _begin_stopping(draft, *why)
    else:
        watch(draft, attempt)


def _create(draft: Draft) -> None:
    observed, job = draft.observed, draft.job
    if observed.rejected:
        fail(draft, Failure("RayJobRejected", True, True, f"the API server refused the RayJob: {observed.rejected}"))
        draft.set_condition("Valid", False, "RayJobRejected", observed.rejected, warn=True)
        return
    unavailable = moved_pools(draft)
    try:
        manifest = ray_job(job, draft.current.number, draft.settings, unavailable=unavailable)
    except ValueError as error:
        draft.set_condition("Valid", False, "InvalidPodTemplate", str(error), warn=True)
        fail(draft, Failure("InvalidPodTemplate", True, True, str(error)))
        return
    wanted_claim = claim(job, draft.settings)
    if wanted_claim is not None:
        draft.act(ApplyClaim(wanted_claim))
    apply_config(draft)
    draft.act(CreateRayJob(manifest))
    draft.look_again(5.0)


def _note_ray_job(draft: Draft, found: Manifest) -> None:
    status = found.get("status") or {}
    draft.set(
        ray_job=found["metadata"]["name"],
        ray_cluster=str(status.get("rayClusterName") or ""),
        dashboard_url=str(status.get("dashboardURL") or ""),
    )


def _vanished(draft: Draft, attempt: Attempt) -> None:
    """The RayJob was there and is gone, and we did not delete it."""
    if attempt.reason == "Succeeded":
        succeed(draft)
        return
    name = names.ray_job_name(draft.observed.name, attempt.number)
    close(draft, Failure("RayJobDeleted", False, False, f"RayJob {name} was deleted by somebody else"))


# an orderly end --------------------


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
    if _wanted_restart(draft):
        return "RestartRequested", f"annotation {names.ANNOTATION_RESTART} has a new value"
    if found is not None:
        made_from = (found["metadata"].get("annotations") or {}).get(names.ANNOTATION_SPEC_HASH)
        if made_from is not None and made_from != spec_hash(job):
            return "SpecChanged", "pods are made anew from the changed manifest, training goes on from a checkpoint"
    return None


def _wanted_restart(draft: Draft) -> str:
    value = draft.observed.annotations.get(names.ANNOTATION_RESTART, "")
    return value if value != draft.requests.restart else ""


def _begin_stopping(draft: Draft, reason: str, message: str) -> None:
    draft.change_attempt(stopping_at=draft.now, reason=reason)
    if reason == "RestartRequested":
        draft.set(requests=draft.requests.model_copy(update={"restart": _wanted_restart(draft)}))
    if reason in ("Suspended", "BudgetExhausted"):
        draft.set_condition("Suspended", False, "Checkpointing", f"{message}: waiting for a last checkpoint")
    else:
        draft.event(reason, message)
    _stopping(draft, draft.current)


def _stopping(draft: Draft, attempt: Attempt) -> None:
    """Asks for a checkpoint, waits for it (not for ever), then deletes the RayJob."""
    observed = draft.observed
    found = observed.ray_job
    if found is None:
        settle(draft, attempt.reason)
        if suspended_by(draft) is None:
            draft.look_again(0.1)
        else:
            _between_attempts(draft)
        return
    _note_ray_job(draft, found)
    apply_config(draft)
    if ended(draft, attempt):
        return
    waited = draft.now_s - (to_seconds(attempt.stopping_at) or draft.now_s)
    trains = observed.report is not None and observed.report.phase in ("Running", "Paused", "Recovering", "Stopping")
    answered = checkpoint_answered(observed, stop_token(attempt))
    if trains and not answered and waited < draft.times.checkpoint_request_s:
        for pod in observed.pods_of(attempt.number, names.HEAD):
            if is_alive(pod):
                draft.act(TouchPod(pod["metadata"]["name"]))
        draft.look_again(min(1.0, draft.times.poll_s))
        return
    _delete(draft, found)
    draft.look_again(2.0)


# other ends --------------------


def _after_the_end(draft: Draft) -> None:
    if draft.holds("Failed") and _wanted_restart(draft) and draft.observed.job is not None:
        for kind in ("Failed", "Complete"):
            draft.drop_condition(kind)
        draft.set(finished_at=None, restarts=0)
        draft.event("RestartRequested", f"annotation {names.ANNOTATION_RESTART} has a new value")
        _between_attempts(draft)
        return
    _delete_ray_jobs(draft)
    job = draft.observed.job
    finished = to_seconds(draft.get("finished_at"))
    if job is None or finished is None:
        return
    ttl = job.spec.ttl_after_finished if draft.holds("Complete") else job.spec.ttl_after_failed
    if ttl is None:
        return
    left = finished + parse_duration(ttl) - draft.now_s
    if left <= 0:
        draft.act(DeleteJob(str(draft.observed.raw["metadata"].get("uid", ""))))
    else:
        draft.look_again(left)


def _invalid(draft: Draft) -> None:
    draft.set_condition("Valid", False, "InvalidManifest", draft.observed.problem, warn=True)
    if draft.open_attempt is None:
        draft.set(phase="Pending")


def _without_kuberay(draft: Draft) -> None:
    if draft.open_attempt is None:
        draft.set(phase="Pending")
    message = "KubeRay is not installed: helm install kuberay-operator kuberay/kuberay-operator (1.5 or newer)"
    draft.set_condition("Provisioned", False, "KubeRayMissing", message, warn=True)
    draft.look_again(10.0)
