"""What to do about a job: one pure function from what is observed to a decision.

    finished?            clean up, and delete the job when its time to live is over
    an open attempt      create its RayJob; watch it; end it in order (suspend, restart, new pods) or judge its end
    no open attempt      begin one, unless suspended, backing off, or waiting for the last one's pods to go

All memory is in the RLJob's status, so that an operator that was restarted goes on where the last one stood. A decision
goes as far as it can: made again of the same world it brings nothing new.
"""

from __future__ import annotations

from rlcore.api.quantity import parse_duration
from rlcore.api.status import Attempt
from rljob_operator import names
from rljob_operator.actions import ApplyClaim, CreateRayJob, DeleteJob
from rljob_operator.cost import update_cost
from rljob_operator.draft import Decision, Draft
from rljob_operator.endings import (
    close,
    ended,
    fail,
    finish,
    has_new_goal,
    is_finished,
    note_final,
    refused_by_kuberay,
    settle,
    succeed,
)
from rljob_operator.failures import Failure
from rljob_operator.history import record_losses
from rljob_operator.observed import Manifest, Observed
from rljob_operator.provision import claim, in_terms_of, ray_job
from rljob_operator.run_config import apply_config
from rljob_operator.running import is_too_late, start_phase, watch
from rljob_operator.settings import Settings
from rljob_operator.spot import moved_pools
from rljob_operator.stopping import (
    LOOK_AT_INVALID_S,
    begin_stopping,
    go_on_stopping,
    note_restart,
    suspended_by,
    wanted_restart,
    wish_to_end,
)
from rljob_operator.summary import note_training, summarize
from rljob_operator.timestamps import to_seconds
from rljob_operator.waiting import why_nothing_is_made

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
    if is_finished(draft):
        _after_the_end(draft)
    elif observed.job is None:
        _invalid(draft)
    else:
        _go_on(draft)
    return draft.decision()


def _go_on(draft: Draft) -> None:
    if draft.observed.problem:
        draft.refuse("InvalidManifest", f"{draft.observed.problem}; what runs keeps to the manifest before")
    record_losses(draft)
    update_cost(draft)
    note_training(draft)
    note_final(draft)
    if not draft.observed.kuberay:
        _without_kuberay(draft)
    elif not _is_too_late(draft):
        if draft.open_attempt is not None:
            _in_attempt(draft)
        if draft.open_attempt is None and not is_finished(draft):
            if draft.observed.problem:
                _invalid(draft)
            else:
                _between_attempts(draft)
    if not draft.invalid and not draft.observed.rejected:
        draft.set_condition("Valid", True, "Valid", "the manifest is valid", quiet=True)
    summarize(draft)


def _is_too_late(draft: Draft) -> bool:
    """Whether activeDeadline is over; a driver that has succeeded was in time."""
    started, deadline = to_seconds(draft.get("started_at")), draft.job.spec.active_deadline
    attempt = draft.open_attempt
    if started is None or deadline is None or (attempt is not None and attempt.reason == "Succeeded"):
        return False
    left = started + parse_duration(deadline) - draft.now_s
    if left > 0:
        draft.look_again(left)
        return False
    fail(draft, Failure("ActiveDeadlineExceeded", True, True, f"activeDeadline {deadline} is over"))
    return True


# no attempt is under way --------------------


def _between_attempts(draft: Draft) -> None:
    why = suspended_by(draft)
    if why is not None:
        draft.set(phase="Suspended")
        draft.set_condition("Suspended", True, *why)
        draft.set_condition("Provisioned", False, why[0], "no pods are wanted", quiet=True)
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
    name = names.ray_job_name(draft.observed.name, number)
    draft.add_attempt(Attempt(number=number, ray_job=name, started_at=draft.now))
    if draft.get("started_at") is None:
        draft.set(started_at=draft.now)
    draft.set(ray_job="", ray_cluster="", dashboard_url="", phase=start_phase(draft))
    note_restart(draft)
    draft.set_condition("Provisioned", False, "Creating", f"attempt {number} begins")
    _create(draft)


def _is_due(draft: Draft, last: Attempt) -> bool:
    """Whether the next attempt may begin: back-off is over, the last one's RayJob is gone."""
    ended_s = to_seconds(last.ended_at) or 0.0
    anything_left = _delete_ray_jobs(draft)
    if last.counted:
        policy = draft.job.spec.restart_policy
        wait_s = min(policy.max_backoff_s, policy.backoff_s * 2 ** max(0, (draft.get("restarts") or 1) - 1))
        left = ended_s + wait_s - draft.now_s
        if left > 0:
            draft.set(phase="Recovering")
            draft.look_again(left)
            return False
    if anything_left and draft.now_s < ended_s + LAST_PODS_S:
        draft.look_again(2.0)
        return False
    return True


def _delete_ray_jobs(draft: Draft) -> bool:
    """Deletes what is left of ended attempts; whether there is anything left."""
    observed = draft.observed
    left = [*observed.old_ray_jobs, *([observed.ray_job] if observed.ray_job else [])]
    for found in left:
        draft.delete_ray_job(found)
    return bool(left)


# an attempt is under way --------------------


