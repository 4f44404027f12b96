"""An API server that fails, is slow, goes away: nothing is lost, nothing is doubled, and the operator stays up."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from rljob_operator.handlers import Backoffs

from tests.controlplane.conftest import fresh_namespace
from tests.controlplane.operated import Job, Stage
from tests.controlplane.rayjob_witness import RayJobWitness
from tests.kube.operator_process import OperatorProcess, RestartedOperator
from tests.kube.proxy import FaultProxy
from tests.kube.wait import eventually

pytestmark = pytest.mark.timeout(240)

SETTINGS: dict[str, Any] = {
    "workers": 2,
    "times": {"compareSeconds": 2, "liveStatusSeconds": 3600, "tryRefusedAgainSeconds": 2},
}
SLOW = {"timestepsPerS": 1_000}
FAILS_ONCE = {"timestepsPerS": 1_000_000, "failAfterS": 0.1, "failures": 1, "exitCode": 3, "message": "boom"}
RATE = 0.2
WRITES = ("POST", "PUT", "PATCH", "DELETE")
FAILED = 4
"""Exit code of an operator of which a part has ended."""


@pytest.fixture(scope="module")
def proxy(stage: Stage) -> Iterator[FaultProxy]:
    with FaultProxy(stage.cluster) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def process(stage: Stage, proxy: FaultProxy) -> Iterator[OperatorProcess]:
    """One operator for all tests: none of them may end it."""
    with OperatorProcess(stage.cluster, SETTINGS, name="faulted", server=proxy.url) as operator:
        yield operator


@pytest.fixture
def operator(process: OperatorProcess, proxy: FaultProxy) -> Iterator[OperatorProcess]:
    """The operator, up before and after."""
    pid = process.pid
    yield process
    proxy.heal()
    assert process.alive, process.tail()
    assert process.pid == pid


@pytest.fixture
def job(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Job]:
    with fresh_namespace(stage.cluster, request.node.name) as namespace:
        job = Job(stage.cluster, namespace, "cartpole-ppo")
        yield job
        job.kubectl("delete", "rlj", "--all", "--wait=false")


Inject = Callable[..., object]

FAULTS: dict[str, tuple[Callable[[FaultProxy], Inject], str]] = {
    "conflict": (lambda proxy: partial(proxy.fail, 409, methods=WRITES), "Conflict"),  # no read is answered so
    "too-many-requests": (lambda proxy: partial(proxy.fail, 429, retry_after_s=1), "TooManyRequests"),
    "internal-error": (lambda proxy: partial(proxy.fail, 500), "InternalError"),
    "error-after-it-was-done": (lambda proxy: partial(proxy.fail, 500, after=True), "InternalError"),
    "connection-cut": (lambda proxy: proxy.cut, "Unreachable"),
    "answer-lost": (lambda proxy: partial(proxy.cut, after=True), "Unreachable"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_fails_restarts_and_succeeds_while_requests_fail(
    operator: OperatorProcess, proxy: FaultProxy, job: Job, fault: str
) -> None:
    kind, reason = FAULTS[fault]
    errors = operator.metric("rljob_operator_reconcile_errors_total", reason=reason)
    inject = kind(proxy)
    inject(count=1, path="/rljobs/[^/]+/status")  # this one for certain
    inject(rate=RATE)
    with RayJobWitness(job.cluster, job.namespace) as witness:
        job.apply(script=FAILS_ONCE, restartPolicy={"backoff": "1s"})
        status = job.reaches("Succeeded", deadline_s=120)
        for kind in ("rayjobs", "pods"):
            job.gone(kind)
    assert [name for name, _ in witness.made] == [f"{job.name}-1", f"{job.name}-2"]
    assert witness.overlaps == []
    assert status["restarts"] == 1
    assert [(a["reason"], a["counted"]) for a in status["attempts"]] == [
        ("ApplicationFailed", True),
        ("Succeeded", False),
    ]
    assert operator.metric("rljob_operator_reconcile_errors_total", reason=reason) > errors
    code = {"Conflict": "409", "TooManyRequests": "429", "InternalError": "500", "Unreachable": "0"}[reason]
    assert operator.metric("rljob_operator_api_requests_total", resource="rljobs", verb="patch", code=code) > 0


def test_a_slow_api_server_makes_jobs_wait_their_turn(operator: OperatorProcess, proxy: FaultProxy, job: Job) -> None:
    proxy.latency_s = 0.5
    jobs = [Job(job.cluster, job.namespace, f"slow-{i}") for i in range(5)]
    for each in jobs:
        each.apply(script={"timestepsPerS": 1_000_000})
    eventually(lambda: operator.metric("rljob_operator_queue_depth") >= 2, interval_s=0.05, what="jobs that wait")
    assert operator.get("healthz") == "ok\n"
    for each in jobs:
        assert each.reaches("Succeeded", deadline_s=120)["attempt"] == 1
    eventually(lambda: operator.metric("rljob_operator_queue_depth") == 0, what="an empty queue")
    assert operator.metric("rljob_operator_leader") == 1.0


def test_an_api_server_that_restarts_is_found_again(operator: OperatorProcess, job: Job) -> None:
    job.apply(script=SLOW)
    job.reaches("Running")
    job.cluster.stop_api_server()
    failed = operator.metric("rljob_operator_api_requests_total", code="0")
    eventually(lambda: operator.metric("rljob_operator_api_requests_total", code="0") > failed, what="a failed request")
    job.cluster.start_api_server()
    job.patch({"stop": {"timesteps": 1}})
    status = job.reaches("Succeeded")
    assert (status["attempt"], status.get("restarts")) == (1, None)


@contextmanager
def blinded(proxy: FaultProxy, stage: Stage) -> Iterator[None]:
    """Watches are broken, and what happened meanwhile is never told: a new API server's history begins afterwards."""
    broken = proxy.fail(503, path="watch=true")
    proxy.cut_connections()
    eventually(lambda: broken.hits >= 4, what="watches that fail")
    yield
    stage.cluster.restart_api_server()
    proxy.heal()


