"""From `helm install` and `kubectl apply` to a trained policy, on real pods of the project's own images."""

from __future__ import annotations

import pytest

from tests.controlplane.operated import Job
from tests.kube.cluster import ROOT
from tests.node.machine import Machine

pytestmark = pytest.mark.timeout(900)

EXAMPLE = ROOT / "examples" / "cartpole-ppo.yaml"


def test_the_example_trains_on_pods_and_leaves_its_checkpoint(real_machine: Machine, job: Job) -> None:
    job.kubectl("apply", "-f", str(EXAMPLE))
    job.reaches("Running", deadline_s=300)
    status = job.reaches("Succeeded", deadline_s=300)
    assert status["training"]["episodeRewardMean"] >= 475
    assert status.get("restarts", 0) == 0
    for kind in ("rayjobs", "rayclusters", "pods"):
        job.gone(kind)
