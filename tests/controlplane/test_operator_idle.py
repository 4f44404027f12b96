"""When nothing happens the operator does next to nothing; and what others write it leaves alone."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from rljob_operator.settings import Settings

from tests.controlplane.conftest import fresh_namespace
from tests.controlplane.operated import Job, Stage
from tests.kube.operator_process import OperatorProcess
from tests.kube.proxy import FaultProxy
from tests.kube.wait import eventually

pytestmark = pytest.mark.timeout(240)

LIVE_S = 2.0
"""In the place of a minute."""

SETTINGS: dict[str, Any] = {
    "times": {"liveStatusSeconds": LIVE_S, "pollSeconds": 0.3, "resyncSeconds": 1, "compareSeconds": 1}
}
SLOW, FAST = {"timestepsPerS": 1_000}, {"timestepsPerS": 1_000_000}
RENEWALS = {("get", "leases"), ("update", "leases")}
COMPARISONS = {("list", kind) for kind in ("pods", "rayclusters", "rayjobs", "rljobs")}
LOOKUPS = {("get", path) for path in ("/apis", "/apis/ray.io/v1", "/apis/rlcore.io/v1alpha1")}
STATUS_WRITE = ("patch", "rljobs/status")


@pytest.fixture(scope="module")
def proxy(stage: Stage) -> Iterator[FaultProxy]:
    with FaultProxy(stage.cluster) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def operator(stage: Stage, proxy: FaultProxy) -> Iterator[OperatorProcess]:
    with OperatorProcess(stage.cluster, SETTINGS, name="idle", server=proxy.url) as operator:
        yield operator


@pytest.fixture
def job(stage: Stage, operator: OperatorProcess, request: pytest.FixtureRequest) -> Iterator[Job]:
    with fresh_namespace(stage.cluster, request.node.name) as namespace:
        job = Job(stage.cluster, namespace, "cartpole-ppo")
        yield job
        job.kubectl("delete", "rlj", "--all", "--wait=false")


def is_at_full_size(status: dict[str, Any]) -> bool:
    """Running, nothing left to come."""
    reasons = {condition["reason"] for condition in status.get("conditions", [])}
    return status.get("phase") == "Running" and status["evaluators"]["ready"] == 2 and "CheckpointWritten" in reasons


def versions(job: Job, kind: str) -> dict[str, str]:
    """resourceVersion of all objects of a kind in the job's namespace, by name."""
    items = json.loads(job.kubectl("get", kind, "-o", "json"))["items"]  # whosever they are
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


def test_at_rest_there_is_one_status_write_a_minute_for_each_running_job(
    operator: OperatorProcess, proxy: FaultProxy, job: Job
) -> None:
    assert Settings().times.live_status_s == 60.0
    running = [Job(job.cluster, job.namespace, f"running-{i}") for i in range(3)]
    done, suspended = (Job(job.cluster, job.namespace, name) for name in ("done", "suspended"))
    done.apply(script=FAST)
    suspended.apply(suspend=True)
    for each in running:
        each.apply(script=SLOW)
    for each in running:
        each.comes(is_at_full_size, "running at full size")
    done.reaches("Succeeded")
    done.gone("pods")
    suspended.reaches("Suspended")

    def transitions() -> float:
        return operator.metric("rljob_operator_status_writes_total", kind="transition")

    kinds = ("rljobs", "events", "rayjobs", "configmaps", "persistentvolumeclaims")
    before, told = {kind: versions(job, kind) for kind in kinds}, transitions()
    counts, began_s = Counter(proxy.counts), time.monotonic()
    eventually(lambda: proxy.counts["list", "rljobs"] >= counts["list", "rljobs"] + 8, 60, what="eight comparisons")
    made, passed_s = Counter(proxy.counts) - counts, time.monotonic() - began_s
    after = {kind: versions(job, kind) for kind in kinds}

    assert set(made) <= {*RENEWALS, *COMPARISONS, *LOOKUPS, STATUS_WRITE}
    assert sum(made[lookup] for lookup in LOOKUPS) <= len(LOOKUPS) * (passed_s / 15 + 1)
    assert 2 * len(running) <= made[STATUS_WRITE] <= len(running) * (passed_s / LIVE_S + 1)
    assert made["update", "leases"] <= passed_s / 3 + 1
    assert transitions() == told
    for each in (done, suspended):
        assert after["rljobs"][each.name] == before["rljobs"][each.name]
    for kind in kinds[1:]:
        assert after[kind] == before[kind]
    for each in (*running, done, suspended):
        assert "finalizers" not in each.get()["metadata"]


