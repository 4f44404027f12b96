"""kopf's memory of objects, in which we keep nothing. Its own would copy each object several times with every event."""

from __future__ import annotations

from typing import Any

import kopf


class NoDiffBase(kopf.DiffBaseStorage):
    """No last handled state: nobody asks what has changed."""

    def build(self, **_: Any) -> Any:
        """Nothing of an object is compared."""
        return {}

    def fetch(self, **_: Any) -> Any:
        """Nothing was stored."""
        return None

    def store(self, **_: Any) -> None:
        """Nothing is stored."""


class NoProgress(kopf.ProgressStorage):
    """No progress of handlers: they are done when they return."""

    def fetch(self, **_: Any) -> Any:
        """None was stored."""
        return None

    def store(self, **_: Any) -> None:
        """None is stored."""

    def purge(self, **_: Any) -> None:
        """None is there."""

    def touch(self, **_: Any) -> None:
        """Objects are left alone."""

    def clear(self, *, essence: Any) -> Any:
        """Nothing of ours is in it."""
        return essence
