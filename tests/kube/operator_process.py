"""The operator as tests run it: its chart installed by the real helm, its process outside of the cluster, under the
chart's own ServiceAccount.
"""

from __future__ import annotations

import os
import signal
import sys
import urllib.request
from pathlib import Path
from typing import Any, Self

import yaml

from tests.kube.cluster import ROOT, Cluster
from tests.kube.process import Daemon, free_port

CHART = ROOT / "charts" / "rljob-operator"
RELEASE, NAMESPACE = "rljob-operator", "rljob-system"
_START_DEADLINE_S, _STOP_GRACE_S = 60.0, 30.0

QUICK: dict[str, Any] = {"pollSeconds": 0.3, "resyncSeconds": 30, "liveStatusSeconds": 1}
"""Times for tests that wait for what follows; tests of the times themselves set their own."""


def install_chart(cluster: Cluster, values: dict[str, Any] | None = None) -> None:
    """`helm install` with no replicas: rights, configuration and CRD."""
    path = cluster.workdir / "operator-values.yaml"
    path.write_text(yaml.safe_dump({"replicaCount": 0, **(values or {})}))
    command = ("upgrade", "--install", RELEASE, CHART, "--namespace", NAMESPACE, "--create-namespace")
    cluster.helm(*command, "--values", path, "--wait")


class OperatorProcess:
    """A context manager.

    with OperatorProcess(cluster) as operator:
        operator.kill(), operator.start()

    Args:
        cluster: with the chart installed.
        settings: on top of the chart's own settings file; `times` are merged with QUICK.
        name: of the replica, for its log and identity.
        server: another address of the API server, such as a fault proxy's.
        namespace: of the release.
        command: that takes the place of `python -m rljob_operator`.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: dict[str, Any] | None = None,
        *,
        name: str = "operator",
        server: str | None = None,
        namespace: str = NAMESPACE,
        command: tuple[str | Path, ...] = (sys.executable, "-m", "rljob_operator"),
    ) -> None:
        self.port = free_port()
        found = cluster.kubectl("get", "configmap", RELEASE, "-n", namespace, "-o", "yaml").stdout
        values = yaml.safe_load(yaml.safe_load(found)["data"]["config.yaml"])
        settings = settings or {}
        values |= {"host": "127.0.0.1", "port": self.port, "logFormat": "text", **settings}
        values["times"] = {**values.get("times", {}), **QUICK, **settings.get("times", {})}
        path = cluster.workdir / f"{name}.yaml"
        path.write_text(yaml.safe_dump(values))
        kubeconfig = cluster.kubeconfig_for(namespace, RELEASE, **({"server": server} if server else {}))
        environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "RLJOB_OPERATOR_CONFIG": str(path),
            "POD_NAME": name,
            "POD_NAMESPACE": namespace,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}",
        }
        self.log = Path(cluster.workdir) / f"{name}.log"
        self._daemon = Daemon(name, command, log=self.log, env=environment, cwd=ROOT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._daemon.pid

    @property
    def alive(self) -> bool:
        return self._daemon.alive

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._daemon.returncode

    def get(self, path: str) -> str:
        """What its HTTP endpoint says: "metrics", "healthz", "readyz". Raises OSError."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=5) as answer:
            text: str = answer.read().decode()
        return text

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric's samples with these labels."""
        total = 0.0
        for line in self.get("metrics").splitlines():
            head, _, value = line.rpartition(" ")
            metric, _, rest = head.partition("{")
            if metric == name and all(f'{key}="{wanted}"' in rest for key, wanted in labels.items()):
                total += float(value)
        return total

    def is_ready(self) -> bool:
        """Whether it answers that it is."""
        try:
            return self.get("readyz") == "ok\n"
        except OSError:
            return False

    def start(self) -> None:
        """Returns once it serves; leading may take longer."""
        self._daemon.start(self.is_ready, deadline_s=_START_DEADLINE_S)

    def stop(self) -> None:
        """SIGTERM, and waits for the end."""
        self._daemon.stop(_STOP_GRACE_S)

    def kill(self) -> None:
        """SIGKILL."""
        self._daemon.kill()

    def send(self, number: int) -> None:
        """Sends a signal, and waits for nothing."""
        self._daemon.send(number)

    def tail(self, lines: int = 30) -> str:
        return self._daemon.tail(lines)


class RestartedOperator(OperatorProcess):
    """An operator that is started again whenever it ends, as a kubelet does it, but within milliseconds."""

    def __init__(self, cluster: Cluster, settings: dict[str, Any] | None = None, *, name: str, server: str) -> None:
        self._pid_file = cluster.workdir / f"{name}.pid"
        command = (sys.executable, "-m", "tests.kube.operator_forks", self._pid_file)
        super().__init__(cluster, settings, name=name, server=server, command=command)

    def kill_operator(self) -> None:
        """SIGKILL to the one that runs now."""
        os.kill(int(self._pid_file.read_text()), signal.SIGKILL)
