"""The end of Ray's session logs, kept beside the checkpoints: the cluster they came from is gone soon after."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from rlcore.checkpoint.storage import Storage

logger = logging.getLogger("rlcore.driver")

LARGEST_ARCHIVE_BYTES = 20 * 1024**2
LARGEST_FILE_BYTES = 2 * 1024**2
LONGEST_S = 10.0
OWN_LOG = "job-driver-"
"""Ray's name for the log of a submitted job's driver: it goes first."""


def archive_logs(session: Path, storage: Storage, attempt: int) -> int:
    """Copies the ends of a Ray session's logs to logs/<attempt>/, the newest first; returns the bytes copied.

    Best effort: what cannot be read or written, and what is beyond the limits of size and time, is left out.
    """
    copied_bytes, end_s = 0, time.monotonic() + LONGEST_S
    for path in _by_importance(session / "logs"):
        room_bytes = min(LARGEST_FILE_BYTES, LARGEST_ARCHIVE_BYTES - copied_bytes)
        if room_bytes <= 0 or time.monotonic() >= end_s:
            break
        try:
            data = _tail(path, room_bytes)
            if data:
                storage.publish(f"logs/{attempt}/{path.name}", data)
        except OSError as error:
            logger.warning("log %s is not archived: %s", path.name, error)
            continue
        copied_bytes += len(data)
    return copied_bytes


def _by_importance(directory: Path) -> list[Path]:
    """The driver's own log, then all others, the newest first."""
    files = []
    for path in directory.glob("*"):
        try:
            if path.is_file() and not path.is_symlink():
                files.append((not path.name.startswith(OWN_LOG), -path.stat().st_mtime, path))
        except OSError:
            continue  # gone meanwhile
    return [path for *_, path in sorted(files)]


def _tail(path: Path, size_bytes: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - size_bytes))
        return file.read(size_bytes)
