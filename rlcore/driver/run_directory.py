"""Where a local run keeps its files, and how an old one is moved aside."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from rlcore.api import RLJob

MANIFEST_FILE = "job.yaml"


@dataclass(frozen=True)
class RunDirectory:
    """runs/<name>/ and what is in it.

    Attributes:
        path: the directory.
        checkpoints: path or URL of the checkpoints.
    """

    path: Path
    checkpoints: str

    @property
    def metrics(self) -> Path:
        """One JSON object an iteration."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        """Event files."""
        return self.path / "tensorboard"

    @property
    def learning_curve(self) -> Path:
        """The final plot."""
        return self.path / "learning_curve.png"

    def write_manifest(self, job: RLJob) -> None:
        """Keeps the manifest beside its results, so that they can be evaluated later."""
        self.path.mkdir(parents=True, exist_ok=True)
        document = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
        temporary = self.path / f".{MANIFEST_FILE}.tmp"
        temporary.write_text(yaml.safe_dump(document, sort_keys=False))
        temporary.replace(self.path / MANIFEST_FILE)


def run_directory(job: RLJob, root: Path) -> RunDirectory:
    """The directory of a job; checkpoints are in it unless the manifest names a path or URL (`<there>/<job name>`)."""
    path = root / job.metadata.name
    storage = job.spec.checkpoint.storage
    base = storage.uri or storage.path
    return RunDirectory(path, f"{base.rstrip('/')}/{job.metadata.name}" if base else str(path / "checkpoints"))


def move_aside(directory: RunDirectory) -> Path | None:
    """Renames an existing run directory so that a new run starts empty; returns its new name."""
    if not directory.path.exists():
        return None
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = directory.path.with_name(f"{directory.path.name}.{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = directory.path.with_name(f"{directory.path.name}.{stamp}-{number}")
    directory.path.rename(target)
    return target
