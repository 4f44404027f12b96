"""No spot nodes to be had: jobs start on on-demand nodes within seconds, and go back when there are some."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.conftest import fresh_job, skip_without_binaries
from tests.controlplane.operated import Job, Manifest, Operated
from tests.kube.cluster import Cluster
from tests.kube.operator_process import OperatorProcess, install_chart
from tests.kube.wait import eventually
from tests.kuberay.standin import KubeRayStandIn

pytestmark = pytest.mark.timeout(240)

SLOW = {"timestepsPerS": 1_000}
SMALL = {"cpu": 1, "memory": "1Gi"}
SPOT_NODES = ("spot-cpu-a", "spot-cpu-b")
UNAVAILABLE_S, RETRY_S = 3, 12


@pytest.fixture(scope="module")
def on_gke(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A cluster with GKE's spot nodes, whose operator is impatient."""
    skip_without_binaries(pytestconfig)
    times = {"spotUnavailableSeconds": UNAVAILABLE_S, "spotRetrySeconds": RETRY_S}
    with Cluster(tmp_path_factory.mktemp("spot")) as running:
        install_chart(running, {"settings": {"placement": {"preset": "gke"}}})
        with (
            KubeRayStandIn(running, "pods") as kuberay,
            OperatorProcess(running, {"times": times}) as operator,
        ):
            yield Operated(running, operator, kuberay)


@pytest.fixture
def job(on_gke: Operated, request: pytest.FixtureRequest) -> Iterator[Job]:
    """An RLJob, not applied yet; spot nodes take pods again afterwards."""
    with fresh_job(on_gke.cluster, request.node.name) as job:
        yield job
    capacity(on_gke.cluster, True)


def capacity(cluster: Cluster, there: bool) -> None:
    """Whether spot nodes take pods."""
    cluster.kubectl("uncordon" if there else "cordon", *SPOT_NODES)


def pools(spot: int = 2, more: int = 0, base: int = 1, most: int = 4) -> dict[str, Any]:
    """A spot pool of so many pods, autoscaled beyond where `more` says so, and an on-demand pool beside it."""
    return {
        "pools": [
            {
                "name": "spot",
                "minReplicas": spot,
                "maxReplicas": spot + more,
                "preemptible": True,
                "resources": SMALL,
            },
            {"name": "base", "minReplicas": base, "maxReplicas": most, "resources": SMALL},
        ]
    }


def pool(status: Manifest, name: str) -> Manifest:
    """status.evaluators.pools by name, {} where it is not there."""
    return next((p for p in (status.get("evaluators") or {}).get("pools", []) if p["name"] == name), {})


def placed(job: Job) -> dict[str, int]:
    """Evaluator pods that have a node, by pool."""
    counts: dict[str, int] = {}
    for item in job.list("pods"):
        name = item["metadata"]["labels"].get("rlcore.io/pool")
        if name and item["spec"].get("nodeName"):
            counts[name] = counts.get(name, 0) + 1
    return counts


def autoscaled(job: Job) -> bool:
    (cluster,) = job.list("rayclusters")
    return bool(cluster["spec"].get("enableInTreeAutoscaling"))


@pytest.mark.parametrize("more", [0, 6], ids=["two", "two-to-eight"])
def test_without_spot_nodes_a_job_starts_on_demand_and_goes_back_later(on_gke: Operated, job: Job, more: int) -> None:
    capacity(on_gke.cluster, False)
    job.apply(script=SLOW, evaluators=pools(more=more))
    job.comes(lambda s: pool(s, "spot").get("reason") == "Unschedulable", "the pool that waits")
    assert job.condition("Provisioned")["reason"] == "Unschedulable"

    status = job.comes(
        lambda s: s.get("phase") == "Running" and pool(s, "base").get("ready") == 3, "running without spot nodes"
    )
    assert autoscaled(job)
    spot = pool(status, "spot")
    assert spot["movedAt"]
    assert spot["reason"] == "SpotUnavailable"
    assert "on-demand pools make up for its minimum" in spot["message"]
    condition = job.condition("SpotUnavailable")
    assert (condition["status"], condition["reason"]) == ("True", "NoNodes")
    assert "spot" in condition["message"]
    assert "on-demand pools make up for its minimum" in job.told("SpotUnavailable")[0]
    assert placed(job) == {"base": 3}

    capacity(on_gke.cluster, True)
    status = job.comes(lambda s: pool(s, "spot").get("ready") == 2 and not pool(s, "spot").get("movedAt"), "going back")
    assert job.condition("SpotUnavailable") == {}
    assert status["attempt"] == 1
    assert status.get("restarts", 0) == 0
    assert status.get("preemptions", 0) == 0


