"""A queue of keys to work on: each key once, one worker at a time per key, failures put off ever longer."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_BACKOFF_S, MOST_BACKOFF_S = 0.2, 60.0


class WorkQueue(Generic[Key]):
    """First come, first served; a key that is added while it is being worked on comes again afterwards.

    Args:
        jitter: factor put on delays, so that many keys do not come due at once.
    """

    def __init__(self, jitter: Callable[[], float] = lambda: random.uniform(0.9, 1.1)) -> None:
        self._jitter = jitter
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()
        self._working: set[Key] = set()
        self._again: set[Key] = set()
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()
        self._failures: dict[Key, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._ready.qsize()

    def add(self, key: Key) -> None:
        """Work on it as soon as possible."""
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    def add_later(self, key: Key, delay_s: float) -> None:
        """Work on it after a while at the latest; an earlier date stays."""
        due = asyncio.get_running_loop().time() + delay_s * self._jitter()
        if key not in self._queued and due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._set_timer()

    async def get(self) -> Key:
        """The next key; `done` or `failed` must follow."""
        key = await self._ready.get()
        self._queued.discard(key)
        self._working.add(key)
        return key

    def done(self, key: Key) -> None:
        """Worked on with success."""
        self._failures.pop(key, None)
        self._finish(key)

    def failed(self, key: Key, at_least_s: float = 0.0) -> float:
        """Worked on without success: it comes again after 0.2 s, 0.4 s, ... up to a minute. Returns the delay."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_s = max(at_least_s, min(MOST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures, 20)))
        self._working.discard(key)
        self._again.discard(key)  # whatever happened meanwhile is seen then
        self.add_later(key, delay_s)
        return delay_s

    def forget(self, key: Key) -> None:
        """Nothing is left to do about it."""
        self._failures.pop(key, None)
        self._due.pop(key, None)

    def _finish(self, key: Key) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _set_timer(self) -> None:
        """One timer, for the earliest date of all."""
        due = self._heap[0][0]
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._release_due)

    def _release_due(self) -> None:
        """Makes due keys ready."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._heap:
            due, _, key = self._heap[0]
            if due > now:
                self._set_timer()
                return
            heapq.heappop(self._heap)
            if self._due.get(key) == due:  # else it was added, or put forward, since
                self.add(key)
