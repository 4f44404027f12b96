"""Finds what watches missed: an object that was deleted while a watch was broken is never told of.

Once a minute what is there is listed (metadata alone, by label) and compared with what is known.
"""

from __future__ import annotations

import asyncio
import logging

from rljob_operator import names
from rljob_operator.cache import Cache, JobKey
from rljob_operator.kube import ApiError, Kube
from rljob_operator.work_queue import WorkQueue

logger = logging.getLogger("rljob_operator")

EVERY_S = 60.0
RAY = f"apis/{names.RAY_GROUP}/{names.RAY_VERSION}"
WATCHED = (("ray_jobs", RAY, "rayjobs"), ("ray_clusters", RAY, "rayclusters"), ("pods", "api/v1", "pods"))


class Resync:
    """Compares the cache with the API server now and then."""

    def __init__(self, kube: Kube, cache: Cache, queue: WorkQueue[JobKey], namespaces: list[str]) -> None:
        self._kube, self._cache, self._queue = kube, cache, queue
        self._namespaces = namespaces or [""]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.compare()
            except ApiError as error:
                logger.warning("resync put off: %s", error)

    async def compare(self) -> int:
        """Drops what is gone, and queues its jobs; how many objects that were."""
        dropped = 0
        for kind, group, resource in WATCHED:
            known = self._cache.known(kind)  # before the list: what is made meanwhile is not gone
            if not known:
                continue
            there: set[str] = set()
            for namespace in self._namespaces:
                try:
                    found = await self._kube.list_metadata(group, resource, namespace, names.OURS)
                except ApiError as error:
                    if error.code != 404:  # 404: KubeRay's resources are not there (any more)
                        raise
                    continue
                there |= {metadata["uid"] for metadata in found}
            for (namespace, name), uid in known.items():
                if uid not in there:
                    key = self._cache.drop(kind, namespace, name, uid)
                    if key is not None:
                        logger.info("job=%s/%s %s %s is gone", key.namespace, key.name, resource, name)
                        self._queue.add(key)
                        dropped += 1
        return dropped
