"""The whole path for real: helm install, kubectl apply, a Ray cluster of several nodes, training to the threshold."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.conftest import fresh_job, skip_without_binaries
from tests.controlplane.operated import Job, Manifest, Operated
from tests.kube.cluster import ROOT, Cluster
from tests.kube.operator_process import OperatorProcess, install_chart
from tests.kuberay.standin import KubeRayStandIn

pytestmark = pytest.mark.timeout(900)

EXAMPLE = ROOT / "examples" / "cartpole-ppo.yaml"


@pytest.fixture(scope="module")
def for_real(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A cluster whose RayClusters are real Rays on this machine."""
    skip_without_binaries(pytestconfig)
    with Cluster(tmp_path_factory.mktemp("real")) as cluster:
        install_chart(cluster)
        with KubeRayStandIn(cluster, "process") as kuberay, OperatorProcess(cluster) as operator:
            yield Operated(cluster, operator, kuberay)


@pytest.fixture
def job(for_real: Operated, request: pytest.FixtureRequest) -> Iterator[Job]:
    """cartpole-ppo in a fresh namespace; what is left of it is deleted."""
    with fresh_job(for_real.cluster, request.node.name, delete_s=60, gone_s=90) as job:
        yield job


def checkpoints(for_real: Operated, job: Job) -> list[Path]:
    """Complete checkpoints in the job's claim."""
    claim = for_real.kuberay.claim(job.namespace, f"{job.name}-checkpoints")
    return sorted(claim.glob(f"{job.name}/**/manifest.json"))


def test_the_example_is_applied_trains_to_its_threshold_and_leaves_its_checkpoint(for_real: Operated, job: Job) -> None:
    job.kubectl("apply", "-f", str(EXAMPLE))
    job.reaches("Provisioning")
    assert job.condition("Provisioned")["status"] == "False"
    running = job.reaches("Running", deadline_s=300)
    assert running["evaluators"]["ready"] == 2
    assert running["learners"]["ready"] == 1
    status = job.reaches("Succeeded", deadline_s=400)
    assert status["training"]["episodeRewardMean"] >= 475
    assert status["training"]["timesteps"] <= 200_000
    assert status.get("restarts", 0) == 0
    assert checkpoints(for_real, job)
    for kind in ("rayjobs", "rayclusters", "pods"):
        job.gone(kind)
    reasons = [reason for reason, _ in job.events()]
    assert {"PodsReady", "Training", "CheckpointWritten", "Succeeded"} <= set(reasons)


LONGER = {
    "stop": {"timesteps": 400_000},
    "checkpoint": {"every": "3s", "keep": 3},
    "evaluation": None,
    "restartPolicy": {"backoff": "1s"},
}
"""The same job with time for an accident; it ends by timesteps, whatever it has learned."""


def trains(job: Job, beyond: int = 0) -> Manifest:
    """Waits until a checkpoint beyond some timesteps is there, the status then."""
    return job.comes(
        lambda s: s.get("phase") == "Running" and (s.get("checkpoint") or {}).get("timesteps", 0) > beyond,
        f"a checkpoint beyond {beyond} timesteps",
        deadline_s=300,
    )


def driver_pid(job: Job) -> int:
    """The driver's process, by what the kernel says of its command line and environment."""
    for process in Path("/proc").iterdir():
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
            environment = (process / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if b"rlcore.driver" in command and f"POD_NAMESPACE={job.namespace}".encode() in environment:
            return int(process.name)
    raise AssertionError("no driver runs")


def test_a_killed_driver_is_started_again_and_goes_on_from_its_checkpoint(for_real: Operated, job: Job) -> None:
    job.apply(**LONGER)
    before = trains(job)["checkpoint"]["timesteps"]
    os.kill(driver_pid(job), signal.SIGKILL)
    status = job.comes(lambda s: s.get("attempt") == 2, "the second attempt", deadline_s=120)
    assert status["restarts"] == 1
    assert status["lastFailure"]["exitCode"] == 137
    assert status["attempts"][0]["timesteps"] >= before
    done = job.reaches("Succeeded", deadline_s=400)
    assert done["training"]["timesteps"] >= 400_000
    assert [a["reason"] for a in done["attempts"]] == [status["lastFailure"]["class"], "Succeeded"]


def test_a_killed_worker_node_is_a_loss_and_training_goes_on_without_it(for_real: Operated, job: Job) -> None:
    job.apply(**LONGER)
    trains(job)
    victim = next(p for p in job.list("pods") if p["metadata"]["labels"]["rlcore.io/role"] == "evaluator")
    for_real.kuberay.kill_container(job.namespace, victim["metadata"]["name"])
    job.comes(lambda s: any(loss["role"] == "evaluator" for loss in s.get("losses", [])), "the loss", deadline_s=30)
    status = job.comes(lambda s: s["evaluators"]["ready"] == 2, "both evaluators again", deadline_s=120)
    assert status["attempt"] == 1
    done = job.reaches("Succeeded", deadline_s=400)
    assert done["attempt"] == 1
    assert done.get("restarts", 0) == 0
    assert done["training"]["timesteps"] >= 400_000


def test_suspended_half_way_it_gives_everything_back_and_resumes_where_it_was(for_real: Operated, job: Job) -> None:
    job.apply(**LONGER)
    trains(job)
    job.patch({"suspend": True})
    job.reaches("Suspended", deadline_s=120)
    job.gone("pods")
    saved = job.status["checkpoint"]["timesteps"]
    assert 0 < saved < 400_000
    job.patch({"suspend": False})
    done = job.reaches("Succeeded", deadline_s=400)
    assert done["attempt"] == 2
    assert done.get("restarts", 0) == 0
    assert done["attempts"][0]["reason"] == "Suspended"
    assert done["attempts"][0]["timesteps"] == saved
