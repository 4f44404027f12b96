"""Where pods land: the real scheduler puts each pod of a job onto the kind of node that it belongs to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.conftest import fresh_job, skip_without_binaries
from tests.controlplane.operated import Job, Manifest, Operated
from tests.kube.cluster import Cluster
from tests.kube.nodes import GPU, KIND_LABEL, SPOT, NodeKind, node_manifest
from tests.kube.operator_process import OperatorProcess, install_chart
from tests.kuberay.standin import KubeRayStandIn

pytestmark = pytest.mark.timeout(240)

SLOW = {"timestepsPerS": 1_000}
SMALL = {"cpu": 1, "memory": "1Gi"}
MIXED = {
    "evaluators": {
        "pools": [
            {"name": "spot", "minReplicas": 3, "maxReplicas": 3, "preemptible": True, "resources": SMALL},
            {"name": "base", "minReplicas": 2, "maxReplicas": 2, "resources": SMALL},
        ]
    },
    "learner": {"gpus": 1, "resources": SMALL},
}
Kinds = dict[str, set[str]]


@pytest.fixture(scope="module")
def on_gke(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A cluster whose operator knows spot nodes as GKE labels and taints them."""
    skip_without_binaries(pytestconfig)
    with Cluster(tmp_path_factory.mktemp("placement")) as running:
        install_chart(running, {"settings": {"placement": {"preset": "gke"}, "gpuImage": "rlcore-gpu:1"}})
        with KubeRayStandIn(running, "pods") as kuberay, OperatorProcess(running) as operator:
            yield Operated(running, operator, kuberay)


@pytest.fixture
def job(on_gke: Operated, request: pytest.FixtureRequest) -> Iterator[Job]:
    # GPUs are few: the next test needs those of this one's pods.
    with fresh_job(on_gke.cluster, request.node.name) as job:
        yield job


def running_pods(job: Job) -> dict[str, list[Manifest]]:
    """Pods by pool, head and learner, once the job runs."""
    job.reaches("Running")
    groups: dict[str, list[Manifest]] = {}
    for pod in job.list("pods"):
        labels = pod["metadata"]["labels"]
        groups.setdefault(labels.get("rlcore.io/pool") or labels["rlcore.io/role"], []).append(pod)
    return groups


def kinds_of_nodes(job: Job) -> Kinds:
    """Kinds of nodes on which the pods of each group are, once the job runs."""
    nodes = json.loads(job.kubectl("get", "nodes", "-o", "json"))["items"]
    kind_of = {node["metadata"]["name"]: node["metadata"]["labels"][KIND_LABEL] for node in nodes}
    return {group: {kind_of[pod["spec"]["nodeName"]] for pod in pods} for group, pods in running_pods(job).items()}


@pytest.mark.parametrize(("preemptible", "learners"), [(False, "on-demand-gpu"), (True, "spot-gpu")])
def test_each_pod_of_a_mixed_job_lands_on_its_kind_of_node(job: Job, preemptible: bool, learners: str) -> None:
    job.apply(script=SLOW, **{**MIXED, "learner": {**MIXED["learner"], "preemptible": preemptible}})
    assert kinds_of_nodes(job) == {
        "head": {"on-demand-cpu"},
        "spot": {"spot-cpu"},
        "base": {"on-demand-cpu"},
        "learner": {learners},
    }
    pods = running_pods(job)
    assert {group: len(found) for group, found in pods.items()} == {"head": 1, "spot": 3, "base": 2, "learner": 1}
    for pod in pods["learner"]:
        assert pod["spec"]["containers"][0]["resources"]["limits"][GPU] == "1"
        assert pod["spec"]["containers"][0]["image"] == "rlcore-gpu:1"


def test_a_full_cluster_never_sends_pods_to_nodes_of_another_kind(on_gke: Operated, job: Job) -> None:
    """A pool of eight big pods for two on-demand nodes: what does not fit waits beside empty spot and GPU nodes."""
    big = {"name": "big", "minReplicas": 8, "maxReplicas": 8, "resources": {"cpu": 10, "memory": "4Gi"}}
    job.apply(script=SLOW, evaluators={"pools": [big]}, learner={"resources": SMALL})
    job.comes(
        lambda s: s["evaluators"]["pools"][0].get("reason") == "Unschedulable" and s["evaluators"]["replicas"] == 8,
        "a full cluster",
    )
    nodes = {pod["spec"].get("nodeName") for pod in job.list("pods")} - {None}
    assert nodes <= {"on-demand-cpu-a", "on-demand-cpu-b"}
    assert "Insufficient cpu" in job.condition("Provisioned")["message"]


