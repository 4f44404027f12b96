"""The operator is killed at every write of a job's life, and started again: the job ends as if nothing had happened."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.controlplane.conftest import fresh_namespace
from tests.controlplane.operated import Job, Stage
from tests.controlplane.rayjob_witness import RayJobWitness
from tests.kube.operator_process import RestartedOperator
from tests.kube.proxy import FaultProxy

pytestmark = pytest.mark.timeout(240)

WRITES = ("POST", "PUT", "PATCH", "DELETE")
NUMBERS = r'\d{4}-\d\d-\d\dT[\d:]+Z|"(timesteps|iteration|episodes|timestepsPerSecond)": [\d.]+|[\d,]+ timesteps'
"""What differs when the next operator makes the same write."""

SETTINGS: dict[str, Any] = {
    "leaderElection": {"enabled": False},  # a dead leader's Lease has to run out first; test_operator_replicas has it
    "times": {"liveStatusSeconds": 3600},  # numbers alone bring a job nowhere
}
SCRIPT = {"timestepsPerS": 1000, "failAfterS": 0.5, "failures": 1, "exitCode": 3, "message": "boom"}


def live(job: Job) -> None:
    """Created, provisioned, running, failed, restarted, suspended, resumed, succeeded."""
    job.apply(script=SCRIPT, restartPolicy={"backoff": "1s"}, stop={"timesteps": 10_000_000})
    job.comes(lambda s: s.get("attempt") == 2 and s["phase"] == "Running", "running again after the failure")
    job.patch({"suspend": True})
    job.reaches("Suspended")
    job.gone("rayjobs")
    job.patch({"suspend": False})
    job.comes(lambda s: s.get("attempt") == 3 and s["phase"] == "Running", "running again after the suspension")
    job.patch({"stop": {"timesteps": 1}})
    job.reaches("Succeeded")
    for kind in ("rayjobs", "rayclusters", "pods"):
        job.gone(kind)


def story(job: Job) -> dict[str, Any]:
    """How it ended, without times and numbers."""
    document = job.get()
    status = document["status"]
    control = json.loads(job.get("configmap", f"{job.name}-run")["data"]["control.json"])
    return {
        "phase": status["phase"],
        "restarts": status.get("restarts"),
        "preemptions": status.get("preemptions"),
        "losses": status.get("losses"),
        "attempts": [(a["number"], a["reason"], a["counted"]) for a in status["attempts"]],
        "conditions": {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]},
        "failure": {k: status["lastFailure"].get(k) for k in ("class", "exitCode", "counted", "message")},
        "evaluators": status["evaluators"],
        "config": status["resolvedConfigHash"],
        "finalizers": document["metadata"].get("finalizers"),
        "control": {k: control[k] for k in ("attempt", "pause", "stop")},
        "claims": [claim["metadata"]["name"] for claim in job.list("pvc")],
    }


@pytest.fixture(scope="module")
def undisturbed(stage: Stage) -> dict[str, Any]:
    """The story of a job whose operator lives."""
    with (
        fresh_namespace(stage.cluster, "undisturbed") as namespace,
        RestartedOperator(stage.cluster, SETTINGS, name="undisturbed", server=stage.cluster.server),
    ):
        job = Job(stage.cluster, namespace, "cartpole-ppo")
        live(job)
        return story(job)


def test_an_undisturbed_life(undisturbed: dict[str, Any]) -> None:
    assert undisturbed["attempts"] == [(1, "ApplicationFailed", True), (2, "Suspended", False), (3, "Succeeded", False)]
    assert undisturbed["restarts"] == 1
    assert undisturbed["failure"] == {"class": "ApplicationFailed", "exitCode": 3, "counted": True, "message": "boom"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_each_write_it_ends_the_same(stage: Stage, undisturbed: dict[str, Any], when: str) -> None:
    """The proxy kills the operator when a write arrives: before it is carried out, or after, the answer being lost.

    Every write is hit, once: the next operator makes it again, if it was not carried out or if that does no harm.
    """
    with (
        fresh_namespace(stage.cluster, f"killed-{when}") as namespace,
        FaultProxy(stage.cluster) as proxy,
        RestartedOperator(stage.cluster, SETTINGS, name=namespace, server=proxy.url) as operator,
        RayJobWitness(stage.cluster, namespace) as witness,
    ):
        job = Job(stage.cluster, namespace, "cartpole-ppo")
        kills = proxy.cut(methods=WRITES, after=when == "after", once=NUMBERS, then=operator.kill_operator)
        live(job)
        kills.left = 0
        assert story(job) == undisturbed
    assert [name for name, _ in witness.made] == [f"{job.name}-{attempt}" for attempt in (1, 2, 3)]
    assert witness.overlaps == []
    assert kills.hits > 30
