"""How attempts and jobs end: succeeded, settled (on request), failed and to be tried again, failed for good."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from rlcore.api.status import Attempt
from rlcore.api.status import Failure as FailureStatus
from rljob_operator.draft import Draft, clip
from rljob_operator.failures import LOG_TAIL_CHARACTERS, Failure, judge
from rljob_operator.history import newest_head_loss
from rljob_operator.observed import Manifest

IN_ORDER = ("Succeeded", "Suspended", "BudgetExhausted", "SpecChanged", "RestartRequested")
"""Reasons of attempts that did not fail."""

LAST_WORDS_S = 120.0
"""Between a driver's success and the RayJob's: the driver waits for a minute to be heard, then KubeRay has to look."""

HEAD_LOST_BEFORE_S = 600.0
"""A RayJob that ends so soon after its head was lost ended because of it; KubeRay waits five minutes for an answer."""


def note_final(draft: Draft) -> None:
    """Writes down how the driver says that it ended, before it is told that this was observed.

    From a success on nothing starts it again, whatever becomes of the RayJob before KubeRay saw its end.
    """
    attempt, report = draft.open_attempt, draft.observed.report
    if attempt is None or attempt.reason == "Succeeded" or report is None:
        return
    final = report.final
    if final is not None and final.get("phase") == "Succeeded":
        draft.change_attempt(reason="Succeeded")
        draft.set_condition("Training", False, "Finished", "the driver has succeeded", quiet=True)
    elif attempt.stopping_at is not None:
        return  # its reason is another one
    elif final is None:
        if attempt.reason:
            draft.change_attempt(reason="")  # a new driver trains: KubeRay brought a lost head back
    elif not attempt.reason:
        failure = judge({}, final, None, draft.job.spec.restart_policy.permanent_exit_codes)
        draft.change_attempt(reason=failure.failure_class)
        _note_failure(draft, failure, str(final.get("message") or ""), counted=failure.counted)


def ended(draft: Draft, attempt: Attempt) -> bool:
    """Whether the attempt's RayJob has ended; if so the end is judged and written down."""
    found = draft.observed.ray_job
    assert found is not None
    status = found.get("status") or {}
    if status.get("jobDeploymentStatus") not in ("Complete", "Failed", "ValidationFailed"):
        return False
    if status.get("jobStatus") == "SUCCEEDED" or attempt.reason == "Succeeded":
        succeed(draft)
    elif attempt.stopping_at is not None:
        settle(draft, attempt.reason)  # the driver ended while its pods were to be given back anyway
    else:
        codes = draft.job.spec.restart_policy.permanent_exit_codes
        close(draft, judge(found, _final(draft, attempt), newest_head_loss(draft, HEAD_LOST_BEFORE_S), codes))
    return True


def refused_by_kuberay(ray_job: Manifest) -> bool:
    """Whether KubeRay found something wrong with a RayJob, and makes nothing of it."""
    return (ray_job.get("status") or {}).get("jobDeploymentStatus") == "ValidationFailed"


def _final(draft: Draft, attempt: Attempt) -> Mapping[str, Any] | None:
    """The driver's word on its end: its own, or what was written down of it."""
    report, written = draft.observed.report, draft.get("last_failure")
    if report is not None and report.final is not None:
        return report.final
    if not attempt.reason or written is None:
        return None
    return {
        "phase": "Failed",
        "failure_class": written.failure_class,
        "exit_code": written.exit_code,
        "message": written.message,
    }


def finish(draft: Draft) -> None:
    """The driver has succeeded, and the RayJob is about to; that is not waited for for ever."""
    left = LAST_WORDS_S - draft.since_s("Training")
    if left > 0:
        draft.look_again(left)
    else:
        succeed(draft)


def succeed(draft: Draft) -> None:
    """The job is complete."""
    _end_attempt(draft, "Succeeded", counted=False)
    training = draft.get("training")
    timesteps = f" after {training.timesteps:,} timesteps" if training and training.timesteps else ""
    draft.set(phase="Succeeded", finished_at=draft.now, reached_goal=goal(draft))
    draft.set_condition("Training", False, "Finished", f"training is over{timesteps}", quiet=True)
    draft.set_condition("Provisioned", False, "Finished", "pods were given back", quiet=True)
    draft.set_condition("Complete", True, "Succeeded", _why_complete(draft) or f"a stop condition holds{timesteps}")
    draft.look_again(1.0)


def goal(draft: Draft) -> str:
    """Digest of the conditions that end training."""
    stop = draft.job.spec.stop.model_dump(mode="json", exclude_none=True)
    return hashlib.sha256(json.dumps(stop, sort_keys=True).encode()).hexdigest()[:16]


def has_new_goal(draft: Draft) -> bool:
    """Whether a job that is complete would not be by its manifest as it is now, as far as the status tells."""
    reached, training, stop = draft.get("reached_goal"), draft.get("training"), draft.job.spec.stop
    if not reached or reached == goal(draft):
        return False
    reward, timesteps = (training.episode_reward_mean, training.timesteps) if training else (None, None)
    return not (
        (stop.timesteps is not None and (timesteps or 0) >= stop.timesteps)
        or (stop.episode_reward is not None and reward is not None and reward >= stop.episode_reward)
    )


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
    counted = failure.counted or not checkpoint_advanced(draft)
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


def fail(draft: Draft, failure: Failure) -> None:
    """The job has failed for good."""
    if draft.open_attempt is not None:
        _note_failure(draft, failure, failure.message, counted=True)
        _end_attempt(draft, failure.failure_class, counted=True)
    tail = _last_lines(failure.log_tail)
    text = f"{failure.message}\n{tail}" if tail and tail not in failure.message else failure.message
    draft.set(phase="Failed", finished_at=draft.now)
    draft.set_condition("Training", False, failure.failure_class, failure.message, quiet=True)
    draft.set_condition("Provisioned", False, failure.failure_class, "pods were given back", quiet=True)
    draft.set_condition("Complete", False, failure.failure_class, failure.message, quiet=True)
    draft.set_condition("Failed", True, failure.failure_class, text, warn=True)
    draft.look_again(1.0)


def is_finished(draft: Draft) -> bool:
    """Whether the job has succeeded or failed."""
    return draft.holds("Complete") or draft.holds("Failed")


def checkpoint_advanced(draft: Draft) -> bool:
    """Whether a checkpoint was written since the last restart; the first restart has none before it.

    An end on request is no restart: what follows a suspension is not held up to it.
    """
    restarted = [attempt for attempt in draft.attempts[:-1] if attempt.reason not in IN_ORDER]
    return not restarted or _checkpoint_timesteps(draft) > (restarted[-1].timesteps or 0)


def _checkpoint_timesteps(draft: Draft) -> int:
    checkpoint = draft.get("checkpoint")
    return (checkpoint.timesteps or 0) if checkpoint else 0


def _end_attempt(draft: Draft, reason: str, *, counted: bool) -> None:
    if draft.open_attempt is not None:
        timesteps = _checkpoint_timesteps(draft)
        draft.change_attempt(ended_at=draft.now, reason=reason, counted=counted, timesteps=timesteps)
    if draft.observed.ray_job is not None:
        draft.delete_ray_job(draft.observed.ray_job)


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
