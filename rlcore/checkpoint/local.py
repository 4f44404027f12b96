"""Checkpoint storage in a directory of this machine, or of a volume mounted into it.

Order matters more than speed here: bytes reach the disk (fsync) before the name that vouches for them does, and a
directory entry is durable only once the directory itself was synced.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from rlcore.checkpoint.storage import LOCK_FILE, FaultHook, FileDigest, names_aside, stream_with_digest

TEMPORARY_SUFFIX = ".tmp"


class LocalStorage:
    """See `Storage`; `location` is an absolute path."""

    def __init__(self, path: str, fault: FaultHook | None = None) -> None:
        self._root = Path(path).expanduser().absolute()
        self._fault = fault or (lambda step: None)
        self.location = str(self._root)

    def directories(self) -> list[str]:
        try:
            with os.scandir(self._root) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def make_directory(self, name: str) -> bool:
        self._fault(f"mkdir {name}")
        self._root.mkdir(parents=True, exist_ok=True)
        try:
            (self._root / name).mkdir()
        except FileExistsError:
            return False
        return True

    def write(self, path: str, content: Callable[[BinaryIO], None]) -> FileDigest:
        self._fault(f"open {path}")
        with open(self._root / path, "xb") as file:
            digest = stream_with_digest(file, content, lambda: self._fault(f"write {path}"))
            self._fault(f"sync {path}")
            file.flush()
            os.fsync(file.fileno())
        return digest

    def publish(self, path: str, data: bytes) -> None:
        self._fault(f"open {path}{TEMPORARY_SUFFIX}")
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, data, self._fault)
        if target.parent != self._root:
            _sync_directory(self._root)  # it has a new entry as well: the checkpoint's directory
        self._fault(f"published {path}")

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def size_bytes(self, path: str) -> int | None:
        try:
            return (self._root / path).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def remove_directory(self, name: str, *, first: str) -> None:
        directory = self._root / name
        self._fault(f"remove {name}/{first}")
        (directory / first).unlink(missing_ok=True)
        self._fault(f"remove {name}")
        if directory.exists():
            shutil.rmtree(directory)

    def move_aside(self, suffix: str, *, vouching: tuple[str, ...]) -> str | None:
        try:
            with os.scandir(self._root) as entries:
                if all(entry.name == LOCK_FILE for entry in entries):
                    return None
        except FileNotFoundError:
            return None
        free = (
            name for name in names_aside(self._root.name, suffix) if not os.path.lexists(self._root.with_name(name))
        )
        target = self._root.with_name(next(free))
        self._fault(f"rename {target.name}")
        os.rename(self._root, target)
        _sync_directory(target.parent)
        return str(target)


def write_atomically(target: Path, data: bytes, fault: FaultHook = lambda step: None) -> None:
    """Replace `target` by `data`: readers, and the next start after a crash, see the old bytes or the new ones."""
    temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
    try:
        with open(temporary, "wb") as file:
            fault(f"write {target.name}")
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fault(f"replace {target.name}")
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a directory, and need not
            raise
    finally:
        os.close(descriptor)
