"""Upgrading, restarting, uninstalling: nothing of it disturbs a job that runs, and nothing is forgotten."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.conftest import fresh_namespace, skip_without_binaries
from tests.controlplane.operated import Job, Manifest
from tests.kube.cluster import Cluster
from tests.kube.operator_process import CHART, NAMESPACE, RELEASE, OperatorProcess, install_chart
from tests.kuberay.standin import KubeRayStandIn

pytestmark = pytest.mark.timeout(300)

SLOW = {"timestepsPerS": 1_000, "checkpointEveryS": 1}
CRD_NAME = "rljobs.rlcore.io"
NEWER_FIELDS = (
    ("spec", "stallTimeout"),
    ("spec", "headServiceAccountName"),
    ("spec", "restartPolicy", "permanentExitCodes"),
    ("spec", "evaluators", "pools", "[]", "idleTimeout"),
    ("spec", "config", "compression"),
    ("status", "losses"),
    ("status", "cost"),
    ("status", "requests"),
    ("status", "evaluators", "pools", "[]", "movedAt"),
)
"""Optional fields that the older schema does not have yet."""


@pytest.fixture(scope="module")
def own_cluster(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with KubeRay's stand-in: what is installed in it is these tests' own business."""
    skip_without_binaries(pytestconfig)
    with Cluster(tmp_path_factory.mktemp("upgraded")) as running, KubeRayStandIn(running, "pods"):
        yield running


@pytest.fixture
def job(own_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Job]:
    """An RLJob, not applied yet."""
    with fresh_namespace(own_cluster, request.node.name) as name:
        yield Job(own_cluster, name, "cartpole-ppo")


def runs(job: Job) -> Manifest:
    """Waits until the job trains with all its pods; the status then."""
    return job.comes(
        lambda s: (
            s.get("phase") == "Running"
            and (s.get("checkpoint") or {}).get("timesteps")
            and s["evaluators"].get("ready") == 2
        ),
        "training with both evaluators",
    )


def what_runs(job: Job) -> dict[str, str]:
    """uid by kind and name of all that belongs to a running job."""
    return {
        f"{kind} {item['metadata']['name']}": item["metadata"]["uid"]
        for kind in ("rayjobs", "rayclusters", "pods", "configmaps", "pvc")
        for item in job.list(kind)
    }


def goes_on(job: Job) -> Manifest:
    """Waits until its numbers were renewed twice, the first time perhaps before anything was done; the status then."""
    status = job.status
    for _ in range(2):
        known = (status.get("training") or {}).get("timesteps", 0)
        status = job.comes(
            lambda s, known=known: s.get("phase") == "Running" and s["training"]["timesteps"] > known,
            f"more than {known} timesteps",
        )
    return status


def conditions(job: Job) -> dict[str, tuple[str, str, str]]:
    """Status, reason, and time of the last change of each condition."""
    return {c["type"]: (c["status"], c["reason"], c["lastTransitionTime"]) for c in job.status["conditions"]}


def operator(cluster: Cluster) -> OperatorProcess:
    """An operator that is missed soon: one that was killed still holds its Lease."""
    return OperatorProcess(cluster, {"leaderElection": {"leaseSeconds": 3}})


