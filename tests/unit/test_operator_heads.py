"""Heads that are away, unready or silent, and autoscalers that ended: what is a loss, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from rljob_operator.draft import Decision
from rljob_operator.observed import is_ray_ready

from tests.unit.operator_objects import (
    at,
    condition_of,
    decided,
    lost,
    pod,
    raw_job,
    ray_cluster,
    ray_job,
    report,
    unscheduled,
)

AWAY = {"type": "Provisioned", "status": "False", "reason": "HeadLost", "message": "", "lastTransitionTime": at(0)}
STARTING = {
    "type": "Training",
    "status": "False",
    "reason": "DriverStarting",
    "message": "",
    "lastTransitionTime": at(0),
}


def running(
    conditions: list[dict[str, Any]] | None = None, spec: dict[str, Any] | None = None, **fields: Any
) -> Decision:
    """Decides on a job whose RayJob runs."""
    attempt = {"number": 1, "startedAt": at(0), "rayJob": "pong-1"}
    status = {"attempt": 1, "attempts": [attempt], "startedAt": at(0), "conditions": conditions or []}
    raw = raw_job(status=status, **(spec or {}))
    made = ray_job(raw, jobDeploymentStatus="Running", jobStatus="RUNNING")
    return decided(raw, **{"ray_job": made, "ray_cluster": ray_cluster(made), **fields})


def with_autoscaler(**state: Any) -> dict[str, Any]:
    """A head whose autoscaler has ended: the pod is not ready, Ray in it is."""
    head = pod("head", ready=False)
    head["status"]["containerStatuses"][0]["ready"] = True
    head["status"]["containerStatuses"].append({"name": "autoscaler", "ready": False, "state": state})
    return head


def test_an_autoscaler_that_ended_is_told_and_training_goes_on() -> None:
    head = with_autoscaler(terminated={"reason": "OOMKilled", "exitCode": 137})
    assert is_ray_ready(head)
    status = running(pods=[head], report=report()).status
    assert status["phase"] == "Running"
    told = condition_of(status, "Autoscaling")
    assert (told["status"], told["reason"]) == ("False", "AutoscalerDown")
    assert "OOMKilled, exit code 137" in told["message"]
    assert "rlcore.io/restart" in told["message"]
    again = running(status["conditions"], pods=[with_autoscaler(running={})], report=report()).status
    assert "Autoscaling" not in {condition["type"] for condition in again["conditions"]}


@pytest.mark.parametrize(("ray", "ready"), [(True, True), (False, False), (None, True)])
def test_a_pod_is_as_ready_as_its_ray_container(ray: bool | None, ready: bool) -> None:
    head = pod("head")
    if ray is not None:
        head["status"]["containerStatuses"][0]["ready"] = ray
    assert is_ray_ready(head) is ready


def test_a_head_that_waits_for_a_node_says_so_and_is_waited_for() -> None:
    waiting = pod("head", phase="Pending", conditions=[unscheduled()])
    decision = running([AWAY], pods=[waiting], after=3600)
    assert decision.status["phase"] == "Recovering"
    message = condition_of(decision.status, "Provisioned")["message"]
    assert "Unschedulable: pod head: 0/3 nodes are available" in message
    assert decision.status["attempts"][-1].get("endedAt") is None


def test_a_head_that_nobody_brings_back_ends_the_attempt() -> None:
    decision = running([AWAY], pods=[], after=301)
    assert decision.status["attempts"][-1]["reason"] == "HeadLost"


def test_a_dead_nodes_volume_is_named() -> None:
    message = condition_of(running([AWAY], pods=[], lost=[lost("NodeLost")], after=10).status, "Provisioned")["message"]
    assert "ReadWriteOnce" in message


SILENCE = {"spec": {"stallTimeout": "10m"}, "drivers_answer": True, "pods": [pod("head")]}


@pytest.mark.parametrize(
    ("fields", "stalled"),
    [
        ({"report": report(when=-601)}, True),
        ({"report": report(when=-599)}, False),
        ({"report": report(when=-601), "drivers_answer": False}, False),
        ({"report": report(when=-601), "spec": {"stallTimeout": None}}, False),
        ({"report": None, "conditions": [STARTING], "after": 601}, True),
        ({"report": None, "conditions": [STARTING], "after": 599}, False),
    ],
    ids=["silent", "not so long", "nobody answers", "no time-out", "never a word", "not a word yet"],
)
def test_a_driver_that_hangs_without_a_word_has_stalled(fields: dict[str, Any], stalled: bool) -> None:
    status = running(**{**SILENCE, **fields}).status
    assert (status["attempts"][-1].get("reason") == "Stalled") is stalled
