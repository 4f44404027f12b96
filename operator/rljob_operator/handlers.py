"""kopf's part: watches that only tell. No state on objects, no finalizers, no timers: every event becomes a key in the
work queue, and what it told is kept in the cache.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import kopf

from rljob_operator import names
from rljob_operator.cache import Cache, JobKey
from rljob_operator.work_queue import WorkQueue

BATCH_WINDOW_S = 0.02
WATCH_TIMEOUT_S = 300
"""A whole number: the API server takes no other."""


def make_registry(cache: Cache, queue: WorkQueue[JobKey]) -> kopf.OperatorRegistry:
    """Handlers of RLJobs, RayJobs, RayClusters and pods."""
    registry = kopf.OperatorRegistry()

    def enqueue(key: JobKey | None) -> None:
        if key is not None:
            queue.add(key)

    @kopf.on.login(registry=registry)
    def log_in(**details: Any) -> Any:
        return kopf.login_with_service_account(**details) or kopf.login_via_client(**details)

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)
    async def on_job(event: Any, **_: Any) -> None:
        enqueue(cache.take_job(event["object"], deleted=event["type"] == "DELETED"))

    @kopf.on.event(names.RAY_GROUP, names.RAY_VERSION, "rayjobs", registry=registry)
    async def on_ray_job(event: Any, **_: Any) -> None:
        enqueue(cache.take_ray_job(event["object"], deleted=event["type"] == "DELETED"))

    @kopf.on.event(names.RAY_GROUP, names.RAY_VERSION, "rayclusters", registry=registry)
    async def on_ray_cluster(event: Any, **_: Any) -> None:
        enqueue(cache.take_ray_cluster(event["object"], deleted=event["type"] == "DELETED"))

    @kopf.on.event("", "v1", "pods", registry=registry)
    async def on_pod(event: Any, **_: Any) -> None:
        enqueue(cache.take_pod(event["object"], deleted=event["type"] == "DELETED", now_s=time.time()))

    return registry


def make_settings() -> kopf.OperatorSettings:
    """kopf as a source of events and nothing else."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.batching.batch_window = BATCH_WINDOW_S
    settings.watching.server_timeout = WATCH_TIMEOUT_S
    # Filtered by the API server: without it every pod of the cluster would be streamed here.
    for watched in ((names.RAY_GROUP, "rayjobs"), (names.RAY_GROUP, "rayclusters"), ("", "pods")):
        settings.watching.label_selectors[watched] = names.OURS
    # Handlers take microseconds; what kopf says of each event is of no use to anybody.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    return settings
