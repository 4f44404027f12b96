"""A Kubernetes of one real node with the operator in it, from the project's own images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kube import binaries, images, real_node, sandbox
from tests.kube.cluster import Cluster
from tests.kube.images import Image, ImageStore
from tests.kube.operator_process import install_chart
from tests.kube.real_node import NODE, RealNode
from tests.kube.sandbox import Sandbox
from tests.kube.wait import eventually
from tests.kuberay.standin import KubeRayStandIn

VOLUMES = 8
TAG = "test"
_VALUES: dict[str, Any] = {
    "replicaCount": 1,
    "image": {"repository": images.OPERATOR, "tag": TAG},
    "settings": {"image": f"{images.TRAINING}:{TAG}"},
}


def why_not() -> str:
    """Why there can be no real node here, in one line; empty where there can."""
    needs = (sandbox.why_not(), real_node.why_not(), images.why_not(), binaries.why_not(binaries.MODULE_OF))
    return next((reason for reason in needs if reason), "")


@dataclass(frozen=True)
class Images:
    """What the pods are made from."""

    pause: Image
    operator: Image
    training: Image

    @classmethod
    def build(cls, store: ImageStore) -> Images:
        """All of them, from the tree as it is."""
        return cls(
            store.pause(),
            store.build("operator", f"{images.OPERATOR}:{TAG}"),
            store.build("rlcore-cpu", f"{images.TRAINING}:{TAG}"),
        )


@dataclass
class Machine:
    """What tests work with."""

    cluster: Cluster
    node: RealNode
    kuberay: KubeRayStandIn
    images: Images

    def node_is_ready(self) -> bool:
        """Whether the node says so, and its taints are gone."""
        found = json.loads(self.cluster.kubectl("get", "node", NODE, "-o", "json").stdout)
        conditions = {c["type"]: c["status"] for c in found.get("status", {}).get("conditions", [])}
        return conditions.get("Ready") == "True" and not found["spec"].get("taints")


@contextmanager
def machine(workdir: Path, store: ImageStore, built: Images) -> Iterator[Machine]:
    """Everything up: node Ready, operator installed by helm and Ready, KubeRay's stand-in at work."""
    with ExitStack() as stack:
        box = stack.enter_context(Sandbox(workdir))
        cluster = stack.enter_context(Cluster(workdir, host=sandbox.HOST_ADDRESS, binaries=tuple(binaries.MODULE_OF)))
        node = RealNode(cluster, box, images=images.CACHE / "containerd", pause=built.pause.name, labels={})
        running = Machine(cluster, node, KubeRayStandIn(cluster, "node"), built)
        try:
            stack.enter_context(node)
            for image in (built.pause, built.operator, built.training):
                node.take(store, image)
            node.start()
            cluster.apply(*_storage(workdir / "volumes"))
            eventually(running.node_is_ready, 60, what="the node Ready")
            stack.enter_context(running.kuberay)
            install_chart(cluster, _VALUES)
        except BaseException as error:
            error.add_note(node.tails())
            raise
        yield running


def _storage(folder: Path) -> list[dict[str, Any]]:
    """A default class of local volumes, and some of them: the kubelet gives them to the group of the pod."""
    volumes = []
    for index in range(VOLUMES):
        path = folder / f"volume-{index}"
        path.mkdir(parents=True)
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}]
        volumes.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"local-{index}"},
                "spec": {
                    "capacity": {"storage": "10Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": "local",
                    "local": {"path": str(path)},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                },
            }
        )
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    return [storage_class, *volumes]
