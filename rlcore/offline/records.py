"""A folder of recorded transitions: shards of plain arrays, and a manifest that vouches for them.

    records/
      records.json              spaces, counts, and each shard's size and SHA-256
      shard-000000.npz          uncompressed arrays, no pickles: reading one runs no code

The manifest is replaced as a whole after each shard, so a recording that is cut off is a shorter one.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlcore.checkpoint.arrays import read_arrays, write_arrays
from rlcore.errors import UserError
from rlcore.offline.transitions import check_rows
from rlcore.sample_batch import SampleBatch

MANIFEST_FILE = "records.json"
FORMAT = 1
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Shard:
    """One file of transitions."""

    name: str
    timesteps: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class RecordsInfo:
    """The manifest.

    Attributes:
        environment: id of what was recorded.
        observation_space: see `space_text`.
        action_space: see `space_text`.
        timesteps: in all shards.
        episodes: that ended in the recording.
        episode_reward_mean: of them, None without any.
        shards: in order.
    """

    environment: str
    observation_space: str
    action_space: str
    timesteps: int = 0
    episodes: int = 0
    episode_reward_mean: float | None = None
    shards: tuple[Shard, ...] = field(default=())

    @property
    def spaces(self) -> tuple[str, str]:
        """Of observations and of actions."""
        return self.observation_space, self.action_space


def read_info(folder: Path) -> RecordsInfo:
    """The manifest of a folder.

    Raises:
        UserError: there is none, or it cannot be understood.
    """
    path = folder / MANIFEST_FILE
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(
            f"{folder} holds no records: {MANIFEST_FILE} is missing",
            hint=f"record some: rlcore record runs/NAME --timesteps 100000 --out {folder}",
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    try:
        if content.pop("format") != FORMAT:
            raise UserError(f"{path} has a format of another rlcore; this one reads format {FORMAT}", permanent=True)
        return RecordsInfo(**{**content, "shards": tuple(Shard(**shard) for shard in content["shards"])})
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is no manifest of records: {error!r}", permanent=True) from error


class RecordWriter:
    """Adds shards to a folder.

    Args:
        folder: made where it is missing.
        info: of a new recording.
        append: add to what is there, which must be of the same spaces.

    Raises:
        UserError: something is there already, or of other spaces; or the folder cannot be made.
    """

    def __init__(self, folder: Path, info: RecordsInfo, *, append: bool) -> None:
        self._folder, self.info = folder, info
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder} cannot be made: {error.strerror}") from error
        if not (folder / MANIFEST_FILE).exists():
            return
        if not append:
            raise UserError(f"{folder} holds records already", hint="add to them with --append, or give another folder")
        there = read_info(folder)
        if there.spaces != info.spaces:
            raise UserError(
                f"{folder} holds observations {there.observation_space} and actions {there.action_space}, not "
                f"{info.observation_space} and {info.action_space}",
                hint="give another folder",
            )
        self.info = there

    def write(self, rows: SampleBatch, episode_returns: list[float]) -> None:
        """One more shard, and the manifest with it.

        Raises:
            UserError: it cannot be written.
        """
        info = self.info
        name = f"shard-{len(info.shards):06d}.npz"
        try:
            shard = self._write_shard(name, rows)
            episodes = info.episodes + len(episode_returns)
            total = info.episodes * (info.episode_reward_mean or 0.0) + sum(episode_returns)
            self.info = RecordsInfo(
                info.environment,
                *info.spaces,
                info.timesteps + rows.size,
                episodes,
                total / episodes if episodes else None,
                (*info.shards, shard),
            )
            self._publish()
        except OSError as error:
            raise UserError(
                f"{self._folder / name} cannot be written: {error.strerror}",
                hint="free some space; what was recorded before it is whole",
            ) from error

    def _write_shard(self, name: str, rows: SampleBatch) -> Shard:
        path = self._folder / name
        with open(path, "wb") as file:
            write_arrays(file, dict(rows))
            file.flush()
            os.fsync(file.fileno())
        data = path.read_bytes()
        return Shard(name, rows.size, len(data), hashlib.sha256(data).hexdigest())

    def _publish(self) -> None:
        document: dict[str, Any] = {"format": FORMAT, **asdict(self.info)}
        temporary = self._folder / f".{MANIFEST_FILE}.tmp"
        temporary.write_text(json.dumps(document, indent=2) + "\n")
        temporary.replace(self._folder / MANIFEST_FILE)


def read_rows(folder: Path, info: RecordsInfo) -> SampleBatch:
    """All transitions of a folder.

    Raises:
        UserError: a shard is missing or is not what was written; or all of them do not fit in memory.
    """
    require_memory(str(folder), sum(shard.size_bytes for shard in info.shards))
    parts = [_read_shard(folder / shard.name, shard) for shard in info.shards]
    if not parts:
        raise UserError(f"{folder} holds no transition", hint="the recording was cut off before its first shard")
    try:
        rows = SampleBatch.concat(parts)
    except ValueError as error:
        raise UserError(f"{folder}: its shards do not fit together: {error}", permanent=True) from error
    check_rows(str(folder), rows)
    return rows


def _read_shard(path: Path, shard: Shard) -> SampleBatch:
    try:
        if path.name != shard.name:
            raise ValueError(f"{shard.name!r} is not the name of a file")
        data = path.read_bytes()
        if len(data) != shard.size_bytes or hashlib.sha256(data).hexdigest() != shard.sha256:
            raise ValueError("it is not what was written (its SHA-256 differs)")
        return SampleBatch(read_arrays(data))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be used: {error}", hint="copy it anew, or record again") from error


def require_memory(source: str, size_bytes: int) -> None:
    """Refuses what does not fit: rows are held in memory, and once more while they are read.

    Raises:
        UserError: with the estimate.
    """
    available = available_bytes()
    if available is not None and 2 * size_bytes > available:
        raise UserError(
            f"{source} takes about {2 * size_bytes / 1e9:.1f} GB to read, and {available / 1e9:.1f} GB are available",
            hint="use a part of it, or a machine with more memory",
        )


def available_bytes() -> int | None:
    """Memory that can be taken without swapping, None where the system does not say."""
    try:
        fields = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return None
