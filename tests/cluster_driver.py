"""A Ray cluster of several nodes on this machine, and `python -m rlcore.driver` as the operator runs it there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.jobs import make_job, pools

ROOT = Path(__file__).parents[1]
DEADLINE_S = 120.0
OBJECT_STORE_BYTES = 100 * 1024**2
# A killed node is noticed in a second, not in twenty.
QUICK_HEALTH_CHECKS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "2",
}
ENVIRONMENT = {
    **QUICK_HEALTH_CHECKS,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
}


class RayNodes:
    """A Ray head without cores, and nodes that come and go; `named` are those that tests want to find again."""

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "resources": {"head": 1},
                "include_dashboard": False,
                "object_store_memory": OBJECT_STORE_BYTES,
            },
            shutdown_at_exit=False,
        )
        self.address = str(self._cluster.address)

    def add_evaluators(self, count: int, pool: str = "pool") -> Any:
        """A node that holds so many evaluators."""
        return self._add(count, {"evaluator": count, f"pool-{pool}": count})

    def add_learner(self) -> Any:
        """A node for the learner."""
        return self._add(1, {"learner": 1})

    def kill(self, node: Any) -> None:
        """Takes a node away without a word, as a preemption does."""
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()

    def _add(self, cores: int, resources: dict[str, int]) -> Any:
        return self._cluster.add_node(
            wait=False, num_cpus=cores, resources=resources, object_store_memory=OBJECT_STORE_BYTES
        )


@contextlib.contextmanager
def environment_of_nodes() -> Iterator[None]:
    """Nodes inherit the environment of the process that starts them."""
    before = {key: os.environ.get(key) for key in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


class DriverProcess:
    """`python -m rlcore.driver` in a pod's surroundings, with the operator's part played by the test.

    Args:
        directory: for configuration, checkpoints and runtime files.
        ray_address: of the cluster; None where Ray is not to be needed.
        attempt: number of the attempt.
        spec: of the job, in the manifest's spelling; small by default.
    """

    def __init__(self, directory: Path, ray_address: str | None, attempt: int = 1, **spec: Any) -> None:
        self.directory = directory
        self.config, self.storage, self.runtime = (directory / name for name in ("config", "storage", "runtime"))
        self.config.mkdir(exist_ok=True)
        self.manifest = self.config / "job.yaml"
        if spec or not self.manifest.exists():
            job = make_job("job", **{"evaluators": pools(1), **spec})
            self.manifest.write_text(yaml.safe_dump(job.model_dump(mode="json", by_alias=True, exclude_unset=True)))
        self.attempt = attempt
        self._ray_address = ray_address
        self._log = directory / f"driver-{attempt}-{time.monotonic_ns()}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def checkpoints(self) -> Path:
        return self.storage / "job"

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def start(self) -> DriverProcess:
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("RLCORE_")},
            **ENVIRONMENT,
            "RLCORE_CONFIG_DIR": str(self.config),
            "RLCORE_CHECKPOINT_DIR": str(self.storage),
            "RLCORE_RUNTIME_DIR": str(self.runtime),
            "RLCORE_ATTEMPT": str(self.attempt),
            "RLCORE_STATUS_PORT": str(self.port),
            "POD_IP": "127.0.0.1",
            "POD_UID": f"pod-{self.attempt}",
            "RAY_ADDRESS": self._ray_address or "127.0.0.1:1",
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rlcore.driver"], stdout=log, stderr=log, env=environment, cwd=ROOT
            )
        return self

    def control(self, **content: Any) -> None:
        """Swaps control.json."""
        temporary = self.config / ".control"
        temporary.write_text(json.dumps({"version": 1, "attempt": self.attempt, **content}))
        temporary.replace(self.config / "control.json")

    def status(self) -> dict[str, Any]:
        """/status, or an empty one where the endpoint is not there (yet)."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=10) as answer:
                status: dict[str, Any] = json.load(answer)
                return status
        except OSError:
            return {}

    def wait_for(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first status that fulfils a condition."""
        assert self._process is not None
        end_s = time.monotonic() + DEADLINE_S
        while True:
            status = self.status()
            if status and condition(status):
                return status
            if self._process.poll() is not None:
                pytest.fail(f"ended with {self._process.returncode}:\n{self.log}")
            if time.monotonic() > end_s:
                self._process.kill()
                pytest.fail(f"not within {DEADLINE_S:.0f} s: {json.dumps(status, indent=1)}\n{self.log}")
            time.sleep(0.05)

    def finish(self, **control: Any) -> tuple[int, dict[str, Any]]:
        """Waits for the final status and plays the operator who has stored it; exit code and final status."""
        final: dict[str, Any] = self.wait_for(lambda status: status["final"])["final"]
        self.control(finalObserved=final["token"], **control)
        return self.exit_code(), final

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def exit_code(self) -> int:
        assert self._process is not None
        try:
            return self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            pytest.fail(f"did not end within {DEADLINE_S:.0f} s:\n{self.log}")

    def kill(self) -> None:
        """Ends it for good, however far it is."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