def older_chart(folder: Path) -> Path:
    """The chart with a schema that knows less."""
    chart = Path(shutil.copytree(CHART, folder / "older"))
    path = chart / "files" / "rlcore.io_rljobs.yaml"
    crd = yaml.safe_load(path.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for *parents, last in NEWER_FIELDS:
        node = schema
        for part in parents:
            node = node["items"] if part == "[]" else node["properties"][part]
        del node["properties"][last]
    path.write_text(yaml.safe_dump(crd, sort_keys=False))
    return chart


def helm_upgrade(cluster: Cluster, chart: Path = CHART, **values: Any) -> None:
    """`helm upgrade --install` without pods: the operator's process is ours to start and stop."""
    path = cluster.workdir / "values.yaml"
    path.write_text(yaml.safe_dump({"replicaCount": 0, **values}))
    command = ("upgrade", "--install", RELEASE, chart, "--namespace", NAMESPACE, "--create-namespace")
    cluster.helm(*command, "--values", path, "--wait")


def knows(cluster: Cluster, *path: str) -> bool:
    """Whether the CRD in the cluster has a field."""
    crd = json.loads(cluster.kubectl("get", "crd", CRD_NAME, "-o", "json").stdout)
    node = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in path:
        node = node["items"] if part == "[]" else node.get("properties", {}).get(part, {})
    return bool(node)


def test_jobs_made_under_an_older_crd_go_on_after_helm_upgrade(own_cluster: Cluster, job: Job, tmp_path: Path) -> None:
    helm_upgrade(own_cluster, older_chart(tmp_path))
    assert not knows(own_cluster, *NEWER_FIELDS[0])
    with operator(own_cluster) as process:
        # A newer operator on an older schema: what the schema drops is missed, and nothing else.
        job.apply(script=SLOW)
        runs(job)
        before, spec = what_runs(job), job.get()["spec"]
        assert before

        helm_upgrade(own_cluster)
        assert all(knows(own_cluster, *path) for path in NEWER_FIELDS)
        assert job.get()["spec"] == spec
        goes_on(job)
        process.stop()
        process.start()
        status = goes_on(job)
        assert what_runs(job) == before
        assert status["attempt"] == 1
        job.patch({"stallTimeout": "10m", "restartPolicy": {"permanentExitCodes": [4]}})
        assert job.get()["spec"]["stallTimeout"] == "10m"
        goes_on(job)
        assert status.get("restarts", 0) == 0


def test_new_settings_reach_new_jobs_and_leave_running_ones_alone(own_cluster: Cluster, job: Job) -> None:
    install_chart(own_cluster, {"settings": {"image": "rlcore-cpu:old"}})
    with operator(own_cluster):
        job.apply(script=SLOW)
        runs(job)
    before = what_runs(job)
    newer = {
        "image": "rlcore-cpu:new",
        "rayVersion": "2.59.0",
        "authMode": "disabled",
        "defaultClaim": {"size": "77Gi"},
        "placement": {"onDemand": {"nodeSelector": {"rlcore.io/test-kind": "on-demand-cpu"}}},
        "gpuTolerations": [],
    }
    install_chart(own_cluster, {"settings": newer})
    with operator(own_cluster):
        status = goes_on(job)
        assert what_runs(job) == before
        assert status["attempt"] == 1
        assert _images(job) == {"rlcore-cpu:old"}
        other = Job(own_cluster, job.namespace, "other")
        other.apply(script=SLOW)
        runs(other)
        assert _images(other) == {"rlcore-cpu:new"}
        # What begins anew on request begins with what is configured now.
        job.annotate(restart="1")
        job.comes(lambda s: s.get("attempt") == 2 and s["phase"] == "Running", "the second attempt")
        assert _images(job) == {"rlcore-cpu:new"}


def test_hyper_parameters_stay_those_of_the_first_start(own_cluster: Cluster, job: Job) -> None:
    install_chart(own_cluster)
    with operator(own_cluster):
        job.apply(script=SLOW, config={"gamma": 0.98})
        runs(job)
    # As an older operator would have left it, whose default for numEpochs was another one.
    run = job.get("configmap", f"{job.name}-run")
    document = yaml.safe_load(run["data"]["job.yaml"])
    assert document["spec"]["config"]["numEpochs"] == 10
    document["spec"]["config"]["numEpochs"] = 7
    patch = {"data": {"job.yaml": yaml.safe_dump(document)}}
    job.kubectl("patch", "configmap", f"{job.name}-run", "--type=merge", "-p", json.dumps(patch))
    before, digest = what_runs(job), job.status["resolvedConfigHash"]
    with operator(own_cluster):
        goes_on(job)
        assert what_runs(job) == before
        job.annotate(restart="1")
        status = job.comes(lambda s: s.get("attempt") == 2 and s["phase"] == "Running", "the second attempt")
    run = job.get("configmap", f"{job.name}-run")
    assert json.loads(run["data"]["control.json"])["attempt"] == 2
    assert yaml.safe_load(run["data"]["job.yaml"])["spec"]["config"]["numEpochs"] == 7
    assert status["resolvedConfigHash"] == digest


def test_restarts_of_the_operator_leave_a_running_job_alone(own_cluster: Cluster, job: Job) -> None:
    install_chart(own_cluster)
    with operator(own_cluster) as process:
        job.apply(script=SLOW)
        runs(job)
        before, known = what_runs(job), conditions(job)
        process.stop()
        process.start()
        goes_on(job)
        assert conditions(job) == known
        process.kill()
        process.start()
        status = goes_on(job)
        assert conditions(job) == known
    assert what_runs(job) == before
    assert status["attempt"] == 1
    assert status.get("restarts", 0) == 0
    assert status.get("preemptions", 0) == 0
    assert not status.get("losses")


def test_uninstalling_leaves_everything_and_installing_again_takes_over(own_cluster: Cluster, job: Job) -> None:
    install_chart(own_cluster)
    with operator(own_cluster):
        job.apply(script=SLOW)
        runs(job)
        before = what_runs(job)
        # The operator's process is alive when its rights go, as a pod that is being terminated.
        own_cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")
    assert job.get()["status"]["phase"] == "Running"
    assert what_runs(job) == before
    # Without an operator all of it can still be changed and deleted: nothing holds it up.
    job.patch({"ttlAfterFailed": "1d"})
    assert not job.get()["metadata"].get("finalizers")

    install_chart(own_cluster)
    with operator(own_cluster):
        status = goes_on(job)
        assert what_runs(job) == before
        assert status["attempt"] == 1
        own_cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")
    job.kubectl("delete", "rlj", job.name, "--timeout=30s")
    for kind in ("rayjobs", "rayclusters", "pods", "configmaps"):
        job.gone(kind)
    assert job.get("pvc", f"{job.name}-checkpoints")


def _images(job: Job) -> set[str]:
    number = str(job.status["attempt"])
    pods = [pod for pod in job.list("pods") if pod["metadata"]["labels"]["rlcore.io/attempt"] == number]
    return {pod["spec"]["containers"][0]["image"] for pod in pods}
