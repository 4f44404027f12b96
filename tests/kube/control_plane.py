"""The processes of a cluster: etcd, API server, controller manager, scheduler and kwok, all on this machine."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.kube.kubeconfig import write_kubeconfig
from tests.kube.pki import Authority, signing_key
from tests.kube.process import Daemon, free_port, stop_all

HOST = "127.0.0.1"
STAGES_DIR = Path(__file__).parent / "kwok"
MANAGED_NODES = "kwok.x-k8s.io/node=fake"
"""The annotation of the nodes that kwok plays; it leaves all others, and the pods on them, alone."""


class ControlPlane:
    """Starts and stops the processes in their order, and writes the keys and the kubeconfig that they need.

    Args:
        workdir: of all files.
        binaries: name -> path.
        host: address of the API server. One that pods can reach makes the service `kubernetes` lead there, and kwok
            plays no nodes then: there are real ones.
    """

    def __init__(self, workdir: Path, binaries: Mapping[str, Path], *, host: str = HOST) -> None:
        self.workdir = workdir
        self.binaries = binaries
        self.host = host
        self.authority = Authority(workdir / "pki")
        self.server = f"https://{host}:{free_port(host)}"
        self.etcd_url = f"http://{HOST}:{free_port()}"
        admin = self.authority.issue("admin", "test-admin", groups=("system:masters",))
        self.kubeconfig = write_kubeconfig(workdir / "kubeconfig", self.server, self.authority.certificate, admin)
        self._token_key = signing_key(workdir / "pki" / "service-accounts.key")
        tls = ssl.create_default_context(cafile=str(self.authority.certificate))
        tls.load_cert_chain(admin.certificate, admin.key)
        no_proxy = urllib.request.ProxyHandler({})
        self._opener = urllib.request.build_opener(no_proxy, urllib.request.HTTPSHandler(context=tls))
        self.etcd = self._daemon("etcd", self._etcd_flags())
        self.api_server = self._daemon("kube-apiserver", self._api_server_flags())
        self.controller_manager = self._daemon("kube-controller-manager", self._controller_manager_flags())
        self.scheduler = self._daemon("kube-scheduler", self._scheduler_flags())
        self.kwok = self._daemon("kwok", self._kwok_flags()) if host == HOST else None

    @property
    def daemons(self) -> tuple[Daemon, ...]:
        """All of them, in the order in which they start."""
        always = self.etcd, self.api_server, self.controller_manager, self.scheduler
        return (*always, self.kwok) if self.kwok else always

    def start(self) -> None:
        """Starts all; the API server answers when this returns, the others may still be at their first lists."""
        self.etcd.start(lambda: self._answers(f"{self.etcd_url}/health"), deadline_s=120)
        self.start_api_server()
        for daemon in self.daemons[2:]:
            daemon.start()

    def start_api_server(self) -> None:
        """Starts the API server on its port, and waits until it is ready."""
        self.api_server.start(lambda: self._answers(f"{self.server}/readyz"), deadline_s=120)

    def stop(self) -> None:
        """Stops all, those first that would complain of the others' absence."""
        stop_all(reversed(self.daemons[2:]), grace_s=3)
        stop_all([self.api_server], grace_s=3)
        stop_all([self.etcd], grace_s=3)

    def tails(self) -> str:
        """The ends of all logs."""
        return "\n".join(daemon.tail(5) for daemon in self.daemons)

    def request(self, path: str, *, body: bytes | None = None, content_type: str = "application/json") -> bytes:
        """GET as admin, or POST where there is a body; the answer as it came. Raises urllib's HTTPError."""
        request = urllib.request.Request(f"{self.server}{path}", body, {"Content-Type": content_type})
        with self._opener.open(request, timeout=60) as answer:
            return bytes(answer.read())

    def _answers(self, url: str) -> bool:
        try:
            with self._opener.open(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False

    def _daemon(self, binary: str, flags: Mapping[str, object]) -> Daemon:
        command = [str(self.binaries[binary]), *(f"--{name}={value}" for name, value in flags.items())]
        return Daemon(binary, command, log=self.workdir / "logs" / f"{binary}.log", cwd=self.workdir)

    def _etcd_flags(self) -> dict[str, object]:
        peers = f"http://{HOST}:{free_port()}"
        return {
            "name": "test",
            "data-dir": self.workdir / "etcd",
            "listen-client-urls": self.etcd_url,
            "advertise-client-urls": self.etcd_url,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"test={peers}",
            "unsafe-no-fsync": "true",  # the data need not outlive the machine
            "log-level": "warn",
        }

    def _api_server_flags(self) -> dict[str, object]:
        hosts = (self.host, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1")
        serving = self.authority.issue("api-server", "kube-apiserver", hosts=hosts)
        return {
            **(self._kubelet_flags() if self.host != HOST else {}),
            "etcd-servers": self.etcd_url,
            "bind-address": self.host,
            "advertise-address": self.host,
            # A loopback address is no endpoint for pods.
            "endpoint-reconciler-type": "none" if self.host == HOST else "lease",
            "secure-port": self.server.rpartition(":")[2],
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "client-ca-file": self.authority.certificate,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self._token_key,
            "service-account-signing-key-file": self._token_key,
            "service-cluster-ip-range": "10.96.0.0/16",
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "profiling": "false",
        }

    def _kubelet_flags(self) -> dict[str, object]:
        """How it reaches kubelets, for logs and exec."""
        client = self.authority.issue("kubelet-client", "kube-apiserver", groups=("system:masters",))
        return {
            "kubelet-preferred-address-types": "InternalIP",
            "kubelet-certificate-authority": self.authority.certificate,
            "kubelet-client-certificate": client.certificate,
            "kubelet-client-key": client.key,
        }

    def _controller_manager_flags(self) -> dict[str, object]:
        return {
            **self._client_flags(),
            "controllers": "*",
            "service-account-private-key-file": self._token_key,
            "root-ca-file": self.authority.certificate,
            "enable-hostpath-provisioner": "true",
            "concurrent-namespace-syncs": 20,
            # Of kwok's nodes longer than the busiest machine keeps it from renewing their leases.
            "node-monitor-grace-period": "5m" if self.host == HOST else "40s",
        }

    def _scheduler_flags(self) -> dict[str, object]:
        return self._client_flags()

    def _client_flags(self) -> dict[str, object]:
        return {
            "kubeconfig": self.kubeconfig,
            "leader-elect": "false",  # a lost lease, as in an API server's restart, would end the process
            "secure-port": 0,
            "kube-api-qps": 500,
            "kube-api-burst": 1000,
        }

    def _kwok_flags(self) -> dict[str, object]:
        stages = self.workdir / "stages.yaml"
        stages.write_text("---\n".join(path.read_text() for path in sorted(STAGES_DIR.glob("*.yaml"))))
        return {
            "kubeconfig": self.kubeconfig,
            "config": stages,
            "manage-nodes-with-annotation-selector": MANAGED_NODES,
            "node-lease-duration-seconds": 40,
            "cidr": "10.128.0.1/16",
            "node-ip": "10.127.0.1",
        }
