"""What the tests of the cluster commands share: running them, and playing the operator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlcore.cli.main import run_cli
from tests.kube.cluster import ROOT, Cluster
from tests.kube.wait import eventually

MANIFEST = """\
apiVersion: rlcore.io/v1alpha1
kind: RLJob
metadata: {name: cart}
spec:
  algorithm: PPO
  environment: {id: CartPole-v1}
  stop: {timesteps: 200000, episodeReward: 475}
  evaluators:
    pools: [{name: spot, minReplicas: 1, maxReplicas: 8}]
"""


def serve_rljobs(cluster: Cluster) -> None:
    """Installs the API of RLJobs, whether it is there already or not."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", ROOT / "crds" / "rlcore.io_rljobs.yaml")
    eventually(lambda: cluster.kubectl("get", "rljobs", check=False).returncode == 0, 60, what="RLJobs in the API")


def admin_in(cluster: Cluster, namespace: str, folder: Path) -> Path:
    """A kubeconfig of the admin, whose context is in this namespace."""
    document = json.loads(cluster.kubeconfig.read_text())
    document["contexts"][0]["context"]["namespace"] = namespace
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


@dataclass(frozen=True)
class Result:
    """What a command line ended with."""

    code: int
    out: str
    err: str


class Cli:
    """The command line with one kubeconfig and a directory for manifests, in this very process."""

    def __init__(self, kubeconfig: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.kubeconfig, self.folder, self._capfd = kubeconfig, folder, capfd

    def __call__(self, *arguments: str, kubeconfig: Path | None = None) -> Result:
        self._capfd.readouterr()
        code = run_cli([*arguments, "--kubeconfig", str(kubeconfig or self.kubeconfig)])
        return Result(code, *self._capfd.readouterr())

    def manifest(self, text: str = MANIFEST, **changes: str) -> str:
        """Path of a manifest, with texts of it replaced."""
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        path = self.folder / "job.yaml"
        path.write_text(text)
        return str(path)


class Job:
    """An RLJob as the operator sees it: its status can be written."""

    def __init__(self, cluster: Cluster, namespace: str, name: str = "cart") -> None:
        self._cluster, self.namespace, self.name = cluster, namespace, name

    def get(self) -> dict[str, Any]:
        found = self._cluster.kubectl("get", "rljob", self.name, "-n", self.namespace, "-o", "json")
        return dict(json.loads(found.stdout))

    def set_status(self, **status: object) -> None:
        patch = json.dumps({"status": status})
        self._cluster.kubectl(
            *("patch", "rljob", self.name, "-n", self.namespace, "--subresource=status", "--type=merge", "-p", patch)
        )


class Background:
    """A command line in a process of its own; what it says can be waited for."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process, self._out, self._err = process, out, err

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    def says(self, text: str, *, deadline_s: float = 60) -> None:
        """Waits until it has written this, to either stream."""

        eventually(lambda: text in self.out + self.err or self.process.poll() is not None, deadline_s, what=f"{text!r}")
        assert text in self.out + self.err

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def ends(self, *, deadline_s: float = 60) -> int:
        """Its exit code."""
        return self.process.wait(deadline_s)


def hear_ctrl_c() -> None:
    """A process that was started in a shell's background would not hear it, nor would those that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def in_background(folder: Path, kubeconfig: Path, *arguments: str, before: str = "") -> Iterator[Background]:
    """Runs `rlcore` beside the test, and this code before it; it is ended with the test."""
    code = f"{before}\nfrom rlcore.cli.main import main; main()"
    command = [sys.executable, "-c", code, *arguments, "--kubeconfig", str(kubeconfig)]
    out, err = folder / "out", folder / "err"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=err_file,
            env=environment,
            cwd=folder,
            preexec_fn=hear_ctrl_c,
        )
    try:
        yield Background(process, out, err)
    finally:
        process.kill()
        process.wait()