def test_a_job_can_be_deleted_without_an_operator(operator: OperatorProcess, job: Job) -> None:
    job.apply(script=SLOW)
    job.comes(is_at_full_size, "running at full size")
    operator.stop()
    try:
        job.kubectl("delete", "rlj", job.name, "--timeout=10s")
        for kind in ("rayjobs", "pods", "configmaps"):
            job.gone(kind)
    finally:
        operator.start()


def test_what_the_autoscaler_writes_stays(operator: OperatorProcess, job: Job) -> None:
    pool_limits = {"name": "evaluators", "minReplicas": 2, "maxReplicas": 8, "resources": {"cpu": 1, "memory": "1Gi"}}
    job.apply(script=SLOW, evaluators={"pools": [pool_limits]})
    name = job.comes(is_at_full_size, "running at full size")["rayCluster"]

    def pool() -> dict[str, Any]:
        group: dict[str, Any] = job.get("raycluster", name)["spec"]["workerGroupSpecs"][0]
        return group

    def scale(replicas: int, *victims: str) -> None:
        path = "/spec/workerGroupSpecs/0"
        changes = {"replicas": replicas, "scaleStrategy": {"workersToDelete": list(victims)}}
        patch = [{"op": "add", "path": f"{path}/{field}", "value": value} for field, value in changes.items()]
        job.kubectl("patch", "raycluster", name, "--type=json", "--field-manager=autoscaler", "-p", json.dumps(patch))

    assert job.get("raycluster", name)["spec"]["enableInTreeAutoscaling"]
    scale(4)
    job.comes(lambda s: s["evaluators"]["ready"] == 4, "four evaluators")
    victim = next(p for p in job.list("pods") if p["metadata"]["labels"]["rlcore.io/role"] == "evaluator")
    scale(3, victim["metadata"]["name"])
    job.comes(lambda s: s["evaluators"]["replicas"] == 3, "three evaluators")
    job.patch({"evaluators": {"pools": [{**pool_limits, "maxReplicas": 7}]}})
    eventually(lambda: pool()["maxReplicas"] == 7, what="the operator's own change")
    looks_again(operator)
    assert pool()["replicas"] == 3
    assert pool()["scaleStrategy"] == {"workersToDelete": [victim["metadata"]["name"]]}
    assert job.status["evaluators"]["target"] == 3


def test_what_the_queue_writes_stays(operator: OperatorProcess, job: Job) -> None:
    job.apply(script=SLOW, annotations={"rlcore.io/paused": "true"})
    job.kubectl("label", "rlj", job.name, "kueue.x-k8s.io/queue-name=team-a")
    job.annotate(paused="false")
    name = f"{job.name}-1"

    def suspend(value: bool) -> None:
        patch = {"spec": {"suspend": value}, "metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}}}
        job.kubectl("patch", "rayjob", name, "--type=merge", "--field-manager=kueue", "-p", json.dumps(patch))

    def is_queued(status: dict[str, Any]) -> bool:
        return status.get("phase") == "Pending" and any(c["reason"] == "Queued" for c in status["conditions"])

    job.comes(is_queued, "waiting to be admitted")
    assert job.get("rayjob", name)["spec"]["suspend"] is True
    suspend(False)
    job.reaches("Running")
    suspend(True)
    job.comes(is_queued, "waiting once more: evicted")
    looks_again(operator)
    found = job.get("rayjob", name)
    assert found["spec"]["suspend"] is True
    assert found["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "main"
    suspend(False)
    job.reaches("Running")
    looks_again(operator)
    assert job.get("rayjob", name)["spec"]["suspend"] is False
    status = job.status
    assert (status["attempt"], status.get("restarts"), status.get("losses")) == (1, None, None)


def looks_again(operator: OperatorProcess, times: int = 4) -> None:
    """Waits until the operator has looked at its jobs so often."""
    before = operator.metric("rljob_operator_reconcile_seconds_count")
    eventually(lambda: operator.metric("rljob_operator_reconcile_seconds_count") >= before + times, what="some looks")