def _in_attempt(draft: Draft) -> None:
    attempt, found = draft.current, draft.observed.ray_job
    for old in draft.observed.old_ray_jobs:
        draft.delete_ray_job(old)
    if found is None:
        _without_ray_job(draft, attempt)
        return
    _note_ray_job(draft, found)
    apply_config(draft)
    if attempt.stopping_at is None and refused_by_kuberay(found):
        _refused(draft, found)
    elif ended(draft, attempt):
        return
    elif attempt.reason == "Succeeded":
        finish(draft)
    elif found["metadata"].get("deletionTimestamp"):
        draft.look_again(5.0)  # what follows is seen when it is gone
    elif attempt.stopping_at is not None:
        go_on_stopping(draft, attempt)
    elif (why := wish_to_end(draft)) is not None:
        begin_stopping(draft, *why)
    else:
        watch(draft, attempt)


def _without_ray_job(draft: Draft, attempt: Attempt) -> None:
    """It was not created yet, or it is gone: deleted by us, or by somebody else."""
    name = names.ray_job_name(draft.observed.name, attempt.number)
    if attempt.reason == "Succeeded":
        succeed(draft)
    elif attempt.stopping_at is not None:
        settle(draft, attempt.reason)
    elif draft.old.ray_job == name:
        close(draft, Failure("RayJobDeleted", False, False, f"RayJob {name} was deleted by somebody else"))
    elif (why := wish_to_end(draft)) is not None:
        settle(draft, why[0])
    else:
        _create(draft)


def _create(draft: Draft) -> None:
    """Makes the RayJob. What nobody will take waits for a better manifest, what nobody takes now is tried again."""
    observed = draft.observed
    problem = observed.rejected
    try:
        manifest = ray_job(draft.job, draft.current.number, draft.settings, unavailable=moved_pools(draft))
    except ValueError as error:
        problem, reason = str(error), "InvalidPodTemplate"
    else:
        reason = observed.rejected_reason
    if problem:
        draft.set(phase="Pending")
        draft.refuse(reason, in_terms_of(draft.job, problem))
        draft.set_condition("Provisioned", False, reason, "no pods are made of an invalid manifest", quiet=True)
        draft.look_again(LOOK_AT_INVALID_S)
        if not observed.try_again or problem != observed.rejected:
            return
    if observed.forbidden:
        wait = why_nothing_is_made(observed.forbidden)
        draft.set_condition("Provisioned", False, wait.reason, wait.message, warn=True)
        if is_too_late(draft, draft.current, wait):
            return
    wanted_claim = claim(draft.job, draft.settings)
    if wanted_claim is not None:
        draft.act(ApplyClaim(wanted_claim))
    apply_config(draft)
    draft.act(CreateRayJob(manifest))
    draft.look_again(5.0)


def _refused(draft: Draft, found: Manifest) -> None:
    """KubeRay makes nothing of the RayJob: it stands there until the manifest is mended, or the job is suspended."""
    why = wish_to_end(draft)
    if why is not None:
        settle(draft, why[0])  # nothing runs that could be stopped in order
        return
    said = str((found.get("status") or {}).get("message") or "it does not say why")
    draft.set(phase="Pending")
    draft.refuse("RayJobRejected", f"KubeRay refuses the RayJob: {in_terms_of(draft.job, said)}")
    draft.set_condition("Provisioned", False, "RayJobRejected", "KubeRay makes no pods of it", quiet=True)


def _note_ray_job(draft: Draft, found: Manifest) -> None:
    status = found.get("status") or {}
    draft.set(
        ray_job=found["metadata"]["name"],
        ray_cluster=str(status.get("rayClusterName") or ""),
        dashboard_url=str(status.get("dashboardURL") or ""),
    )


# other ends --------------------


def _after_the_end(draft: Draft) -> None:
    job = draft.observed.job
    if draft.holds("Failed") and wanted_restart(draft) and job is not None:
        _begin_again(draft, "RestartRequested", f"annotation {names.ANNOTATION_RESTART} has a new value")
        return
    if draft.holds("Complete") and job is not None and has_new_goal(draft):
        _begin_again(draft, "NewGoal", "spec.stop has changed since the job succeeded: training goes on")
        return
    _delete_ray_jobs(draft)
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


def _begin_again(draft: Draft, reason: str, message: str) -> None:
    """A person wants a finished job to go on: all counts and deadlines start anew, the checkpoints stay."""
    for kind in ("Failed", "Complete"):
        draft.drop_condition(kind)
    draft.set(finished_at=None, started_at=None, restarts=0)
    note_restart(draft)
    draft.event(reason, message)
    _go_on(draft)


def _invalid(draft: Draft) -> None:
    draft.refuse("InvalidManifest", draft.observed.problem)
    if draft.open_attempt is None:
        draft.set(phase="Pending")


def _without_kuberay(draft: Draft) -> None:
    if draft.open_attempt is None:
        draft.set(phase="Pending")
    message = "KubeRay is not installed: helm install kuberay-operator kuberay-operator "
    message += "--repo https://ray-project.github.io/kuberay-helm/ (1.5 or newer)"
    draft.set_condition("Provisioned", False, "KubeRayMissing", message, warn=True)
    draft.look_again(10.0)