def test_a_pool_of_fixed_size_shrinks_again_when_spot_nodes_are_back(on_gke: Operated, job: Job) -> None:
    capacity(on_gke.cluster, False)
    job.apply(script=SLOW, evaluators={**pools(), "replicas": 3})
    job.comes(lambda s: s.get("phase") == "Running" and pool(s, "base").get("ready") == 3, "running on demand")
    assert not autoscaled(job)
    capacity(on_gke.cluster, True)
    job.comes(lambda s: pool(s, "spot").get("ready") == 2, "spot pods")
    job.comes(lambda s: pool(s, "base").get("replicas") == 1, "the on-demand pool as small as before")
    assert placed(job) == {"spot": 2, "base": 1}


@pytest.mark.parametrize("more", [0, 4], ids=["fixed", "autoscaled"])
def test_pods_that_got_a_node_are_kept_and_only_the_others_made_up_for(on_gke: Operated, job: Job, more: int) -> None:
    """One spot node has room for three of four pods."""
    on_gke.cluster.kubectl("cordon", SPOT_NODES[1])
    evaluators = pools(spot=4, more=more, base=1, most=3)
    evaluators["pools"][0]["resources"] = {"cpu": 10, "memory": "1Gi"}
    if not more:
        evaluators["replicas"] = 5
    job.apply(script=SLOW, evaluators=evaluators)
    eventually(lambda: placed(job).get("spot") == 3, what="three spot pods on their node")
    first = {p["metadata"]["uid"] for p in job.list("pods") if p["spec"].get("nodeName")}
    job.comes(lambda s: s.get("phase") == "Running" and pool(s, "base").get("ready") == 2, "one made up for")
    assert placed(job) == {"spot": 3, "base": 2}
    assert first <= {p["metadata"]["uid"] for p in job.list("pods")}
    assert "NoNodes" in json.dumps(job.status["conditions"])


def test_a_job_with_spot_pools_alone_waits_for_spot_nodes(on_gke: Operated, job: Job) -> None:
    capacity(on_gke.cluster, False)
    job.apply(script=SLOW, evaluators={"pools": pools()["pools"][:1]})
    job.comes(lambda s: pool(s, "spot").get("reason") == "Unschedulable", "the pool that waits")
    # Longer than it takes where there is another pool.
    since = time.monotonic()
    job.comes(lambda s: time.monotonic() > since + 2 * UNAVAILABLE_S, "twice the time")
    assert job.status["phase"] == "Provisioning"
    assert "movedAt" not in pool(job.status, "spot")
    capacity(on_gke.cluster, True)
    job.reaches("Running")


def test_spot_nodes_that_are_taken_back_are_preemptions_that_cost_nothing(on_gke: Operated, job: Job) -> None:
    job.apply(script=SLOW, evaluators={**pools(), "replicas": 3})
    job.comes(lambda s: s.get("phase") == "Running" and pool(s, "spot").get("ready") == 2, "running")
    (head,) = [p for p in job.list("pods") if p["metadata"]["labels"]["rlcore.io/role"] == "head"]
    nodes = {p["spec"]["nodeName"] for p in job.list("pods") if p["metadata"]["labels"].get("rlcore.io/pool") == "spot"}
    capacity(on_gke.cluster, False)
    for item in job.list("pods"):
        if item["metadata"]["labels"].get("rlcore.io/pool") == "spot":
            evict(job, item["metadata"]["name"])
    assert nodes <= set(SPOT_NODES)
    status = job.comes(lambda s: pool(s, "base").get("ready") == 3, "made up for by on-demand nodes")
    assert status["phase"] == "Running"
    assert status["preemptions"] == 2
    assert status.get("restarts", 0) == 0
    assert head["metadata"]["uid"] in {p["metadata"]["uid"] for p in job.list("pods")}


def evict(job: Job, name: str) -> None:
    """As a cloud takes a node back: its pods are evicted."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": job.namespace}}
    path = f"/api/v1/namespaces/{job.namespace}/pods/{name}/eviction"
    job.cluster.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))
