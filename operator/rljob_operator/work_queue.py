"""A queue of keys to work on: each key once, one worker at a time per key, failures put off ever longer."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_BACKOFF_S, MOST_BACKOFF_S = 0.2, 60.0


class WorkQueue(Generic[Key]):
    """First come, first served; a key that is added while it is being worked on comes again afterwards.

    Args:
        clock: seconds, monotonic; the event loop's own by default.
        jitter: factor put on delays, so that many keys do not come due at once.
    """

    def __init__(
        self, clock: Callable[[], float] | None = None, jitter: Callable[[], float] = lambda: random.uniform(0.9, 1.1)
    ) -> None:
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._jitter = jitter
        self._ready: deque[Key] = deque()
        self._queued: set[Key] = set()
        self._working: set[Key] = set()
        self._again: set[Key] = set()
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: Key) -> None:
        """Work on it as soon as possible."""
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.append(key)
            self._changed.set()

    def add_later(self, key: Key, delay_s: float) -> None:
        """Work on it after a while at the latest; an earlier date stays."""
        due = self._clock() + delay_s * self._jitter()
        if key not in self._queued and due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._changed.set()

    async def get(self) -> Key:
        """The next key; `done` or `failed` must follow."""
        while True:
            wait_s = self._release_due()
            if self._ready:
                key = self._ready.popleft()
                self._queued.discard(key)
                self._working.add(key)
                return key
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), wait_s)
            except TimeoutError:
                continue

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

    def _release_due(self) -> float | None:
        """Makes due keys ready; seconds until the next one is."""
        now = self._clock()
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) != due:
                heapq.heappop(self._heap)  # added, or put forward, since
            elif due <= now:
                heapq.heappop(self._heap)
                self.add(key)
            else:
                return due - now
        return None
