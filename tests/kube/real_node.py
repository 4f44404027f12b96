"""A real node: containerd, kubelet, kube-proxy and a cluster DNS in a sandbox of their own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from tests.kube.cluster import Cluster
from tests.kube.images import Image, ImageStore
from tests.kube.kubeconfig import write_kubeconfig
from tests.kube.process import Daemon
from tests.kube.sandbox import BRIDGE, BRIDGE_ADDRESS, NODE_ADDRESS, POD_CIDR, Sandbox, run

NODE = "node-a"
DNS_ADDRESS, DOMAIN = "10.96.0.10", "cluster.local"
CNI_PLUGINS = Path("/usr/lib/cni")
_COMMANDS = ("containerd", "ctr", "runc")


def why_not() -> str:
    """Why there can be no node here, in one line; empty where there can."""
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    if missing:
        return f"no {', '.join(missing)} on PATH (Debian: containerd, runc)"
    return "" if (CNI_PLUGINS / "bridge").exists() else f"no {CNI_PLUGINS}/bridge (Debian: containernetworking-plugins)"


class RealNode:
    """A context manager: the node is Ready on entry; on exit its processes and containers are gone.

    Args:
        cluster: on an address that the sandbox reaches.
        sandbox: where it lives.
        images: containerd's own folder; images stay there from one run to the next.
        pause: the image of pod sandboxes, one of `images`.
        labels: of the Node.
    """

    def __init__(
        self, cluster: Cluster, sandbox: Sandbox, *, images: Path, pause: str, labels: Mapping[str, str]
    ) -> None:
        self.cluster, self.sandbox = cluster, sandbox
        self._folder = cluster.workdir / "node"
        self._images, self._pause, self._labels = images, pause, labels
        self._binaries = cluster.binaries
        self._socket = self._folder / "containerd.sock"
        self.containerd = self._daemon("containerd", ["containerd", "--config", self._containerd_config()])
        self.kubelet = self._daemon("kubelet", [self._binaries["kubelet"], *self._kubelet_flags()])
        proxy = [self._binaries["kube-proxy"], "--config", self._proxy_config()]
        self.proxy = self._daemon("kube-proxy", proxy)
        self.dns = self._daemon("coredns", [self._binaries["coredns"], "-conf", self._corefile()])

    def __enter__(self) -> Self:
        self.containerd.start(lambda: bool(self.ctr("version")), deadline_s=60)
        return self

    def __exit__(self, *error: object) -> None:
        for daemon in (self.dns, self.proxy, self.kubelet, self.containerd):
            daemon.stop(2)

    def start(self) -> None:
        """Joins the cluster; the images of its pods must be there."""
        self._forget_containers()
        self.cluster.apply(*_proxy_rights(), *_dns_objects())
        for daemon in (self.kubelet, self.proxy, self.dns):
            daemon.start()

    def ctr(self, *arguments: str | Path, timeout_s: float = 600) -> str:
        """containerd's own client, in Kubernetes' namespace."""
        command = ["ctr", "--address", self._socket, "--namespace", "k8s.io", *arguments]
        return run(*self.sandbox.command(command), timeout_s=timeout_s)

    def take(self, store: ImageStore, image: Image) -> None:
        """Brings an image in, unless the very same is there."""
        if f"sha256:{image.digest}" in self.ctr("images", "list", "--quiet").split():
            self.ctr("images", "tag", "--force", f"sha256:{image.digest}", image.name)
            return
        importing = ["ctr", "--address", self._socket, "--namespace", "k8s.io", "images", "import", "-"]
        store.export(image, self.sandbox.command(importing))

    def tails(self) -> str:
        """The ends of all logs."""
        return "\n".join(daemon.tail(15) for daemon in (self.containerd, self.kubelet, self.proxy, self.dns))

    def _forget_containers(self) -> None:
        """Of a run that was killed: their processes are gone, what they were made of is not."""
        for container in self.ctr("containers", "list", "--quiet").split():
            self.ctr("containers", "delete", container)

    def _daemon(self, name: str, command: list[str | Path]) -> Daemon:
        return self.sandbox.daemon(name, command, log=self.cluster.workdir / "logs" / f"{name}.log")

    def _write(self, name: str, text: str) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / name
        path.write_text(text)
        return path

    def _containerd_config(self) -> Path:
        cni = self._folder / "cni"
        cni.mkdir(parents=True, exist_ok=True)
        (cni / "10-bridge.conflist").write_text(json.dumps(_network(self._folder)))
        return self._write(
            "containerd.toml",
            f"""
