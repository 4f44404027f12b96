"""A queue of keys to reconcile: a key is in it once, one task at a time works on it, and failures are tried again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import aiohttp

from tests.kuberay.api import ApiError
from tests.kuberay.informer import Key

_LOG = logging.getLogger(__name__)
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.2, 10.0


class WorkQueue:
    """Calls `reconcile(key)`, which returns the seconds after which to look again (None: not before an event)."""

    def __init__(self, name: str, reconcile: Callable[[Key], Awaitable[float | None]], workers: int = 8) -> None:
        self._name, self._reconcile, self._workers = name, reconcile, workers
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}

    def add(self, key: Key, after_s: float = 0.0) -> None:
        """The key needs a look; of several times the earliest counts."""
        loop = asyncio.get_running_loop()
        if after_s > 0:
            timer = self._timers.get(key)
            if timer is None or timer.when() > loop.time() + after_s:
                self._cancel(key)
                self._timers[key] = loop.call_later(after_s, self.add, key)
            return
        self._cancel(key)
        if key in self._busy:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    async def run(self) -> None:
        """Works for ever."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._workers):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            self._queued.discard(key)
            self._busy.add(key)
            after_s = await self._once(key)
            self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            if after_s is not None:
                self.add(key, max(after_s, 0.01))

    async def _once(self, key: Key) -> float | None:
        try:
            after_s = await self._reconcile(key)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            _LOG.info("%s %s/%s: %s", self._name, *key, error or type(error).__name__)
        except Exception:
            _LOG.exception("%s %s/%s", self._name, *key)
        else:
            self._failures.pop(key, None)
            return after_s
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return min(_FIRST_RETRY_S * 2 ** (failures - 1), _LONGEST_RETRY_S)

    def _cancel(self, key: Key) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()
