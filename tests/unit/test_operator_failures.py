"""The failure table: evidence -> class, counted or free, permanent or not; and why pods were lost."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from rljob_operator.failures import Failure, head_lost, judge
from rljob_operator.losses import DISRUPTIONS, lost_pod

from tests.unit.operator_objects import NOW_S, at, final, lost, pod


class Expected(NamedTuple):
    failure_class: str
    counted: bool
    permanent: bool


def said(code: int, log: str = "Traceback\nValueError: boom\n") -> str:
    return f"Job entrypoint command failed with exit code {code}, last available logs:\n{log}"


APP = "AppFailed"
OOM_WORD = final("Failed", 3, "OutOfMemory", "CUDA out of memory")

# name, RayJob status (reason, message, more), final, head loss -> expected
TABLE: list[tuple[str, dict[str, Any], Any, Any, Expected]] = [
    # the driver's own word
    ("bad config", {}, final("Failed", 2, "ConfigInvalid", "no such env"), None, Expected("ConfigInvalid", True, True)),
    ("failure", {}, final("Failed", 3, "ApplicationFailed", "NaN"), None, Expected("ApplicationFailed", True, False)),
    ("driver out of memory", {}, OOM_WORD, None, Expected("OutOfMemory", True, False)),
    ("a bug", {}, final("Failed", 70, "ApplicationFailed", "bug"), None, Expected("ApplicationFailed", True, False)),
    (
        "nobody samples",
        {},
        final("Failed", 3, "EvaluatorsLost", "gone"),
        None,
        Expected("EvaluatorsLost", False, False),
    ),
    ("no class", {}, final("Failed", 3, "", "odd"), None, Expected("ApplicationFailed", True, False)),
    ("permanent by the manifest", {}, final("Failed", 42, "", ""), None, Expected("PermanentExitCode", True, True)),
    (
        "its word goes before a lost head",
        {"reason": APP, "message": said(3)},
        final("Failed", 3, "ApplicationFailed", "NaN"),
        lost("Preempted"),
        Expected("ApplicationFailed", True, False),
    ),
    # what Ray tells of its exit
    ("exit 1", {"reason": APP, "message": said(1)}, None, None, Expected("ApplicationFailed", True, False)),
    ("exit 2", {"reason": APP, "message": said(2)}, None, None, Expected("ConfigInvalid", True, True)),
    ("exit 42", {"reason": APP, "message": said(42)}, None, None, Expected("PermanentExitCode", True, True)),
    ("fenced", {"reason": APP, "message": said(75)}, None, None, Expected("Superseded", False, False)),
    ("SIGTERM", {"reason": APP, "message": said(143)}, None, None, Expected("Terminated", False, False)),
    ("SIGTERM, as Ray has it", {"reason": APP, "message": said(-15)}, None, None, Expected("Terminated", False, False)),
    ("SIGINT", {"reason": APP, "message": said(130)}, None, None, Expected("Terminated", False, False)),
    ("SIGKILL", {"reason": APP, "message": said(137)}, None, None, Expected("OutOfMemory", True, False)),
    ("SIGKILL, as Ray has it", {"reason": APP, "message": said(-9)}, None, None, Expected("OutOfMemory", True, False)),
    (
        "Ray's memory monitor",
        {"reason": APP, "message": said(1, "ray.exceptions.OutOfMemoryError: killed")},
        None,
        None,
        Expected("OutOfMemory", True, False),
    ),
    ("no exit code", {"reason": APP, "message": "runtime_env"}, None, None, Expected("ApplicationFailed", True, False)),
    (
        "another reason with an exit code",
        {"reason": "SubmissionFailed", "message": said(3)},
        None,
        None,
        Expected("ApplicationFailed", True, False),
    ),
    # a lost head
    *(
        (
            f"head {kind}, then no answer",
            {"reason": "JobStatusCheckTimeoutExceeded"},
            None,
            lost(kind),
            Expected(kind, False, False),
        )
        for kind in sorted(DISRUPTIONS)
    ),
    (
        "head out of memory",
        {"reason": "JobStatusCheckTimeoutExceeded"},
        None,
        lost("OutOfMemory"),
        Expected("OutOfMemory", True, False),
    ),
    ("head crashed", {"reason": "X"}, None, lost("Crashed"), Expected("HeadCrashed", True, False)),
    (
        "a node that goes kills the driver first",
        {"reason": APP, "message": said(137)},
        None,
        lost("Preempted"),
        Expected("Preempted", False, False),
    ),
    ("or stops it", {"reason": APP, "message": said(-15)}, None, lost("Evicted"), Expected("Evicted", False, False)),
    (
        "but an error is an error",
        {"reason": APP, "message": said(1)},
        None,
        lost("Preempted"),
        Expected("ApplicationFailed", True, False),
    ),
    # what KubeRay says
    ("no sign", {"reason": "JobStatusCheckTimeoutExceeded"}, None, None, Expected("HeadUnreachable", True, False)),
    ("stopped", {"jobStatus": "STOPPED"}, None, None, Expected("Stopped", False, False)),
    ("refused", {"reason": "ValidationFailed", "message": "m"}, None, None, Expected("RayJobRejected", True, True)),
    (
        "refused by its state",
        {"jobDeploymentStatus": "ValidationFailed"},
        None,
        None,
        Expected("RayJobRejected", True, True),
    ),
    ("a reason of its own", {"reason": "DeadlineExceeded"}, None, None, Expected("DeadlineExceeded", True, False)),
    ("no reason", {}, None, None, Expected("RayJobFailed", True, False)),
    ("a final word of success", {"reason": APP}, final(), None, Expected("ApplicationFailed", True, False)),
]


def judged(status: dict[str, Any], word: Any = None, loss: Any = None) -> Failure:
    return judge({"status": status}, word, loss, [42])


@pytest.mark.parametrize(
    ("status", "word", "loss", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_the_failure_table(status, word, loss, expected):
    failure = judged(status, word, loss)
    assert Expected(failure.failure_class, failure.counted, failure.permanent) == expected
    assert failure.message
    assert len(failure.failure_class) <= 64


def test_messages_say_what_happened_and_what_to_do():
    assert judged({"reason": APP, "message": said(1)}).message == "ValueError: boom"
    memory = judged({"reason": APP, "message": said(137)}).message
    assert "raise the memory of the pod" in memory
    assert "exit code 42 is one of restartPolicy.permanentExitCodes" in judged({}, final("Failed", 42)).message
    assert judged({"reason": "X" * 300, "message": "\n first \n second"}).message == "first"


def test_the_log_is_kept_from_its_end():
    failure = judged({"reason": APP, "message": said(1, "x" * 20_000 + "\nlast")})
    assert len(failure.log_tail) == 8000
    assert failure.log_tail.endswith("last")


def test_a_lost_head_is_told_with_pod_node_and_code():
    failure = head_lost(lost("OutOfMemory", exit_code=137, message="killed"), times=3)
    assert (failure.pod, failure.node, failure.exit_code) == ("head", "node-1", 137)
    assert failure.message.startswith(
        "the head pod was lost 3 times without a new checkpoint in between: killed; raise"
    )


# pods --------------------


def ended(code: int, reason: str = "Error", finished: float | None = None, **more: Any) -> dict[str, Any]:
    time = {} if finished is None else {"finishedAt": at(finished)}
    return {"exitCode": code, "reason": reason, **time, **more}


def disrupted(reason: str) -> list[dict[str, Any]]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "says why"}]


PODS: list[tuple[str, dict[str, Any], bool, str | None]] = [
    ("runs", pod(), False, None),
    ("waits", pod(phase="Pending"), False, None),
    ("ended in peace", pod(phase="Succeeded", terminated=ended(0, "Completed")), False, None),
    ("ended in peace, and gone", pod(phase="Succeeded", terminated=ended(0, "Completed")), True, None),
    ("preempted", pod(conditions=disrupted("PreemptionByScheduler")), False, "Preempted"),
    ("evicted", pod(conditions=disrupted("EvictionByEvictionAPI")), False, "Evicted"),
    ("the kubelet ends it", pod(phase="Failed", conditions=disrupted("TerminationByKubelet")), False, "Evicted"),
    ("its node was tainted", pod(conditions=disrupted("DeletionByTaintManager")), True, "NodeLost"),
    ("its node was removed", pod(phase="Failed", conditions=disrupted("DeletionByPodGC")), True, "NodeLost"),
    ("a new kind of disruption", pod(conditions=disrupted("Something")), False, "Evicted"),
    (
        "a disruption that was called off",
        pod(conditions=[{"type": "DisruptionTarget", "status": "False", "reason": "PreemptionByScheduler"}]),
        False,
        None,
    ),
    ("disrupted and killed", pod(phase="Failed", terminated=ended(137), conditions=disrupted("X")), False, "Evicted"),
    ("node pressure", pod(phase="Failed", reason="Evicted", message="low on memory"), False, "Evicted"),
    ("node shut down", pod(phase="Failed", reason="Terminated"), False, "Evicted"),
    ("memory limit", pod(phase="Failed", terminated=ended(137, "OOMKilled")), False, "OutOfMemory"),
    ("killed", pod(phase="Failed", terminated=ended(137)), False, "OutOfMemory"),
    ("crashed", pod(phase="Failed", terminated=ended(1)), False, "Crashed"),
    ("failed and says nothing", pod(phase="Failed"), False, "Crashed"),
    ("the autoscaler lives on: crashed", pod(terminated=ended(1)), False, "Crashed"),
    ("the autoscaler lives on: memory", pod(terminated=ended(137, "OOMKilled")), False, "OutOfMemory"),
    ("the autoscaler lives on: peace", pod(terminated=ended(0)), False, None),
    ("deleted", pod(deleted_at=0), True, "Deleted"),
    ("deleted before it ran", pod(phase="Pending", deleted_at=0), True, "Deleted"),
    ("gone without a word", pod(), True, "Deleted"),
    (
        "deleted, and killed for it does not hear SIGTERM",
        pod(phase="Failed", deleted_at=10, grace_s=60, terminated=ended(137, finished=70)),
        True,
        "Deleted",
    ),
    (
        "deleted, and ended by SIGTERM in the same second",
        pod(phase="Failed", deleted_at=10, grace_s=60, terminated=ended(143, finished=10)),
        True,
        "Deleted",
    ),
    (
        "deleted, and failed over it",
        pod(phase="Failed", deleted_at=10, terminated=ended(1, finished=15)),
        True,
        "Deleted",
    ),
    (
        "failed, and deleted by KubeRay in the same second",
        pod(phase="Failed", deleted_at=10, terminated=ended(1, finished=10)),
        True,
        "Crashed",
    ),
    (
        "out of memory, and deleted by KubeRay",
        pod(phase="Failed", deleted_at=10, terminated=ended(137, finished=9)),
        True,
        "OutOfMemory",
    ),
    (
        "memory limit while it was being deleted",
        pod(phase="Failed", deleted_at=10, terminated=ended(137, "OOMKilled", finished=15)),
        True,
        "OutOfMemory",
    ),
    ("the node controller gave it up", pod(reason="NodeLost", message="node is gone"), False, "NodeLost"),
]


@pytest.mark.parametrize(("found", "deleted", "kind"), [row[1:] for row in PODS], ids=[row[0] for row in PODS])
def test_why_a_pod_was_lost(found, deleted, kind):
    loss = lost_pod(found, deleted=deleted, now_s=NOW_S)
    assert (loss.failure_class if loss else None) == kind
    if loss is not None:
        assert (loss.role, loss.attempt, loss.name, loss.uid) == ("head", 1, "head", "uid-head")
        assert loss.message


def test_a_pod_whose_node_is_not_ready_is_lost_with_it():
    found = pod(ready=False)
    found["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "NodeNotReady"}]
    loss = lost_pod(found, deleted=True, now_s=NOW_S)
    assert loss is not None
    assert (loss.failure_class, loss.node) == ("NodeLost", "node-1")


def test_pods_that_are_not_ours_are_never_lost():
    for labels in ({}, {"rlcore.io/role": "head"}, {"rlcore.io/role": "head", "rlcore.io/attempt": "²"}):
        found = pod(phase="Failed")
        found["metadata"]["labels"] = labels
        assert lost_pod(found, deleted=True, now_s=NOW_S) is None


def test_exit_code_and_message_of_the_ray_container_are_kept():
    found = pod(phase="Failed", terminated=ended(3, message="bad luck"))
    found["status"]["containerStatuses"].insert(0, {"name": "autoscaler", "state": {"terminated": {"exitCode": 99}}})
    loss = lost_pod(found, deleted=False, now_s=NOW_S)
    assert loss is not None
    assert (loss.exit_code, loss.message) == (3, "bad luck")