def test_node_selectors_and_tolerations_of_the_manifest_are_honoured(on_gke: Operated, job: Job) -> None:
    node = node_manifest("on-demand-cpu", "dedicated")
    node["metadata"]["labels"] |= {"team": "rl", KIND_LABEL: "dedicated"}
    node["spec"]["taints"] = [{"key": "team", "value": "rl", "effect": "NoSchedule"}]
    on_gke.cluster.apply(node)
    try:
        here = {
            "nodeSelector": {"team": "rl"},
            "tolerations": [{"key": "team", "operator": "Equal", "value": "rl", "effect": "NoSchedule"}],
        }
        pool = {"name": "ours", "minReplicas": 2, "maxReplicas": 2, "resources": SMALL, **here}
        job.apply(script=SLOW, evaluators={"pools": [pool]}, learner={"resources": SMALL})
        assert kinds_of_nodes(job) == {"head": {"on-demand-cpu"}, "ours": {"dedicated"}, "learner": {"on-demand-cpu"}}
    finally:
        job.kubectl("delete", "rlj", job.name, "--timeout=30s")
        job.gone("pods")
        on_gke.cluster.remove_node("dedicated")


def test_affinity_of_the_manifest_is_honoured_beside_the_operators_own(job: Job) -> None:
    """Any on-demand or spot CPU node would do for the user; the operator allows no spot node for what is not
    preemptible.
    """
    term = {"matchExpressions": [{"key": KIND_LABEL, "operator": "In", "values": ["spot-cpu", "on-demand-cpu"]}]}
    other = {"matchExpressions": [{"key": KIND_LABEL, "operator": "In", "values": ["spot-cpu"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, other]}}
    apart = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"rlcore.io/job": job.name, "rlcore.io/pool": "apart"}},
            }
        ]
    }
    tolerations = [{"key": SPOT, "operator": "Exists"}]
    pool = {
        "name": "apart",
        "minReplicas": 2,
        "maxReplicas": 2,
        "resources": SMALL,
        "affinity": {"nodeAffinity": required, "podAntiAffinity": apart},
        "tolerations": tolerations,
    }
    job.apply(script=SLOW, evaluators={"pools": [pool]}, learner={"resources": SMALL})
    pods = running_pods(job)["apart"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"on-demand-cpu-a", "on-demand-cpu-b"}


def test_topology_spread_is_honoured(job: Job) -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"rlcore.io/job": job.name, "rlcore.io/pool": "even"}},
        # Nodes that these pods may not go to count as empty ones unless this says otherwise.
        "nodeTaintsPolicy": "Honor",
    }
    pool = {"name": "even", "minReplicas": 6, "maxReplicas": 6, "resources": SMALL}
    job.apply(
        script=SLOW,
        evaluators={"pools": [{**pool, "topologySpreadConstraints": [spread]}]},
        learner={"resources": SMALL},
    )
    pods = running_pods(job)["even"]
    nodes = [pod["spec"]["nodeName"] for pod in pods]
    assert sorted(map(nodes.count, set(nodes))) == [3, 3]


def test_a_priority_class_is_honoured(on_gke: Operated, job: Job) -> None:
    on_gke.cluster.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "training"},
            "value": 1000,
        }
    )
    job.apply(script=SLOW, head={"priorityClassName": "training"}, learner={"resources": SMALL})
    pods = running_pods(job)
    assert pods["head"][0]["spec"]["priority"] == 1000
    assert pods["learner"][0]["spec"]["priority"] == 0


def test_what_a_pod_template_adds_stands_beside_the_rest(job: Job) -> None:
    """A node selector and a toleration of the template's, with those of preemptible and of GPU."""
    template: dict[str, Any] = {
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "spot-gpu-b"},
            "tolerations": [{"key": "more", "operator": "Exists"}],
        }
    }
    learner = {"gpus": 2, "preemptible": True, "resources": SMALL, "podTemplate": template}
    job.apply(script=SLOW, learner=learner)
    (pod,) = running_pods(job)["learner"]
    assert pod["spec"]["nodeName"] == "spot-gpu-b"
    keys = {toleration.get("key") for toleration in pod["spec"]["tolerations"]}
    assert {SPOT, GPU, "more", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} <= keys
    assert pod["spec"]["nodeSelector"] == {SPOT: "true", "kubernetes.io/hostname": "spot-gpu-b"}


def test_the_claim_of_the_checkpoints_is_mounted_by_the_head_alone(job: Job) -> None:
    job.apply(script=SLOW)
    pods = running_pods(job)

    def claims(pod: Manifest) -> list[str]:
        volumes = pod["spec"].get("volumes", [])
        return [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]

    assert claims(pods["head"][0]) == [f"{job.name}-checkpoints"]
    others = [pod for group, found in pods.items() if group != "head" for pod in found]
    assert others
    assert not any(map(claims, others))


def test_kinds_of_nodes_are_all_there(on_gke: Operated) -> None:
    """The tests above would mean nothing without nodes of the wrong kinds."""
    nodes = json.loads(on_gke.cluster.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    wanted: set[NodeKind] = {"on-demand-cpu", "spot-cpu", "on-demand-gpu", "spot-gpu"}
    assert {node["metadata"]["labels"][KIND_LABEL] for node in nodes} == wanted