version = 2
root = "{self._images}"
state = "{self._folder / "containerd"}"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]
[grpc]
address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{self._pause}"
# In a machine without CAP_SYS_RESOURCE runc cannot lower a process' score.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PLUGINS}"
conf_dir = "{cni}"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
""",
        )

    def _kubelet_flags(self) -> list[str | Path]:
        authority = self.cluster.control_plane.authority
        serving = authority.issue("kubelet", f"system:node:{NODE}", hosts=(NODE_ADDRESS, NODE))
        client = authority.issue("kubelet-client-of-api", f"system:node:{NODE}", groups=("system:nodes",))
        kubeconfig = write_kubeconfig(
            self._folder / "kubelet.kubeconfig", self.cluster.server, authority.certificate, client
        )
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(serving.certificate),
            "tlsPrivateKeyFile": str(serving.key),
            "address": NODE_ADDRESS,
            "clusterDomain": DOMAIN,
            "clusterDNS": [DNS_ADDRESS],
            "resolvConf": str(self._write("resolv.conf", f"nameserver {BRIDGE_ADDRESS}\n")),
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "nodeStatusReportFrequency": "10s",
            "syncFrequency": "10s",
            "registerWithTaints": [],
        }
        labels = ",".join(f"{name}={value}" for name, value in self._labels.items())
        return [
            *("--config", self._write("kubelet.yaml", yaml.safe_dump(config))),
            *("--kubeconfig", kubeconfig),
            *("--root-dir", self._folder / "kubelet"),
            *("--hostname-override", NODE),
            *("--node-ip", NODE_ADDRESS),
            *(("--node-labels", labels) if labels else ()),
        ]

    def _proxy_config(self) -> Path:
        authority = self.cluster.control_plane.authority
        client = authority.issue("kube-proxy", "system:kube-proxy")
        kubeconfig = write_kubeconfig(
            self._folder / "kube-proxy.kubeconfig", self.cluster.server, authority.certificate, client
        )
        config: dict[str, Any] = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "mode": "iptables",
            "clusterCIDR": POD_CIDR,
            "hostnameOverride": NODE,
            # Pods of one bridge answer each other directly, past what would turn a service's address back.
            "iptables": {"masqueradeAll": True},
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
        return self._write("kube-proxy.yaml", yaml.safe_dump(config))

    def _corefile(self) -> Path:
        authority = self.cluster.control_plane.authority
        client = authority.issue("coredns", "test-coredns", groups=("system:masters",))
        kubeconfig = write_kubeconfig(
            self._folder / "coredns.kubeconfig", self.cluster.server, authority.certificate, client
        )
        return self._write(
            "Corefile",
            f"""
{DOMAIN} in-addr.arpa {{
  bind {BRIDGE_ADDRESS}
  errors
  kubernetes {DOMAIN} in-addr.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 1
  }}
}}
. {{
  bind {BRIDGE_ADDRESS}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
""",
        )


def _network(folder: Path) -> dict[str, Any]:
    """The bridge plugin's configuration."""
    return {
        "cniVersion": "1.0.0",
        "name": "bridge",
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(folder / "addresses"),
                    "ranges": [[{"subnet": POD_CIDR}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _proxy_rights() -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "test:kube-proxy"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-proxy"}],
        }
    ]


def _dns_objects() -> list[dict[str, Any]]:
    """The service of the DNS, which is a process of the node and not a pod."""
    ports = [{"name": f"dns-{protocol.lower()}", "port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {"clusterIP": DNS_ADDRESS, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [BRIDGE_ADDRESS], "conditions": {"ready": True}}],
            "ports": ports,
        },
    ]
