"""Checkpoint storage in an object store, through fsspec: s3://, gs://, and memory:// for tests.

An object store shows an object whole or not at all, so publishing is a plain write; there are no directories to make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from rlcore.checkpoint.storage import FaultHook, FileDigest, stream_with_digest
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

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"


@contextmanager
def _os_errors() -> Iterator[None]:
    """Turn what cloud clients raise (no credentials, no route, time-outs: types of their own) into OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
