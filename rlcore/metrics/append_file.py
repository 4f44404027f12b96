"""A file that only grows, by whole records."""

from __future__ import annotations

import os
from pathlib import Path


class AppendFile:
    """Appends records to `path`, each one whole or not at all as long as this process lives.

    Unbuffered: a record is with the operating system when `append` returns, so a crash of the process loses none and
    a record that failed (a full disk) is not tried again behind the caller's back.

    Raises:
        OSError: from every method.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, record: bytes) -> None:
        """Write `record`, or cut off the part of it that was written and raise."""
        end = os.lseek(self._descriptor, 0, os.SEEK_END)
        try:
            rest = memoryview(record)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, end)
            raise

    def close(self) -> None:
        os.close(self._descriptor)
