"""The stand-in for tests: started and stopped as a process of its own, with a log file."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Literal, Protocol, Self

from tests.kube.process import Daemon

ROOT = Path(__file__).parents[2]
_START_DEADLINE_S, _STOP_GRACE_S = 60.0, 30.0


class HasKubeconfig(Protocol):
    """A cluster, as far as the stand-in needs one."""

    kubeconfig: Path
    workdir: Path


class KubeRayStandIn:
    """A context manager.

    with KubeRayStandIn(cluster, "pods") as kuberay:
        ...
        kuberay.kill(), kuberay.start()      # as KubeRay's own restarts

    Args:
        cluster: whose API server it works for, as admin.
        mode: "pods" leaves the pods to kwok and scripts their Ray jobs, "process" makes each a real Ray node of
            processes on this machine, "node" leaves them to a real kubelet.
        workdir: volumes, logs, and what jobs have saved; kept by restarts. Below the cluster's, unless given.
        poll_s: between looks at a Ray job; KubeRay's own value is 3 s.
        kubeconfig: another one, for example of a fault proxy.
    """

    def __init__(
        self,
        cluster: HasKubeconfig,
        mode: Literal["pods", "process", "node"],
        *,
        workdir: Path | None = None,
        poll_s: float = 0.5,
        status_check_timeout_s: float = 300.0,
        volume_sync_s: float = 60.0,
        kubeconfig: Path | None = None,
    ) -> None:
        self.workdir = workdir or cluster.workdir / f"kuberay-{mode}"
        self.log = self.workdir / "kuberay.log"
        command: list[str | Path] = [
            *(sys.executable, "-m", "tests.kuberay"),
            *("--kubeconfig", kubeconfig or cluster.kubeconfig),
            *("--mode", mode, "--workdir", self.workdir),
            *("--poll-s", str(poll_s)),
            *("--status-check-timeout-s", str(status_check_timeout_s)),
            *("--volume-sync-s", str(volume_sync_s)),
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._daemon = Daemon(f"kuberay-{mode}", command, log=self.log, env=environment, cwd=ROOT)

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

    def start(self) -> None:
        """Returns once it follows the API server."""
        ready = self.workdir / "ready"
        ready.unlink(missing_ok=True)
        self._daemon.start(ready.exists, deadline_s=_START_DEADLINE_S)

    def stop(self) -> None:
        """SIGTERM; in mode process all that it started has ended when this returns."""
        self._daemon.stop(_STOP_GRACE_S)

    def kill(self) -> None:
        """SIGKILL; in mode process its watchdog ends what it started."""
        self._daemon.kill()

    def tail(self, lines: int = 30) -> str:
        return self._daemon.tail(lines)

    def claim(self, namespace: str, name: str) -> Path:
        """Mode process: the directory of a PersistentVolumeClaim."""
        return self.workdir / "claims" / namespace / name

    def container_log(self, namespace: str, pod: str, container: str) -> Path:
        """Mode process: what a container wrote; there as long as the working directory."""
        return self.workdir / "logs" / namespace / pod / f"{container}.log"

    def container_pid(self, namespace: str, pod: str, container: str = "") -> int:
        """Mode process: the first process of a container (the Ray container's, unless named). Raises LookupError."""
        for path in sorted((self.workdir / "pids").glob("*.json")):
            try:
                record = json.loads(path.read_text())
            except (OSError, ValueError):
                continue  # just ended
            if (record["namespace"], record["pod"]) == (namespace, pod) and record["container"].startswith(
                container or "ray-"
            ):
                return int(record["pid"])
        raise LookupError(f"no process of {namespace}/{pod} {container}")

    def kill_container(self, namespace: str, pod: str, container: str = "") -> None:
        """Mode process: SIGKILL to the container's process group, as if its node were lost."""
        os.killpg(self.container_pid(namespace, pod, container), signal.SIGKILL)
