"""An operator with no rights in the cluster as a whole: it acts in its namespaces alone, and misses nothing there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controlplane.conftest import skip_without_binaries
from tests.controlplane.operated import Job, Operated
from tests.kube.cluster import ROOT, Cluster
from tests.kube.operator_process import OperatorProcess, install_chart
from tests.kube.wait import eventually
from tests.kuberay.standin import KubeRayStandIn

pytestmark = pytest.mark.timeout(300)

SLOW = {"timestepsPerS": 1_000}
WATCHED, OTHER = "team-a", "team-c"
VALUES = {
    "watchNamespaces": [WATCHED, "team-b"],
    "rbac": {"aggregatedRoles": False},
    "admissionPolicy": {"enabled": False},
    "crds": {"install": False},
}


@pytest.fixture(scope="module")
def namespaced(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """Without KubeRay's resources: they come when the operator is at work."""
    skip_without_binaries(pytestconfig)
    with Cluster(tmp_path_factory.mktemp("namespaced"), kuberay=False) as running:
        for name in (*VALUES["watchNamespaces"], OTHER):
            running.create_namespace(str(name))
        running.kubectl("apply", "--server-side", "-f", ROOT / "crds" / "rlcore.io_rljobs.yaml")
        install_chart(running, VALUES)
        with KubeRayStandIn(running, "pods") as kuberay, OperatorProcess(running) as operator:
            yield Operated(running, operator, kuberay)


def test_it_acts_in_its_namespaces_alone_and_sees_kuberay_come(namespaced: Operated) -> None:
    watched, other = Job(namespaced.cluster, WATCHED, "cart"), Job(namespaced.cluster, OTHER, "cart")
    for job in (other, watched):
        eventually(lambda job=job: job.apply(script=SLOW), what="RLJobs in the API")
    watched.comes(lambda s: any(c["reason"] == "KubeRayMissing" for c in s.get("conditions", [])), "KubeRayMissing")
    namespaced.cluster.install_kuberay_crds()
    watched.comes(lambda s: s.get("phase") == "Running" and s["evaluators"].get("ready") == 2, "training")
    watched.kubectl("scale", "rlj/cart", "--replicas=3")
    watched.comes(lambda s: s["evaluators"].get("ready") == 3, "three evaluators")
    assert other.status == {}
    assert not other.list("rayjobs")
    watched.kubectl("delete", "rlj", "cart", "--timeout=30s")
    watched.gone("pods")
    later = Job(namespaced.cluster, "team-b", "later").apply(script={"timestepsPerS": 100_000})
    later.reaches("Succeeded")
    assert namespaced.operator.alive
