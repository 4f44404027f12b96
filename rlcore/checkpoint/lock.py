"""An exclusive lock on a local run directory, so that two drivers never train into the same one."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rlcore.checkpoint.storage import LOCK_FILE
from rlcore.errors import UserError

logger = logging.getLogger("rlcore.checkpoint")

ATTEMPTS = 10
"""How often a lock is tried when somebody renames the directory at that very moment; twice is rare already."""


class RunLock:
    """Holds `directory` for this process until `release`, or until the process ends in whatever way.

    The kernel keeps the lock (flock), so a crash leaves nothing to clean up; the file's content only names the holder.

        with RunLock(run_dir):
            train()
    """

    def __init__(self, directory: str | Path) -> None:
        self._path = Path(directory) / LOCK_FILE
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock now; the directory is made if it is not there.

        Raises:
            UserError: another process has it (the text says which), or the directory cannot be written.
        """
        if self._descriptor is not None:
            return
        for _ in range(ATTEMPTS):
            try:
                self._descriptor = self._attempt()
            except OSError as error:
                raise UserError(
                    f"cannot use run directory {self._path.parent}: {error.strerror}",
                    hint="check its permissions and the space left, or choose another directory",
                ) from error
            if self._descriptor is not None:
                self._write_record(self._descriptor)
                return
        raise UserError(
            f"cannot lock run directory {self._path.parent}: it was renamed or removed {ATTEMPTS} times meanwhile",
            hint="see what else uses this directory, or give this run another name",
        )

    def release(self) -> None:
        """Give the lock back; no error if it is not held. The file stays: removing it would race with a new holder."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            os.ftruncate(descriptor, 0)
        except OSError as error:
            logger.warning("%s still names this process: %s", self._path, error.strerror)
        finally:
            os.close(descriptor)

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _attempt(self) -> int | None:
        """The descriptor of the lock file, locked; None where the directory was renamed or removed meanwhile."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = self._open()
        except FileNotFoundError:
            return None
        keep = False
        try:
            # A directory renamed between `open` and `flock` takes the opened file along: its lock would guard nothing.
            keep = not self._flock(descriptor) or self._is_at_path(descriptor)
        finally:
            if not keep:
                os.close(descriptor)
        return descriptor if keep else None

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)

    def _flock(self, descriptor: int) -> bool:
        """Lock the file; False where the file system has no locks."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _holder(os.pread(descriptor, 4096, 0))
            raise UserError(
                f"run directory {self._path.parent} is in use by {holder}",
                hint="wait for it, stop it, or give this run another name",
            ) from error
        except OSError as error:
            # Some network file systems have no locks; training there is better than not training.
            logger.warning("run directory %s cannot be locked: %s", self._path.parent, error.strerror)
            return False
        return True

    def _is_at_path(self, descriptor: int) -> bool:
        try:
            there = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(os.fstat(descriptor), there)

    def _write_record(self, descriptor: int) -> None:
        """Say who holds the lock; the lock is held without it as well, so a full disk stops nothing."""
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _own_record(), 0)
        except OSError as error:
            logger.warning("%s is locked and cannot name this process: %s", self._path, error.strerror)


def _own_record() -> bytes:
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since_s": time.time()}).encode()


def _holder(data: bytes) -> str:
    """Who holds the lock, in words, from the lock file's content; it may be empty for an instant."""
    try:
        record: dict[str, Any] = json.loads(data)
        pid, host = int(record["pid"]), str(record["host"])
    except (ValueError, KeyError, TypeError):
        return "another process"
    return f"pid {pid}" if host == socket.gethostname() else f"pid {pid} on {host}"
