"""kopf's part: watches that only tell. No state on objects, no finalizers, no timers: every event becomes a key in the
work queue, and what it told is kept in the cache.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import kopf

from rljob_operator import names
from rljob_operator.cache import Cache, JobKey
from rljob_operator.kopf_storage import NoDiffBase, NoProgress
from rljob_operator.work_queue import WorkQueue

WATCH_TIMEOUT_S = 300
"""A whole number: the API server takes no other."""

RAY_JOB_SETTLES_S, PODS_SETTLE_S = 0.1, 1.0
"""These change many times within moments: one look at a job, and one write of its status, then does for all."""

IDLE_TIMEOUT_S = 1.0
"""kopf has a task for each object that something was just heard of."""

CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S = 10.0, 60.0
"""Of kopf's own requests; a list of everything may take a while."""

STOP_S = 2.0

FIRST_BACKOFFS_S, LAST_BACKOFF_S = (0.5, 1.0, 2.0), 3.0


class Backoffs:
    """Seconds between tries of kopf's requests, without end: a watch that gave up would take the process with it."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain(FIRST_BACKOFFS_S, itertools.repeat(LAST_BACKOFF_S))


async def watch(
    cache: Cache, queue: WorkQueue[JobKey], namespaces: Sequence[str], begun: Callable[[], None] = lambda: None
) -> None:
    """Follows what is there until cancelled, or until a part of kopf has ended, which none should.

    kopf's own way to end is not taken: when one watch dies it waits for others, and they wait for it.

    Args:
        cache: takes what is told.
        queue: of jobs to look at.
        namespaces: empty: all.
        begun: called once kopf has begun.
    """
    tasks = await kopf.spawn_tasks(
        registry=make_registry(cache, queue),
        settings=make_settings(),
        standalone=True,
        # Its own choice has the name of the user in it, and the user of a container may have none.
        identity=cast(Any, "rljob-operator"),
        clusterwide=not namespaces,
        namespaces=namespaces,
    )
    begun()
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=STOP_S)


def make_registry(cache: Cache, queue: WorkQueue[JobKey]) -> kopf.OperatorRegistry:
    """Handlers of RLJobs, RayJobs, RayClusters and pods."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def log_in(**details: Any) -> Any:
        return kopf.login_with_service_account(**details) or kopf.login_via_client(**details)

    def hear(kind: str, event: Any) -> JobKey | None:
        return cache.hear(kind, event["object"], deleted=event["type"] == "DELETED", now_s=time.time())

    def look_within(seconds: float, key: JobKey | None) -> None:
        if key is not None:
            queue.add_later(key, seconds)

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)
    async def on_job(event: Any, **_: Any) -> None:
        key = hear("jobs", event)
        if key is not None:
            queue.add(key)

    @kopf.on.event(names.RAY_GROUP, names.RAY_VERSION, "rayjobs", registry=registry)
    async def on_ray_job(event: Any, **_: Any) -> None:
        look_within(RAY_JOB_SETTLES_S, hear("ray_jobs", event))

    @kopf.on.event(names.RAY_GROUP, names.RAY_VERSION, "rayclusters", registry=registry)
    async def on_ray_cluster(event: Any, **_: Any) -> None:
        look_within(PODS_SETTLE_S, hear("ray_clusters", event))

    @kopf.on.event("", "v1", "pods", registry=registry)
    async def on_pod(event: Any, **_: Any) -> None:
        look_within(PODS_SETTLE_S, hear("pods", event))

    return registry


def make_settings() -> kopf.OperatorSettings:
    """kopf as a source of events and nothing else."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True  # `served` looks at what there is to watch
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()
    settings.queueing.idle_timeout = IDLE_TIMEOUT_S
    settings.watching.server_timeout = WATCH_TIMEOUT_S
    settings.networking.connect_timeout = CONNECT_TIMEOUT_S
    settings.networking.request_timeout = REQUEST_TIMEOUT_S
    settings.networking.error_backoffs = Backoffs()
    # Filtered by the API server: without it every pod of the cluster would be streamed here.
    for watched in ((names.RAY_GROUP, "rayjobs"), (names.RAY_GROUP, "rayclusters"), ("", "pods")):
        settings.watching.label_selectors[watched] = names.OURS
    # Handlers take microseconds; what kopf says of each event is of no use to anybody.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    return settings
