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

from rlcore.errors import UserError

logger = logging.getLogger("rlcore.checkpoint")

LOCK_FILE = ".lock"


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
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UserError(
                f"cannot use run directory {self._path.parent}: {error.strerror}",
                hint="check its permissions and the space left, or choose another directory",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _holder(os.pread(descriptor, 4096, 0))
            os.close(descriptor)
            raise UserError(
                f"run directory {self._path.parent} is in use by {holder}",
                hint="wait for it, stop it, or give this run another name",
            ) from error
        except OSError as error:
            # Some network file systems have no locks; training there is better than not training.
            logger.warning("run directory %s cannot be locked: %s", self._path.parent, error.strerror)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _own_record(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; no error if it is not held. The file stays: removing it would race with a new holder."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


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
