"""The failure table: what ended an attempt, whether it counts, and whether a restart can mend it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rljob_operator.losses import CRASHED, DISRUPTIONS, KILLED, OUT_OF_MEMORY, TERMINATED
from rljob_operator.observed import LostPod, Manifest

LOG_TAIL_CHARACTERS = 8_000
"""Of the driver's log in the status; etcd keeps every job's."""

CLASS_CHARACTERS = 64

PERMANENT_EXIT_CODES = frozenset({2})
FENCED_EXIT_CODE = 75
EVALUATORS_LOST = "EvaluatorsLost"
_EXIT_CODE = re.compile(r"exit code (-?\d+)")
_OUT_OF_MEMORY = re.compile(r"OutOfMemory|out of memory|OOM-?killed|memory pressure", re.IGNORECASE)

OUT_OF_MEMORY_HINT = (
    "raise the memory of the pod (head, learner or pool resources), or lower envsPerEvaluator or trainBatchSize"
)


@dataclass(frozen=True)
class Failure:
    """A judged failure.

    Attributes:
        failure_class: one word, stable.
        counted: against restartPolicy.maxRestarts. A class that is not counted is free only while checkpoints advance.
        permanent: no restart can mend it.
        message: what happened and what to do, a sentence.
        exit_code: of the driver or the container, where there was one.
        pod: where it was seen.
        node: that pod's.
        log_tail: last lines of the driver's log.
    """

    failure_class: str
    counted: bool
    permanent: bool
    message: str
    exit_code: int | None = None
    pod: str = ""
    node: str = ""
    log_tail: str = ""


def judge(
    ray_job: Manifest,
    final: Mapping[str, Any] | None,
    head_loss: LostPod | None,
    permanent_codes: Collection[int],
) -> Failure:
    """Why a RayJob that has not succeeded ended.

    Args:
        ray_job: with jobDeploymentStatus Failed, ValidationFailed, or Complete without SUCCEEDED.
        final: how the driver said that it ended, None where it said nothing.
        head_loss: the head's, where it was lost just before.
        permanent_codes: exit codes that the manifest calls permanent.
    """
    status = ray_job.get("status") or {}
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if status.get("jobDeploymentStatus") == "ValidationFailed" or reason == "ValidationFailed":
        return Failure("RayJobRejected", True, True, f"KubeRay refused the RayJob: {message}")
    if final is not None and final.get("phase") == "Failed":
        said, failure_class = str(final.get("message") or ""), str(final.get("failure_class") or "")[:CLASS_CHARACTERS]
        return _application(_whole(final.get("exit_code")), said, failure_class, message, permanent_codes)
    code = _exit_code(message)
    signalled = code is None or code == KILLED or code in TERMINATED
    if head_loss is not None and head_loss.failure_class in DISRUPTIONS and signalled:
        return head_lost(head_loss)  # a node that goes takes the driver first
    if reason == "AppFailed" or code is not None:
        return _application(code, "", "", message, permanent_codes)
    if head_loss is not None:
        return head_lost(head_loss)
    if status.get("jobStatus") == "STOPPED":
        return Failure("Stopped", False, False, "the Ray job was stopped from outside")
    if reason == "JobStatusCheckTimeoutExceeded":
        return Failure("HeadUnreachable", True, False, f"KubeRay lost sight of the head: {message}")
    text = first_line(message) or "the RayJob failed and says not why"
    return Failure(reason[:CLASS_CHARACTERS] or "RayJobFailed", True, False, text)


def _application(
    code: int | None, said: str, failure_class: str, message: str, permanent_codes: Collection[int]
) -> Failure:
    tail = message[-LOG_TAIL_CHARACTERS:]
    last = said or last_line(message) or "the driver failed"
    if failure_class == OUT_OF_MEMORY or code == KILLED or (not said and _OUT_OF_MEMORY.search(tail)):
        return Failure(OUT_OF_MEMORY, True, False, f"{last}; {OUT_OF_MEMORY_HINT}", code, log_tail=tail)
    if code == FENCED_EXIT_CODE:
        return Failure("Superseded", False, False, "a newer driver owns the checkpoints", code, log_tail=tail)
    if code in TERMINATED:
        return Failure("Terminated", False, False, "the driver was asked to stop from outside", code, log_tail=tail)
    if failure_class == EVALUATORS_LOST:
        return Failure(EVALUATORS_LOST, False, False, last, code, log_tail=tail)  # preempted, and no new nodes
    if code in PERMANENT_EXIT_CODES:
        return Failure(failure_class or "ConfigInvalid", True, True, last, code, log_tail=tail)
    if code in permanent_codes:
        text = f"{last} (exit code {code} is one of restartPolicy.permanentExitCodes)"
        return Failure("PermanentExitCode", True, True, text, code, log_tail=tail)
    return Failure(failure_class or "ApplicationFailed", True, False, last, code, log_tail=tail)


def head_lost(loss: LostPod, times: int = 1) -> Failure:
    """The head pod was lost (for the last time of so many since the newest checkpoint), and the attempt with it."""
    hint = f"; {OUT_OF_MEMORY_HINT}" if loss.failure_class == OUT_OF_MEMORY else ""
    often = f" {times} times without a new checkpoint in between" if times > 1 else ""
    return Failure(
        loss.failure_class if loss.failure_class != CRASHED else "HeadCrashed",
        counted=loss.failure_class not in DISRUPTIONS,
        permanent=False,
        message=f"the head pod was lost{often}: {loss.message}{hint}",
        exit_code=loss.exit_code,
        pod=loss.name,
        node=loss.node,
    )


def _exit_code(message: str) -> int | None:
    """The driver's, as Ray tells it: -15 is what a shell calls 128 + 15."""
    found = _EXIT_CODE.search(message)
    if found is None:
        return None
    code = int(found.group(1))
    return 128 - code if code < 0 else code


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def first_line(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:1000]


def last_line(text: str) -> str:
    """The last line that says something: of a traceback the one with the error."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")[:1000]
