"""What the head pod tells its driver: environment variables, and where the run's files go."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlcore.api import RLJob
from rlcore.driver.run_directory import RunDirectory
from rlcore.errors import UserError
from rlcore.prestop import DEFAULT_RUNTIME_DIR


@dataclass(frozen=True)
class ClusterSettings:
    """The driver's surroundings in a cluster.

    Attributes:
        config: directory of job.yaml and control.json.
        checkpoints: directory of a mounted claim, None where the manifest names a place of its own.
        runtime: directory that lives as long as the pod.
        attempt: number of this attempt, from 1.
        address: of this pod.
        port: of the status and metrics endpoint.
        pod_uid: of this pod.
    """

    config: Path
    checkpoints: Path | None
    runtime: Path
    attempt: int
    address: str
    port: int
    pod_uid: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ClusterSettings:
        """What the operator has set.

        Raises:
            UserError: a number that is none.
        """
        checkpoints = environment.get("RLCORE_CHECKPOINT_DIR")
        return cls(
            config=Path(environment.get("RLCORE_CONFIG_DIR", "/etc/rlcore")),
            checkpoints=Path(checkpoints) if checkpoints else None,
            runtime=Path(environment.get("RLCORE_RUNTIME_DIR", DEFAULT_RUNTIME_DIR)),
            attempt=_number(environment, "RLCORE_ATTEMPT", 1),
            address=environment.get("POD_IP", "127.0.0.1"),
            port=_number(environment, "RLCORE_STATUS_PORT", 9400),
            pod_uid=environment.get("POD_UID", "no-pod"),
        )

    def run_directory(self, job: RLJob) -> RunDirectory:
        """Where a job's files go: everything into one directory, save where checkpoints go to a URL.

        Raises:
            UserError: there is no storage at all.
        """
        name, storage = job.metadata.name, job.spec.checkpoint.storage
        if self.checkpoints is not None:
            return RunDirectory(self.checkpoints / name, str(self.checkpoints / name))
        if storage.path:
            path = Path(storage.path) / name
            return RunDirectory(path, str(path))
        if storage.uri:
            return RunDirectory(self.runtime / name, f"{storage.uri.rstrip('/')}/{name}")
        raise UserError(
            "spec.checkpoint.storage: there is no place for checkpoints, and no claim is mounted",
            hint="set path or uri, or let the operator make a claim (RLCORE_CHECKPOINT_DIR is not set)",
            permanent=True,
        )

    def usable_runtime(self) -> Path:
        """The runtime directory, or a temporary one where it cannot be made."""
        try:
            self.runtime.mkdir(parents=True, exist_ok=True)
        except OSError:
            return Path(tempfile.mkdtemp(prefix="rlcore-"))
        return self.runtime


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{name} is {text!r}, not a number", permanent=True) from None
