"""How attempts and jobs end: succeeded, settled (on request), failed and to be tried again, failed for good."""

from __future__ import annotations

from typing import Any

from rlcore.api.status import Attempt
from rlcore.api.status import Failure as FailureStatus
from rljob_operator.actions import DeleteRayJob
from rljob_operator.draft import Draft, clip
from rljob_operator.failures import Failure, judge
from rljob_operator.history import losses_of
from rljob_operator.observed import Manifest

LOG_TAIL_CHARACTERS = 8_000


def ended(draft: Draft, attempt: Attempt) -> bool:
    """Whether the attempt's RayJob has ended; if so the end is judged and written down."""
    observed = draft.observed
    report = observed.report
    final = report.final if report is not None else None
    if final is not None and final.get("phase") == "Succeeded" and attempt.reason != "Succeeded":
        # From here on nothing starts it again, whatever becomes of the RayJob before KubeRay saw its end.
        draft.change_attempt(reason="Succeeded")
        attempt = draft.attempts[-1]
    status: dict[str, Any] = dict((observed.ray_job or {}).get("status") or {})
    deployment = status.get("jobDeploymentStatus")
    if deployment not in ("Complete", "Failed", "ValidationFailed"):
        return False
    if status.get("jobStatus") == "SUCCEEDED" or attempt.reason == "Succeeded":
        succeed(draft)
        return True
    if attempt.stopping_at is not None:
        settle(draft, attempt.reason)  # the driver ended while its pods were to be given back anyway
        return True
    assert observed.ray_job is not None
    codes = draft.job.spec.restart_policy.permanent_exit_codes
    close(draft, judge(observed.ray_job, report, losses_of(draft, attempt.number), codes))
    return True


def succeed(draft: Draft) -> None:
    """The job is complete."""
    _end_attempt(draft, "Succeeded", counted=False)
    training = draft.get("training")
    timesteps = f" after {training.timesteps:,} timesteps" if training and training.timesteps else ""
    draft.set(phase="Succeeded", finished_at=draft.now)
    draft.set_condition("Training", False, "Finished", f"training is over{timesteps}", quiet=True)
    draft.set_condition("Complete", True, "Succeeded", _why_complete(draft) or f"a stop condition holds{timesteps}")
    draft.look_again(1.0)


def _why_complete(draft: Draft) -> str:
    report = draft.observed.report
    final = (report.final if report else None) or {}
    return str(final.get("message") or "")


def settle(draft: Draft, reason: str) -> None:
    """An attempt that ended because it was asked to: free of charge."""
    _end_attempt(draft, reason, counted=False)
    draft.set_condition("Training", False, reason, "training was stopped in order", quiet=True)
    draft.set_condition("Provisioned", False, reason, "pods were given back", quiet=True)


def close(draft: Draft, failure: Failure) -> None:
    """An attempt failed: another one follows, after a back-off if it counts; or the job has failed."""
    advanced = checkpoint_advanced(draft)
    counted = failure.counted or not advanced
    message = failure.message
    if counted and not failure.counted:
        message += "; it counts, since no checkpoint was written since the last restart"
    _note_failure(draft, failure, message, counted=counted)
    _end_attempt(draft, failure.failure_class, counted=counted)
    restarts, allowed = draft.get("restarts") or 0, draft.job.spec.restart_policy.max_restarts
    if failure.permanent:
        fail(draft, failure)
        return
    if counted and restarts >= allowed:
        text = f"{message} (restart {restarts} of {allowed} was the last)" if allowed else message
        fail(draft, Failure(failure.failure_class, True, True, text, failure.exit_code, log_tail=failure.log_tail))
        return
    draft.set(restarts=restarts + counted, phase="Recovering")
    draft.set_condition("Training", False, failure.failure_class, message, warn=True)
    draft.set_condition(
        "Provisioned", False, "Restarting", "the next attempt goes on from the newest checkpoint", quiet=True
    )
    draft.look_again(1.0)


def fail(draft: Draft, failure: Failure) -> None:
    """The job has failed for good."""
    if draft.open_attempt is not None:
        _note_failure(draft, failure, failure.message, counted=True)
        _end_attempt(draft, failure.failure_class, counted=True)
    tail = _last_lines(failure.log_tail)
    text = f"{failure.message}\n{tail}" if tail and tail not in failure.message else failure.message
    draft.set(phase="Failed", finished_at=draft.now)
    draft.set_condition("Training", False, failure.failure_class, failure.message, quiet=True)
    draft.set_condition("Complete", False, failure.failure_class, failure.message, quiet=True)
    draft.set_condition("Failed", True, failure.failure_class, text, warn=True)
    draft.look_again(1.0)


def checkpoint_advanced(draft: Draft) -> bool:
    """Whether a checkpoint was written since the last restart; the first restart has none before it."""
    ended_before = [attempt for attempt in draft.attempts[:-1] if attempt.ended_at is not None]
    if not ended_before:
        return True
    before = ended_before[-1].timesteps or 0
    return _checkpoint_timesteps(draft) > before


def _checkpoint_timesteps(draft: Draft) -> int:
    checkpoint = draft.get("checkpoint")
    return (checkpoint.timesteps or 0) if checkpoint else 0


def _end_attempt(draft: Draft, reason: str, *, counted: bool) -> None:
    if draft.open_attempt is not None:
        timesteps = _checkpoint_timesteps(draft)
        draft.change_attempt(ended_at=draft.now, reason=reason, counted=counted, timesteps=timesteps)
    found: Manifest | None = draft.observed.ray_job
    if found is not None and not found["metadata"].get("deletionTimestamp"):
        draft.act(DeleteRayJob(found["metadata"]["name"], found["metadata"].get("uid", "")))


def _note_failure(draft: Draft, failure: Failure, message: str, *, counted: bool) -> None:
    draft.set(
        last_failure=FailureStatus.model_validate(
            {
                "class": failure.failure_class,
                "counted": counted,
                "pod": failure.pod,
                "node": failure.node,
                "exitCode": failure.exit_code,
                "message": clip(message),
                "logTail": failure.log_tail[-LOG_TAIL_CHARACTERS:],
                "time": draft.now,
            }
        )
    )


def _last_lines(text: str, count: int = 5) -> str:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return clip("\n".join(lines[-count:]), 600)
