"""Nodes that cost nothing: the four kinds of machines of a cloud, as kwok plays them."""

from __future__ import annotations

from typing import Any, Literal, get_args

from tests.kube.control_plane import MANAGED_NODES

NodeKind = Literal["on-demand-cpu", "spot-cpu", "on-demand-gpu", "spot-gpu"]
NODE_KINDS: tuple[NodeKind, ...] = get_args(NodeKind)

KIND_LABEL = "rlcore.io/test-kind"
SPOT = "cloud.google.com/gke-spot"
GPU = "nvidia.com/gpu"


def node_manifest(kind: NodeKind, name: str) -> dict[str, Any]:
    """A node of 32 cores and 128 GiB, with four GPUs where its kind says so; taints as a cloud sets them."""
    spot, gpu = kind.startswith("spot"), kind.endswith("gpu")
    labels = {
        KIND_LABEL: kind,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    taints = []
    resources = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "500Gi", "pods": "250"}
    if spot:
        labels[SPOT] = "true"
        taints.append({"key": SPOT, "value": "true", "effect": "NoSchedule"})
    if gpu:
        resources[GPU] = "4"
        taints.append({"key": GPU, "value": "present", "effect": "NoSchedule"})
    annotation, _, value = MANAGED_NODES.partition("=")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {annotation: value}},
        "spec": {"taints": taints},
        "status": {"capacity": resources, "allocatable": resources},
    }
