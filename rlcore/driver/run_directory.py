"""Where a local run keeps its files, and how an old one is moved aside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlcore.api import RLJob
from rlcore.api.yaml_text import dump_yaml
from rlcore.checkpoint.storage import LOCK_FILE
from rlcore.errors import UserError

MANIFEST_FILE = "job.yaml"
CHECKPOINTS = "checkpoints"


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
    def checkpoints_are_elsewhere(self) -> bool:
        """Whether the manifest names a place of its own for them, outside of this directory."""
        return "://" in self.checkpoints or self.path.resolve() not in Path(self.checkpoints).resolve().parents

    @property
    def locked_paths(self) -> list[Path]:
        """Local directories that one run must have for itself; two run directories may name one for checkpoints."""
        paths = [self.path]
        if "://" not in self.checkpoints and self.checkpoints_are_elsewhere:
            paths.append(Path(self.checkpoints))
        return list({path.resolve(): path for path in paths}.values())

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
        """Keeps the manifest beside its results, so that they can be evaluated later.

        Raises:
            UserError: the directory cannot be written.
        """
        document = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
        temporary = self.path / f".{MANIFEST_FILE}.tmp"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            temporary.write_text(dump_yaml(document))
            temporary.replace(self.path / MANIFEST_FILE)
        except OSError as error:
            raise UserError(
                f"cannot write {self.path / MANIFEST_FILE}: {error.strerror}",
                hint="free some space there, or choose another directory with --runs",
            ) from error


def run_directory(job: RLJob, root: Path) -> RunDirectory:
    """The directory of a job; checkpoints are in it unless the manifest names a path or URL (`<there>/<job name>`)."""
    path = root / job.metadata.name
    storage = job.spec.checkpoint.storage
    base = storage.uri or storage.path
    return RunDirectory(path, f"{base.rstrip('/')}/{job.metadata.name}" if base else str(path / CHECKPOINTS))


def move_aside(directory: RunDirectory, stamp: str) -> str | None:
    """Renames a run directory to `<name>.<stamp>`; returns its new name, None where there is nothing to keep."""
    if not directory.path.is_dir() or all(entry.name == LOCK_FILE for entry in directory.path.iterdir()):
        return None
    target = directory.path.with_name(f"{directory.path.name}.{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = directory.path.with_name(f"{directory.path.name}.{stamp}-{number}")
    directory.path.rename(target)
    return str(target)
