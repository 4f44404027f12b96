"""A node whose kubelet answers: a kwok of its own that runs what is asked for on this machine, in place of containers.

Commands and logs so go the whole way: command line, websocket, API server, kubelet, process.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from tests.kube.cluster import Cluster
from tests.kube.process import Daemon, free_port

HOST = "127.0.0.1"


class LocalKubelet:
    """Plays the kubelet of one node, for pods that are put there by hand.

    Args:
        logs: what the containers of evaluators and learners print, in the format of a container runtime.
    """

    def __init__(self, cluster: Cluster, folder: Path, node: str, logs: Path) -> None:
        self.node = node
        self._cluster = cluster
        port = free_port()
        identity = cluster.control_plane.authority.issue(node, f"system:node:{node}", hosts=(HOST,))
        config = folder / "kwok.yaml"
        config.write_text("---\n".join(json.dumps(document) + "\n" for document in _documents(logs)))
        flags = {
            "kubeconfig": cluster.kubeconfig,
            "config": config,
            "manage-single-node": node,
            "node-ip": HOST,
            "node-port": port,
            "server-address": f"{HOST}:{port}",
            "tls-cert-file": identity.certificate,
            "tls-private-key-file": identity.key,
        }
        command = [cluster.binaries["kwok"], *(f"--{name}={value}" for name, value in flags.items())]
        self._daemon = Daemon(node, command, log=folder / "kwok.log", cwd=folder)
        self._port = port

    def start(self) -> None:
        """The kubelet listens when this returns, and the API server knows where."""
        self._daemon.start(lambda: not _refused(self._port), deadline_s=60)
        self._cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}})
        status = {
            "addresses": [{"type": "InternalIP", "address": HOST}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
        }
        patch = json.dumps({"status": status})
        self._cluster.kubectl("patch", "node", self.node, "--subresource=status", "--type=merge", "-p", patch)

    def stop(self) -> None:
        """The node stays; nobody answers there."""
        self._daemon.stop()

    def remove(self) -> None:
        """The node goes too."""
        self.stop()
        self._cluster.kubectl("delete", "node", self.node, "--ignore-not-found")

    def run_pod(self, namespace: str, name: str, labels: dict[str, str], *, phase: str = "Running") -> None:
        """A pod with a job's labels on this node."""
        container = "ray-head" if labels["rlcore.io/role"] == "head" else "ray-worker"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {"rlcore.io/attempt": "1", **labels}},
            "spec": {
                "nodeName": self.node,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": container, "image": "none"}],
            },
        }
        self._cluster.apply(pod)
        patch = json.dumps({"status": {"phase": phase}})
        self._cluster.kubectl(
            "patch", "pod", name, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch
        )


def _documents(logs: Path) -> list[dict[str, Any]]:
    kwok = "kwok.x-k8s.io/v1alpha1"
    log = {"logsFile": str(logs), "previousLogsFile": str(logs), "follow": True}
    # Statuses are the tests' own; but without any stage it does not start.
    nothing = {"resourceRef": {"apiGroup": "v1", "kind": "Node"}, "selector": {"matchLabels": {"none": "none"}}}
    return [
        {"apiVersion": kwok, "kind": "Stage", "metadata": {"name": "nothing"}, "spec": {**nothing, "next": {}}},
        {"apiVersion": kwok, "kind": "ClusterExec", "metadata": {"name": "all"}, "spec": {"execs": [{"local": {}}]}},
        {"apiVersion": kwok, "kind": "ClusterLogs", "metadata": {"name": "all"}, "spec": {"logs": [log]}},
    ]


def _refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0
