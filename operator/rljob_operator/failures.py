"""The failure table: what ended an attempt, whether it counts, and whether a restart can mend it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rljob_operator.losses import DISRUPTIONS, OUT_OF_MEMORY
from rljob_operator.observed import DriverReport, LostPod, Manifest

LOG_TAIL_CHARACTERS = 8_000
"""Of the driver's log in the status; etcd keeps every job's."""

PERMANENT_EXIT_CODES = frozenset({2})
FENCED_EXIT_CODE = 75
TERMINATED_EXIT_CODES = frozenset({130, 143})
"""128 + SIGINT or SIGTERM: somebody asked the driver to stop, and it saved a checkpoint."""
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
    report: DriverReport | None,
    losses: Sequence[LostPod],
    permanent_codes: Collection[int],
) -> Failure:
    """Why a RayJob that has not succeeded ended.

    Args:
        ray_job: with jobDeploymentStatus Failed, ValidationFailed, or Complete without SUCCEEDED.
        report: the driver's last.
        losses: pods lost during the attempt.
        permanent_codes: exit codes that the manifest calls permanent.
    """
    status = ray_job.get("status") or {}
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if status.get("jobDeploymentStatus") == "ValidationFailed" or reason == "ValidationFailed":
        return Failure("RayJobRejected", True, True, f"KubeRay refused the RayJob: {message}")
    final = (report.final if report else None) or {}
    code = final.get("exit_code", _exit_code(message))
    head = next((loss for loss in reversed(losses) if loss.role == "head"), None)
    if final.get("phase") == "Failed" or reason == "AppFailed" or code is not None:
        return _application(code, str(final.get("message") or ""), final.get("failure_class"), message, permanent_codes)
    if head is not None:
        return head_lost([head])
    if status.get("jobStatus") == "STOPPED":
        return Failure("Stopped", False, False, "the Ray job was stopped from outside")
    if reason == "JobStatusCheckTimeoutExceeded":
        return Failure("HeadUnreachable", True, False, f"KubeRay lost sight of the head: {message}")
    return Failure(reason or "RayJobFailed", True, False, first_line(message) or "the RayJob failed and says not why")


def _application(
    code: int | None, said: str, failure_class: str | None, message: str, permanent_codes: Collection[int]
) -> Failure:
    tail = message[-LOG_TAIL_CHARACTERS:]
    last = said or last_line(message) or "the driver failed"
    if failure_class == OUT_OF_MEMORY or code == 137 or (not said and _OUT_OF_MEMORY.search(tail)):
        return Failure(OUT_OF_MEMORY, True, False, f"{last}; {OUT_OF_MEMORY_HINT}", code, log_tail=tail)
    if code == FENCED_EXIT_CODE:
        return Failure("Superseded", False, False, "a newer driver owns the checkpoints", code, log_tail=tail)
    if code in TERMINATED_EXIT_CODES:
        return Failure("Terminated", False, False, "the driver was asked to stop from outside", code, log_tail=tail)
    if code in PERMANENT_EXIT_CODES:
        return Failure(failure_class or "ConfigInvalid", True, True, last, code, log_tail=tail)
    if code in permanent_codes:
        text = f"{last} (exit code {code} is one of restartPolicy.permanentExitCodes)"
        return Failure("PermanentExitCode", True, True, text, code, log_tail=tail)
    return Failure(failure_class or "ApplicationFailed", True, False, last, code, log_tail=tail)


def head_lost(losses: Sequence[LostPod]) -> Failure:
    """The head pod was lost, and the attempt with it."""
    loss = losses[-1]
    free = loss.failure_class in DISRUPTIONS
    hint = f"; {OUT_OF_MEMORY_HINT}" if loss.failure_class == OUT_OF_MEMORY else ""
    times = f" {len(losses)} times without a new checkpoint in between" if len(losses) > 1 else ""
    return Failure(
        loss.failure_class if loss.failure_class != "Crashed" else "HeadCrashed",
        counted=not free or len(losses) > 1,
        permanent=False,
        message=f"the head pod was lost{times}: {loss.message}{hint}",
        exit_code=loss.exit_code,
        pod=loss.name,
        node=loss.node,
    )


def _exit_code(message: str) -> int | None:
    found = _EXIT_CODE.search(message)
    return int(found.group(1)) if found else None


def first_line(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:1000]


def last_line(text: str) -> str:
    """The last line that says something: of a traceback the one with the error."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")[:1000]
