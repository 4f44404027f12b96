"""What no watch tells: all that is there at the start, and what was deleted while a watch was broken.

From time to time what is there is listed (metadata alone, by label) and compared with what is known.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from rljob_operator import names
from rljob_operator.cache import Cache, JobKey
from rljob_operator.kube import ApiError, Kube
from rljob_operator.metrics import RECONCILE_ERRORS, RECONCILE_SECONDS
from rljob_operator.settings import Settings
from rljob_operator.work_queue import WorkQueue

logger = logging.getLogger("rljob_operator")

TRY_AGAIN_S = 2.0
FIRST_S = 5.0
"""Watches begin a little after all was listed: what went in between is found soon."""

JOBS = f"apis/{names.GROUP}/{names.VERSION}"
RAY = f"apis/{names.RAY_GROUP}/{names.RAY_VERSION}"
WATCHED = (
    ("pods", "api/v1", "pods", names.OURS),
    ("ray_clusters", RAY, "rayclusters", names.OURS),
    ("ray_jobs", RAY, "rayjobs", names.OURS),
    ("jobs", JOBS, names.PLURAL, ""),
)
"""Kind, group, resource, label selector; jobs last: what is decided about them depends on all others."""


class Resync:
    """Fills the cache, and compares it with the API server now and then."""

    def __init__(self, kube: Kube, cache: Cache, queue: WorkQueue[JobKey], settings: Settings) -> None:
        self._kube, self._cache, self._queue = kube, cache, queue
        self._namespaces = settings.namespaces or [""]
        self._every_s = settings.times.compare_s

    async def fill(self) -> None:
        """Takes in all there is; until then nothing may be decided, since much follows from what is not there."""
        while True:
            try:
                for kind, group, resource, selector in WATCHED:
                    async for found in self._list(group, resource, selector, metadata_alone=False):
                        key = self._cache.hear(kind, found, deleted=False, now_s=time.time())
                        if key is not None and kind == "jobs":
                            self._queue.add(key)
                return
            except ApiError as error:
                logger.warning("cannot list what is there yet: %s", error)
                await asyncio.sleep(TRY_AGAIN_S)

    async def run(self) -> None:
        """Until cancelled."""
        wait_s = min(FIRST_S, self._every_s)
        while True:
            await asyncio.sleep(wait_s)
            wait_s = self._every_s
            started = time.monotonic()
            try:
                await self.compare()
                result = "ok"
            except ApiError as error:
                result = "error"
                RECONCILE_ERRORS.labels(handler="resync", reason=error.reason or str(error.code)).inc()
                logger.warning("comparison put off: %s", error)
            RECONCILE_SECONDS.labels(handler="resync", result=result).observe(time.monotonic() - started)

    async def compare(self) -> int:
        """Drops what is gone, and queues its jobs; how many objects that were."""
        dropped = 0
        for kind, group, resource, selector in WATCHED:
            known = self._cache.known(kind)  # before the list: what is made meanwhile is not gone
            if not known:
                continue
            listed = self._list(group, resource, selector, metadata_alone=True)
            there = {item["metadata"]["uid"] async for item in listed}
            for (namespace, name), uid in known.items():
                if uid not in there:
                    key = self._cache.drop(kind, namespace, name, uid, now_s=time.time())
                    if key is not None:
                        logger.info("job=%s/%s %s %s is gone", key.namespace, key.name, resource, name)
                        self._queue.add(key)
                        dropped += 1
        return dropped

    async def _list(
        self, group: str, resource: str, selector: str, *, metadata_alone: bool
    ) -> AsyncIterator[dict[str, Any]]:
        for namespace in self._namespaces:
            pages = self._kube.pages(group, resource, namespace, selector, metadata_alone=metadata_alone)
            async for page in pages:
                for item in page:
                    yield item
