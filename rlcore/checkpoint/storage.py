"""Where checkpoint bytes go: a small set of operations that every kind of storage offers, and the choice among them."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, cast

from rlcore.errors import UserError

REMOTE_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "memory": None}
"""Schemes that go through fsspec, and the extra of rlcore that each needs."""

LOCK_FILE = ".lock"
"""What `RunLock` puts into a directory: it marks a user of the directory and is nothing stored there."""

FaultHook = Callable[[str], None]
"""Called with the name of each step of a write ("write ckpt-../state.json") before it happens; tests stop it there."""


@dataclass(frozen=True)
class FileDigest:
    """Size and SHA-256 of one file, as its writer saw the bytes."""

    size_bytes: int
    sha256: str


class Storage(Protocol):
    """Files two levels deep: `directory/file`, and files beside the directories.

    Every method raises OSError, and nothing else, when the storage fails. Names come from rlcore's own constants and
    patterns, never from the content of a file.
    """

    location: str

    def directories(self) -> list[str]:
        """Names of the directories here; empty where nothing was stored yet."""

    def make_directory(self, name: str) -> bool:
        """Make a new directory; False where one of that name already exists."""

    def write(self, path: str, content: Callable[[BinaryIO], None]) -> FileDigest:
        """Write a file as a stream; durable on return, but a crash may leave a part of it."""

    def publish(self, path: str, data: bytes) -> None:
        """Write a small file that readers see whole or not at all, even after a crash; durable on return."""

    def read(self, path: str) -> bytes:
        """The file's bytes; FileNotFoundError where there is none."""

    def size_bytes(self, path: str) -> int | None:
        """The file's size; None where there is none."""

    def remove_directory(self, name: str, *, first: str) -> None:
        """Remove a directory and the files in it, the file called `first` before the others; no error if absent."""

    def move_aside(self, suffix: str, *, vouching: tuple[str, ...]) -> str | None:
        """Rename the whole location to `<location>.<suffix>`, with -2, -3, ... behind it where that is taken.

        Where a rename is a copy and a removal, nothing is removed before all of it was copied, and the files whose
        names are in `vouching` come after the others in the copy and go before them: the last name's at the very end
        and at first.

        Returns:
            The new location; None where nothing is stored here (a lock file alone is nothing).
        """


def names_aside(name: str, suffix: str) -> Iterator[str]:
    """`<name>.<suffix>`, `<name>.<suffix>-2`, `<name>.<suffix>-3` and so on."""
    yield f"{name}.{suffix}"
    for number in itertools.count(2):
        yield f"{name}.{suffix}-{number}"


class DigestWriter:
    """A write-only stream that counts and hashes what passes through.

    It has neither `seek` nor `tell`, so that nobody rewrites bytes that were already hashed.
    """

    def __init__(self, target: BinaryIO, on_write: Callable[[], None]) -> None:
        self._target = target
        self._on_write = on_write
        self._sha256 = hashlib.sha256()
        self._size_bytes = 0

    def write(self, data: bytes) -> int:
        self._on_write()
        view = memoryview(data).cast("B")
        self._target.write(view)
        self._sha256.update(view)
        self._size_bytes += len(view)
        return len(view)

    def flush(self) -> None:
        self._target.flush()

    def digest(self) -> FileDigest:
        return FileDigest(self._size_bytes, self._sha256.hexdigest())


def stream_with_digest(
    target: BinaryIO, content: Callable[[BinaryIO], None], on_write: Callable[[], None]
) -> FileDigest:
    """Let `content` write to `target`; return the size and hash of what it wrote."""
    writer = DigestWriter(target, on_write)
    content(cast(BinaryIO, writer))
    return writer.digest()


def open_storage(location: str, fault: FaultHook | None = None) -> Storage:
    """Return the storage at `location`: a path, file://, s3://, gs:// or memory://.

    Raises:
        UserError: an unknown scheme, or a driver that is not installed.
    """
    scheme, separator, rest = location.partition("://")
    if not separator or scheme in ("file", "local"):
        from rlcore.checkpoint.local import LocalStorage

        return LocalStorage(rest if separator else location, fault)
    if scheme not in REMOTE_EXTRAS:
        known = ", ".join(f"{name}://" for name in ("file", *REMOTE_EXTRAS))
        raise UserError(
            f"checkpoint location {location!r}: rlcore has no storage of the kind {scheme}://",
            hint=f"use a plain path or one of {known}",
            permanent=True,
        )
    from rlcore.checkpoint.remote import RemoteStorage

    return RemoteStorage(location, REMOTE_EXTRAS[scheme], fault)
