"""The checkpoints of one run: saved so that a crash at any instant leaves the newest complete one loadable.

A save only ever adds: it writes a new directory, vouches for it with a manifest at the very end, and removes old
checkpoints after that. A directory without a good manifest is debris, whatever else is in it.
"""

from __future__ import annotations

import errno
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rlcore.checkpoint import manifest as manifests
from rlcore.checkpoint.arrays import read_arrays, write_arrays
from rlcore.checkpoint.manifest import (
    ARRAYS_FILE,
    COMPLETION_FILE,
    DATA_FILES,
    MANIFEST_FILE,
    STATE_FILE,
    BrokenCheckpointError,
    CheckpointName,
    Manifest,
)
from rlcore.checkpoint.storage import FaultHook, open_storage
from rlcore.checkpoint.tree import StateTree, join, split
from rlcore.errors import CheckpointError

logger = logging.getLogger("rlcore.checkpoint")

_Names: TypeAlias = list[CheckpointName]  # the store has a method called `list`, which hides the type in its body

_HINTS = {
    errno.ENOSPC: "free space there or point spec.checkpoint.storage elsewhere; a lower spec.checkpoint.keep uses less",
    errno.EDQUOT: "the disk quota is used up: free some space there, or point spec.checkpoint.storage elsewhere",
    errno.EFBIG: "the file size limit of this process (ulimit -f) or of the file system is too small for a checkpoint",
    errno.EACCES: "give this user write permission there, or point spec.checkpoint.storage elsewhere",
    errno.EPERM: "give this user write permission there, or point spec.checkpoint.storage elsewhere",
    errno.EROFS: "the file system is mounted read-only: point spec.checkpoint.storage elsewhere",
}
_DEFAULT_HINT = "check that spec.checkpoint.storage exists, can be reached and may be written"


@dataclass(frozen=True)
class CheckpointInfo:
    """One complete checkpoint, as its manifest describes it."""

    name: str
    location: str
    """Path or URL of its directory."""
    timesteps: int
    iteration: int
    wall_time_s: float
    """When it was written, in seconds since 1970."""
    size_bytes: int


