"""What a checkpoint is called, what its manifest says, and when that is good: pure functions over bytes and names.

A checkpoint is a directory `ckpt-<timesteps>-<iteration>`, with `-<generation>` behind it when that name was taken:

    state.json      structure and small values          (see tree.py)
    arrays.npz      numpy arrays, named by their path   (see arrays.py)
    manifest.json   written last; without it the rest is debris
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.checkpoint.storage import FileDigest
from rlcore.errors import CheckpointError

FORMAT = 1
MANIFEST_FILE = "manifest.json"
COMPLETION_FILE = "completion.json"
"""Beside the checkpoints of a job that is finished (see completion.py)."""
STATE_FILE = "state.json"
ARRAYS_FILE = "arrays.npz"
DATA_FILES = (STATE_FILE, ARRAYS_FILE)
"""The only files a manifest may name: what it says never becomes a path."""

_NAME = re.compile(r"ckpt-(\d{12,18})-(\d{1,18})(?:-(\d{1,9}))?", re.ASCII)


class BrokenCheckpointError(Exception):
    """This checkpoint cannot be used; the text says which file and why. Never leaves rlcore.checkpoint."""


@dataclass(frozen=True, order=True)
class CheckpointName:
    """The name of a checkpoint's directory, taken apart; sorts from oldest to newest."""

    timesteps: int
    iteration: int
    generation: int = 0

    def __str__(self) -> str:
        generation = f"-{self.generation}" if self.generation else ""
        return f"ckpt-{self.timesteps:012d}-{self.iteration}{generation}"

    @classmethod
    def parse(cls, text: str) -> CheckpointName | None:
        """The parts of a directory's name, or None where it is not a checkpoint's."""
        match = _NAME.fullmatch(text)
        name = cls(*(int(part) for part in match.groups(default="0"))) if match else None
        return name if str(name) == text else None


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json."""

    timesteps: int
    iteration: int
    wall_time_s: float
    """When it was written, in seconds since 1970."""
    identity: Mapping[str, Any]
    files: Mapping[str, FileDigest]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())


def to_bytes(manifest: Manifest) -> bytes:
    """Return manifest.json, with a checksum of itself."""
    content = {
        "format": FORMAT,
        "timesteps": manifest.timesteps,
        "iteration": manifest.iteration,
        "wall_time_s": manifest.wall_time_s,
        "identity": dict(manifest.identity),
        "files": {
            name: {"size_bytes": file.size_bytes, "sha256": file.sha256} for name, file in manifest.files.items()
        },
    }
    return json.dumps(content | {"checksum": _checksum(content)}, indent=2).encode() + b"\n"


def from_bytes(data: bytes, name: CheckpointName) -> Manifest:
    """Return the manifest in `data`, found in the directory `name`.

    Raises:
        BrokenCheckpointError: it is truncated, changed, or does not belong to this directory.
        CheckpointError: a newer rlcore wrote it. Older checkpoints must not be preferred to it behind the user's back.
    """
    try:
        content = json.loads(data)
        claimed = content.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise BrokenCheckpointError(f"{MANIFEST_FILE} is not complete") from error
    if claimed != _checksum(content):
        raise BrokenCheckpointError(f"{MANIFEST_FILE} was changed after it was written (its checksum differs)")
    if content.get("format") != FORMAT:
        raise CheckpointError(
            f"checkpoint {name} has format {content.get('format')}; this rlcore reads format {FORMAT}",
            hint="use the rlcore version that wrote it, or start over with --fresh",
            permanent=True,
        )
    try:
        manifest = Manifest(
            timesteps=int(content["timesteps"]),
            iteration=int(content["iteration"]),
            wall_time_s=float(content["wall_time_s"]),
            identity=dict(content["identity"]),
            files={
                file: FileDigest(int(entry["size_bytes"]), str(entry["sha256"]))
                for file, entry in content["files"].items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BrokenCheckpointError(f"{MANIFEST_FILE} misses a field ({error!r})") from error
    if set(manifest.files) != set(DATA_FILES):
        raise BrokenCheckpointError(
            f"{MANIFEST_FILE} names the files {sorted(manifest.files)}, not {sorted(DATA_FILES)}"
        )
    if (manifest.timesteps, manifest.iteration) != (name.timesteps, name.iteration):
        raise BrokenCheckpointError(f"{MANIFEST_FILE} belongs to another checkpoint; was the directory renamed?")
    return manifest


def verify(file: str, data: bytes, expected: FileDigest) -> None:
    """Raise BrokenCheckpointError unless `data` is what the manifest vouches for."""
    if len(data) != expected.size_bytes:
        raise BrokenCheckpointError(f"{file} has {len(data)} bytes, and its manifest says {expected.size_bytes}")
    if hashlib.sha256(data).hexdigest() != expected.sha256:
        raise BrokenCheckpointError(f"{file} is not what was written (its SHA-256 differs)")


def identity_differences(checkpoint: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    """One line for each part of the identity that differs: `environment: checkpoint has A, this job has B`."""
    before, now = _flatten(checkpoint), _flatten(job)
    return [
        f"{key}: checkpoint has {_text(before, key)}, this job has {_text(now, key)}"
        for key in dict.fromkeys([*before, *now])
        if before.get(key) != now.get(key)
    ]


def _flatten(identity: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in identity.items():
        if isinstance(value, Mapping) and value:
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _text(flat: Mapping[str, Any], key: str) -> str:
    value = flat.get(key)
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
