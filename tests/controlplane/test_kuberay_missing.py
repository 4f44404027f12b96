"""A cluster without KubeRay, or that loses it: jobs say what is missing and what to do, and go on when it is there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from kubernetes import client

from tests.controlplane.conftest import fresh_namespace, skip_without_binaries
from tests.controlplane.operated import Job, Operated
from tests.kube.cluster import Cluster
from tests.kube.operator_process import OperatorProcess, install_chart
from tests.kube.wait import eventually
from tests.kuberay.standin import KubeRayStandIn

pytestmark = pytest.mark.timeout(300)

SLOW = {"timestepsPerS": 1_000}


@pytest.fixture(scope="module")
def bare(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A cluster with the operator and without KubeRay's resources; the stand-in waits for them too."""
    skip_without_binaries(pytestconfig)
    with Cluster(tmp_path_factory.mktemp("bare"), kuberay=False) as running:
        install_chart(running)
        with KubeRayStandIn(running, "pods") as kuberay, OperatorProcess(running) as operator:
            yield Operated(running, operator, kuberay)


@pytest.fixture
def job(bare: Operated, request: pytest.FixtureRequest) -> Iterator[Job]:
    """An RLJob, not applied yet; KubeRay's resources are gone before and after."""
    bare.cluster.remove_kuberay_crds()
    with fresh_namespace(bare.cluster, request.node.name) as name:
        yield bare.job(name)
        bare.job(name).kubectl("delete", "rlj", "--all", "--timeout=30s")


def says_what_is_missing(job: Job) -> None:
    job.comes(lambda s: _reason(s, "Provisioned") == "KubeRayMissing", "KubeRayMissing", deadline_s=30)
    provisioned = job.condition("Provisioned")
    assert provisioned["status"] == "False"
    assert "helm install kuberay-operator" in provisioned["message"]


def garbage_collector_knows_rayclusters(cluster: Cluster, namespace: str) -> None:
    """Waits until what a lost RayCluster leaves behind is collected, as in a cluster that has had KubeRay for a while.

    Kubernetes' collector learns of new kinds every 30 s; it never collects for a kind that went before it had learned
    of it.
    """
    core = client.CoreV1Api(cluster.api)

    def collected() -> bool:
        # A new one each time: between its attempts at an old one the collector waits ever longer.
        owner = client.V1OwnerReference(api_version="ray.io/v1", kind="RayCluster", name="none", uid=str(uuid.uuid4()))
        metadata = client.V1ObjectMeta(
            generate_name="left-behind-", labels={"left": "behind"}, owner_references=[owner]
        )
        name = core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=metadata)).metadata.name
        time.sleep(1)
        return name not in {item.metadata.name for item in core.list_namespaced_config_map(namespace).items}

    eventually(collected, 90, interval_s=1, what="a garbage collector that knows RayClusters")


def _reason(status: dict[str, object], kind: str) -> str:
    conditions: list[dict[str, str]] = status.get("conditions", [])  # type: ignore[assignment]
    return next((c["reason"] for c in conditions if c["type"] == kind), "")


def test_a_job_says_what_to_install_and_starts_as_soon_as_it_is_there(bare: Operated, job: Job) -> None:
    job.apply(script=SLOW)
    says_what_is_missing(job)
    assert job.status["phase"] == "Pending"
    assert job.condition("Valid")["status"] == "True"
    (message,) = job.told("KubeRayMissing")
    assert "helm install kuberay-operator" in message
    bare.cluster.install_kuberay_crds()
    status = job.reaches("Running", deadline_s=60)
    assert status["attempt"] == 1
    assert job.condition("Provisioned")["status"] == "True"


def test_a_running_job_survives_that_kuberay_is_removed_and_installed_again(bare: Operated, job: Job) -> None:
    bare.cluster.install_kuberay_crds()
    job.apply(script={**SLOW, "checkpointEveryS": 0.5})
    saved = job.comes(lambda s: (s.get("checkpoint") or {}).get("timesteps"), "a checkpoint")["checkpoint"]["timesteps"]
    garbage_collector_knows_rayclusters(bare.cluster, job.namespace)
    bare.cluster.remove_kuberay_crds()
    says_what_is_missing(job)
    job.gone("pods")
    bare.cluster.install_kuberay_crds()
    status = job.comes(
        lambda s: s.get("phase") == "Running" and s["training"]["timesteps"] > saved, "training again", deadline_s=90
    )
    assert status.get("restarts", 0) == 0
    assert bare.operator.alive


def test_an_operator_that_starts_without_kuberay_is_ready_and_does_not_crash(bare: Operated, job: Job) -> None:
    pid = bare.operator.pid
    job.apply(script=SLOW)
    says_what_is_missing(job)
    assert bare.operator.is_ready()
    assert bare.operator.pid == pid
    bare.operator.stop()
    bare.operator.start()
    bare.cluster.install_kuberay_crds()
    job.reaches("Running", deadline_s=60)


def test_half_of_kuberay_is_not_enough(bare: Operated, job: Job) -> None:
    bare.cluster.install_kuberay_crds()
    bare.cluster.kubectl("delete", "crd", "rayjobs.ray.io")
    job.apply(script=SLOW)
    says_what_is_missing(job)
    bare.cluster.install_kuberay_crds()
    job.reaches("Running", deadline_s=60)
    eventually(lambda: bare.operator.is_ready(), what="a ready operator")