def test_what_was_deleted_while_watches_were_broken_is_noticed(
    operator: OperatorProcess, proxy: FaultProxy, stage: Stage, job: Job
) -> None:
    kinds = ("rayjob-gone", "head-gone", "job-gone", "job-made-anew")
    a_rayjob, a_head, a_job, another = (Job(job.cluster, job.namespace, name) for name in kinds)
    for each in (a_rayjob, a_head, a_job, another):
        each.apply(script=SLOW, checkpoint={"every": "1s"})
    for each in (a_rayjob, a_head, a_job, another):
        each.comes(lambda s: s.get("phase") == "Running" and s["evaluators"]["ready"] == 2, "running at full size")
    first_uid = another.get()["metadata"]["uid"]
    (head,) = [p for p in a_head.list("pods") if p["metadata"]["labels"]["rlcore.io/role"] == "head"]
    with blinded(proxy, stage):
        a_rayjob.kubectl("delete", "rayjob", f"{a_rayjob.name}-1", "--wait=true")
        a_head.kubectl("delete", "pod", head["metadata"]["name"], "--wait=true")
        a_job.kubectl("delete", "rlj", a_job.name)
        another.kubectl("delete", "rlj", another.name)
        another.apply(script=SLOW)
    status = a_rayjob.comes(lambda s: s.get("attempt") == 2 and s["phase"] == "Running", "the next attempt")
    assert status["attempts"][0]["reason"] == "RayJobDeleted"
    status = a_head.comes(lambda s: s.get("losses") and s["phase"] == "Running", "the loss of the head")
    assert [loss["uid"] for loss in status["losses"]] == [head["metadata"]["uid"]]
    assert status["attempt"] == 1
    status = another.comes(lambda s: s.get("attempt") == 1 and s["phase"] == "Running", "the job of the same name")
    assert another.get()["metadata"]["uid"] != first_uid
    for kind in ("rayjobs", "rayclusters", "pods"):
        a_job.gone(kind)
    assert f"job={a_job.namespace}/{a_job.name} rljobs {a_job.name} is gone" in operator.log.read_text()


def test_an_operator_that_starts_before_the_api_server_waits_for_it(
    process: OperatorProcess, proxy: FaultProxy, job: Job
) -> None:
    process.stop()
    away = proxy.cut()
    process.start()
    job.apply(script=FAILS_ONCE, restartPolicy={"backoff": "1s"})
    pid, tries = process.pid, away.hits
    eventually(lambda: away.hits >= tries + 2, what="another try")
    proxy.heal()
    assert job.reaches("Succeeded")["attempt"] == 2
    assert process.pid == pid


def test_what_a_webhook_refused_is_made_once_it_thinks_better_of_it(operator: OperatorProcess, job: Job) -> None:
    """A refusal of the object itself (422), as of an old KubeRay's schema: nobody has to touch the job."""
    name = f"refuse-{job.namespace}"
    where = {"matchLabels": {"kubernetes.io/metadata.name": job.namespace}}
    rule = {"apiGroups": ["ray.io"], "apiVersions": ["*"], "resources": ["rayjobs"], "operations": ["CREATE"]}
    validation = {"expression": "false", "message": "not today", "reason": "Invalid"}
    kinds = {
        "ValidatingAdmissionPolicy": {
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": where},
            "validations": [validation],
        },
        "ValidatingAdmissionPolicyBinding": {"policyName": name, "validationActions": ["Deny"]},
    }
    api_version = "admissionregistration.k8s.io/v1"
    items = [
        {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        for kind, spec in kinds.items()
    ]
    job.cluster.apply(*items)
    try:
        time.sleep(2)  # until it is in force: nothing tells
        job.apply(script=SLOW)
        job.comes(lambda s: any(c["reason"] == "RayJobRejected" for c in s.get("conditions", [])), "the refusal")
        assert "not today" in job.condition("Valid")["message"]
    finally:
        job.cluster.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)
    job.reaches("Running")
    assert job.condition("Valid")["status"] == "True"
    assert [reason for reason, _ in job.events()].count("RayJobRejected") == 1


def test_kopf_never_gives_up_on_a_watch() -> None:
    assert all(0 < wait_s <= 5 for wait_s in itertools.islice(Backoffs(), 1000))


def test_an_operator_of_which_a_watch_has_died_ends_and_its_successor_goes_on(
    stage: Stage, process: OperatorProcess, job: Job
) -> None:
    """No answer that kopf can do nothing with may leave the operator up and blind: Kubernetes starts it again."""
    process.stop()
    try:
        with (
            FaultProxy(stage.cluster) as proxy,
            RestartedOperator(stage.cluster, SETTINGS, name="blinded", server=proxy.url) as operator,
        ):
            job.apply(script=SLOW)
            job.reaches("Running")
            proxy.fail(400, path="/rayjobs.*watch=true", count=1)
            proxy.cut_connections()
            eventually(lambda: f"ended with {FAILED}" in operator.log.read_text(), what="its end")
            job.patch({"stop": {"timesteps": 1}})
            status = job.reaches("Succeeded")
            assert (status["attempt"], status.get("restarts")) == (1, None)
    finally:
        process.start()
