"""Checkpoint storage in an object store, through fsspec: s3://, gs://, and memory:// for tests.

An object store shows an object whole or not at all, so publishing is a plain write; there are no directories to make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from rlcore.checkpoint.storage import LOCK_FILE, FaultHook, FileDigest, names_aside, stream_with_digest
from rlcore.errors import UserError


class RemoteStorage:
    """See `Storage`; `location` is a URL.

    Raises (from the constructor):
        UserError: the fsspec driver of this scheme is not installed.
    """

    def __init__(self, location: str, extra: str | None, fault: FaultHook | None = None) -> None:
        from fsspec.core import url_to_fs

        try:
            self._files, root = url_to_fs(location)
        except ImportError as error:
            raise UserError(
                f"checkpoint location {location!r} needs a driver that is not installed ({error})",
                hint=f"pip install 'rlcore[{extra}]'",
                permanent=True,
            ) from error
        self._root: str = root.rstrip("/")
        self._fault = fault or (lambda step: None)
        self.location = location.rstrip("/")

    def directories(self) -> list[str]:
        # Listings are cached by fsspec, and another driver may have written meanwhile.
        with _os_errors():
            self._files.invalidate_cache()
            try:
                entries: list[dict[str, Any]] = self._files.ls(self._root, detail=True)
            except FileNotFoundError:
                return []
        return [entry["name"].rstrip("/").rpartition("/")[2] for entry in entries if entry["type"] == "directory"]

    def make_directory(self, name: str) -> bool:
        self._fault(f"mkdir {name}")
        return name not in self.directories()

    def write(self, path: str, content: Callable[[BinaryIO], None]) -> FileDigest:
        self._fault(f"open {path}")
        with _os_errors(), self._files.open(self._path(path), "wb") as file:
            return stream_with_digest(file, content, lambda: self._fault(f"write {path}"))

    def publish(self, path: str, data: bytes) -> None:
        self._fault(f"publish {path}")
        with _os_errors():
            self._files.pipe_file(self._path(path), data)
        self._fault(f"published {path}")

    def read(self, path: str) -> bytes:
        with _os_errors():
            data: bytes = self._files.cat_file(self._path(path))
        return data

    def size_bytes(self, path: str) -> int | None:
        with _os_errors():
            self._files.invalidate_cache()
            try:
                return int(self._files.info(self._path(path))["size"])
            except FileNotFoundError:
                return None

    def remove_directory(self, name: str, *, first: str) -> None:
        for path, recursive in ((f"{name}/{first}", False), (name, True)):
            self._fault(f"remove {path}")
            with _os_errors():
                self._files.invalidate_cache()
                try:
                    self._files.rm(self._path(path), recursive=recursive)
                except FileNotFoundError:
                    continue

    def move_aside(self, suffix: str, *, vouching: tuple[str, ...]) -> str | None:
        sizes = self._sizes_bytes(self._root)
        if set(sizes) <= {LOCK_FILE}:
            return None
        if "/" not in self._root:
            raise OSError("it is a whole bucket, and a bucket cannot be renamed")
        end = next(end for end in names_aside("", suffix) if not self._sizes_bytes(self._root + end))
        ranks = {path: _rank(path, vouching) for path in sizes}
        for path in sorted(sizes, key=lambda path: (ranks[path], path)):
            self._fault(f"copy {path}")
            with _os_errors():
                self._files.cp_file(self._path(path), f"{self._root}{end}/{path}")
        if self._sizes_bytes(self._root + end) != sizes:  # a removal cannot be undone
            raise OSError(f"the copy in {self.location}{end} is not complete; nothing was removed")
        # Oldest first among manifests: where this stops, a run without --fresh goes on from the newest as before.
        for path in sorted(sizes, key=lambda path: (-ranks[path], path)):
            self._fault(f"delete {path}")
            with _os_errors():
                self._files.rm_file(self._path(path))
        return self.location + end

    def _sizes_bytes(self, root: str) -> dict[str, int]:
        """The size of every object below `root`, by its path there."""
        with _os_errors():
            self._files.invalidate_cache()
            try:
                found: dict[str, dict[str, Any]] = self._files.find(root, detail=True)
            except FileNotFoundError:
                return {}
        # A driver may answer with the object that has exactly the name `root`.
        return {
            name.removeprefix(f"{root}/"): int(entry["size"])
            for name, entry in found.items()
            if name.startswith(f"{root}/")
        }

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"


def _rank(path: str, vouching: tuple[str, ...]) -> int:
    """How much a file vouches for others: its name's place in `vouching`, counted from 1; 0 for all other names."""
    name = path.rpartition("/")[2]
    return vouching.index(name) + 1 if name in vouching else 0


@contextmanager
def _os_errors() -> Iterator[None]:
    """Turn what cloud clients raise (no credentials, no route, time-outs: types of their own) into OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