class CheckpointStore:
    """Saves and loads the checkpoints of one run at `location`: a path, file://, s3://, gs:// or memory://.

    Args:
        location: where; nothing is made there before the first save.
        identity: what a checkpoint must agree on to be loaded, as JSON values: algorithm, environment, spaces, model.
        keep: how many complete checkpoints stay.
        fault: called with the name of each writing step before it happens; tests stop the process there.

    Attributes:
        guard: called before anything is vouched for (a checkpoint, the end of the job); what it raises prevents it.

    Raises:
        UserError: an unknown kind of location, or one whose driver is not installed.
    """

    def __init__(
        self, location: str, *, identity: Mapping[str, Any], keep: int = 3, fault: FaultHook | None = None
    ) -> None:
        self.guard: Callable[[], None] = lambda: None
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least one checkpoint must stay")
        self.storage = open_storage(location, fault)
        self.location = self.storage.location
        self.identity: Mapping[str, Any] = json.loads(json.dumps(identity))  # compared with what JSON gives back
        self._keep = keep
        self._known_broken: set[CheckpointName] = set()

    def save(self, state: StateTree, *, timesteps: int, iteration: int) -> CheckpointInfo:
        """Write a checkpoint and, once it is complete, remove those beyond `keep` and older debris.

        Raises:
            TypeError: the state holds something that a checkpoint cannot; nothing was written.
            CheckpointError: it could not be written; what was written of it is gone, older checkpoints are untouched.
        """
        document, arrays = split(state)
        document_bytes = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
        name: CheckpointName | None = None
        try:
            name = self._make_directory(timesteps, iteration)
            files = {
                STATE_FILE: self.storage.write(f"{name}/{STATE_FILE}", lambda out: _write_all(out, document_bytes)),
                ARRAYS_FILE: self.storage.write(f"{name}/{ARRAYS_FILE}", lambda out: write_arrays(out, arrays)),
            }
            manifest = Manifest(timesteps, iteration, time.time(), self.identity, files)
            self.guard()
            self.storage.publish(f"{name}/{MANIFEST_FILE}", manifests.to_bytes(manifest))
        except BaseException as error:
            if name is not None:
                self._remove_quietly(name)
            if not isinstance(error, OSError):
                raise
            raise CheckpointError(
                f"cannot write checkpoint {self.location}/{name or ''}: {_reason(error)}; older ones are untouched",
                hint=_HINTS.get(error.errno or 0, _DEFAULT_HINT),
            ) from error
        self._prune(name)
        return self._info(name, manifest)

    def latest(self) -> tuple[CheckpointInfo, StateTree] | None:
        """Load the newest checkpoint that is whole; each broken one is skipped with a warning that says why.

        Raises:
            CheckpointError: it belongs to another job, a newer rlcore wrote it, or the storage cannot be read.
        """
        names = self._names()
        for name in reversed(names):
            try:
                return self._load(name)
            except BrokenCheckpointError as broken:
                self._known_broken.add(name)
                logger.warning("checkpoint skipped: %s/%s: %s", self.location, name, broken)
        if names:
            logger.warning("no usable checkpoint among the %d in %s", len(names), self.location)
        return None

    def load(self, info: CheckpointInfo) -> StateTree:
        """Load one checkpoint of this store.

        Raises:
            CheckpointError: it is broken or gone, belongs to another job, or cannot be read.
        """
        name = CheckpointName.parse(info.name)
        if name is None:
            raise CheckpointError(f"{info.name!r} is not the name of a checkpoint")
        try:
            return self._load(name)[1]
        except BrokenCheckpointError as broken:
            raise CheckpointError(
                f"checkpoint {self.location}/{name}: {broken}", hint="choose another of its run"
            ) from broken

    def list(self) -> tuple[CheckpointInfo, ...]:
        """The complete checkpoints, oldest first; sizes are checked, hashes only when one is loaded."""
        found = []
        for name in self._names():
            manifest = self._complete(name)
            if manifest is not None:
                found.append(self._info(name, manifest))
        return tuple(found)

    def move_aside(self, suffix: str) -> str | None:
        """Rename the whole location to `<location>.<suffix>` (then -2, -3, ...); this store is empty after it.

        One rename on a file system. In an object store all objects are copied before the first is removed; whenever
        that stops, what still has a manifest, here or there, is whole, and moving aside again takes the rest away.

        Returns:
            The new location; None where nothing is stored here (a lock file alone is nothing).

        Raises:
            CheckpointError: it could not be moved, or not all of it.
        """
        if not suffix or "/" in suffix:
            raise ValueError(f"{suffix!r} cannot be the end of a name")
        try:
            moved_to = self.storage.move_aside(suffix, vouching=(MANIFEST_FILE, COMPLETION_FILE))
        except OSError as error:
            raise CheckpointError(
                f"cannot move {self.location} aside to {self.location}.{suffix}: {_reason(error)}; nothing is lost",
                hint=f"{_HINTS.get(error.errno or 0, _DEFAULT_HINT)}; or give this run another name",
            ) from error
        self._known_broken.clear()  # their names are free again
        return moved_to

    def _names(self) -> _Names:
        try:
            directories = self.storage.directories()
        except OSError as error:
            raise self._unreadable(self.location, error) from error
        return sorted(name for name in map(CheckpointName.parse, directories) if name is not None)

    def _make_directory(self, timesteps: int, iteration: int) -> CheckpointName:
        # A directory of this name may be here, whole or not, when a run went back to an older checkpoint. It is left
        # alone: at this moment it may be the best there is.
        name = CheckpointName(timesteps, iteration)
        while not self.storage.make_directory(str(name)):
            name = CheckpointName(timesteps, iteration, name.generation + 1)
        return name

    def _load(self, name: CheckpointName) -> tuple[CheckpointInfo, StateTree]:
        manifest = self._read_manifest(name)
        require_same_job(f"checkpoint {self.location}/{name}", manifest.identity, self.identity)
        content = {file: self._read(name, file) for file in DATA_FILES}
        for file, data in content.items():
            manifests.verify(file, data, manifest.files[file])
        try:
            state = join(json.loads(content[STATE_FILE]), read_arrays(content[ARRAYS_FILE]))
        except (ValueError, RecursionError) as error:
            raise BrokenCheckpointError(f"its content cannot be read: {error}") from error
        return self._info(name, manifest), state

    def _read_manifest(self, name: CheckpointName) -> Manifest:
        return manifests.from_bytes(self._read(name, MANIFEST_FILE), name)

    def _read(self, name: CheckpointName, file: str) -> bytes:
        try:
            return self.storage.read(f"{name}/{file}")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise BrokenCheckpointError(f"{file} is missing") from error
        except OSError as error:
            if error.errno == errno.EIO:  # a bad block is this file's own; anything else may pass, and must not
                raise BrokenCheckpointError(f"{file}: {_reason(error)}") from error  # send a run back to its start
            raise self._unreadable(f"{self.location}/{name}/{file}", error) from error

    def _complete(self, name: CheckpointName) -> Manifest | None:
        try:
            manifest = self._read_manifest(name)
            sizes_agree = all(
                self.storage.size_bytes(f"{name}/{file}") == digest.size_bytes
                for file, digest in manifest.files.items()
            )
        except BrokenCheckpointError:
            return None
        except OSError as error:
            raise self._unreadable(f"{self.location}/{name}", error) from error
        return manifest if sizes_agree and name not in self._known_broken else None

    def _prune(self, newest: CheckpointName) -> None:
        """Remove what is older than the `keep` newest complete ones, and older debris; never fails a save.

        Checkpoints above `newest` (of a time before this run went back) are neither counted nor touched.
        """
        try:
            older = [name for name in reversed(self._names()) if name < newest]
            kept = 1
            for name in older:
                if kept < self._keep and self._complete(name) is not None:
                    kept += 1
                else:
                    self.storage.remove_directory(str(name), first=MANIFEST_FILE)
        except (OSError, CheckpointError) as error:
            logger.warning("old checkpoints stay in %s: %s", self.location, error)

    def _remove_quietly(self, name: CheckpointName) -> None:
        try:
            self.storage.remove_directory(str(name), first=MANIFEST_FILE)
        except OSError as error:
            logger.warning("an incomplete checkpoint stays at %s/%s: %s", self.location, name, _reason(error))

    def _info(self, name: CheckpointName, manifest: Manifest) -> CheckpointInfo:
        return CheckpointInfo(
            name=str(name),
            location=f"{self.location}/{name}",
            timesteps=manifest.timesteps,
            iteration=manifest.iteration,
            wall_time_s=manifest.wall_time_s,
            size_bytes=manifest.size_bytes,
        )

    def _unreadable(self, what: str, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"cannot read {what}: {_reason(error)}",
            hint="check that spec.checkpoint.storage can be reached and read, then run again; nothing was changed",
        )


def require_same_job(what: str, found: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Raise CheckpointError with every difference where `what` has the identity `found` and the job has another."""
    differences = manifests.identity_differences(found, identity)
    if differences:
        raise CheckpointError(
            "\n  ".join([f"{what} belongs to another job:", *differences]),
            hint="start over with --fresh (the old run is moved aside), or give this run another name",
            permanent=True,
        )


def _write_all(out: Any, data: bytes) -> None:
    out.write(data)


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
