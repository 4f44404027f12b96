"""The running operator: server, Lease, watches, workers, poller; started in order, stopped in order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Coroutine
from typing import Any

import kopf

from rljob_operator.cache import Cache, JobKey
from rljob_operator.drivers import DriverPoller
from rljob_operator.events import EventRecorder
from rljob_operator.handlers import make_registry, make_settings
from rljob_operator.kube import ApiError, Kube
from rljob_operator.leader import LeaderElection
from rljob_operator.metrics import JOBS, QUEUE_DEPTH, RECONCILE_ERRORS, RECONCILE_SECONDS
from rljob_operator.reconcile import Reconciler
from rljob_operator.resync import Resync
from rljob_operator.server import Health, start_server
from rljob_operator.settings import Settings
from rljob_operator.work_queue import WorkQueue

logger = logging.getLogger("rljob_operator")

STOP_DEADLINE_S = 20.0
"""For looks at jobs that are under way when the process is asked to end."""

LOST_LEASE_EXIT_CODE = 3


async def serve(settings: Settings) -> int:
    """Runs until SIGTERM or SIGINT (0), or until the Lease is lost or a part fails (not 0)."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    health = Health()
    runner, port = await start_server(health, settings.host, settings.port)
    logger.info("serving health and metrics: host=%s port=%d", settings.host, port)
    kube = await Kube.connect()
    identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}-{os.getpid()}-{time.time_ns():x}"
    election = _election(kube, settings, identity)
    try:
        health.ready = True
        if election is None:
            return await _act(kube, settings, identity, health, stop, None)
        if await _first(election.acquire(), stop):
            return 0
        try:
            return await _act(kube, settings, identity, health, stop, election)
        finally:
            await election.release()
    finally:
        await kube.close()
        await runner.cleanup()


def _election(kube: Kube, settings: Settings, identity: str) -> LeaderElection | None:
    election = settings.leader_election
    if not election.enabled:
        return None
    namespace = election.namespace or os.environ.get("POD_NAMESPACE") or "default"
    return LeaderElection(kube, namespace, election.name, identity, election.lease_s)


async def _first(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Runs `work` to its end unless asked to stop before; whether it was stopped."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return True
    task.result()
    return False


async def _act(
    kube: Kube,
    settings: Settings,
    identity: str,
    health: Health,
    stop: asyncio.Event,
    election: LeaderElection | None,
) -> int:
    cache: Cache = Cache()
    queue: WorkQueue[JobKey] = WorkQueue()
    reconciler = Reconciler(kube, cache, EventRecorder(kube, identity), settings)
    workers = Workers(queue, reconciler, health)
    kopf_stop = asyncio.Event()
    watches = kopf.operator(
        registry=make_registry(cache, queue),
        settings=make_settings(),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        stop_flag=kopf_stop,
    )
    tasks = {
        "watches": asyncio.create_task(watches),
        "drivers": asyncio.create_task(DriverPoller(cache, queue, settings).run()),
        "resync": asyncio.create_task(Resync(kube, cache, queue, settings.namespaces).run()),
        "jobs": asyncio.create_task(_count_jobs(cache)),
        **{f"worker-{i}": asyncio.create_task(workers.run()) for i in range(settings.workers)},
    }
    if election is not None:
        tasks["lease"] = asyncio.create_task(election.keep())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({stopped, *tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
    code = 0 if stop.is_set() else LOST_LEASE_EXIT_CODE
    for name, task in tasks.items():
        if task.done() and not stop.is_set():
            error = task.exception()
            logger.error("%s ended: %s", name, error or "not asked to", exc_info=error)
    workers.stopping = True
    if code == 0:
        await workers.finish(STOP_DEADLINE_S)
    kopf_stop.set()
    await asyncio.wait({tasks["watches"]}, timeout=5.0)
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    stopped.cancel()
    return code


async def _count_jobs(cache: Cache, every_s: float = 5.0) -> None:
    while True:
        counts: dict[str, int] = {}
        for record in cache.records.values():
            if record.raw is not None:
                phase = str((record.raw.get("status") or {}).get("phase") or "Pending")
                counts[phase] = counts.get(phase, 0) + 1
        JOBS.clear()
        for phase, count in counts.items():
            JOBS.labels(phase=phase).set(count)
        await asyncio.sleep(every_s)


class Workers:
    """Take keys from the queue and reconcile them; an error puts a key off and stops nobody."""

    def __init__(self, queue: WorkQueue[JobKey], reconciler: Reconciler, health: Health) -> None:
        self._queue, self._reconciler, self._health = queue, reconciler, health
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.stopping = False

    async def run(self) -> None:
        """One worker, until cancelled."""
        while True:
            key = await self._queue.get()
            if self.stopping:
                return
            QUEUE_DEPTH.set(len(self._queue))
            self._busy += 1
            self._idle.clear()
            self._health.begins(key)
            try:
                await self._work(key)
            finally:
                self._health.ends(key)
                self._busy -= 1
                if not self._busy:
                    self._idle.set()

    async def finish(self, deadline_s: float) -> None:
        """Waits for the looks that are under way."""
        try:
            await asyncio.wait_for(self._idle.wait(), deadline_s)
        except TimeoutError:
            logger.warning("%d jobs were being worked on when the process ended", self._busy)

    async def _work(self, key: JobKey) -> None:
        started = time.monotonic()
        try:
            again_s = await self._reconciler.reconcile(key)
        except ApiError as error:
            RECONCILE_ERRORS.labels(reason=error.reason or str(error.code)).inc()
            delay_s = self._queue.failed(key, error.retry_after_s or 0.0)
            level = logging.WARNING if error.code in (0, 409, 429) or error.code >= 500 else logging.ERROR
            logger.log(level, "job=%s/%s put off for %.1f s: %s", key.namespace, key.name, delay_s, error)
            RECONCILE_SECONDS.labels(result="error").observe(time.monotonic() - started)
        except Exception:
            RECONCILE_ERRORS.labels(reason="Bug").inc()
            delay_s = self._queue.failed(key, 5.0)
            logger.exception("job=%s/%s put off for %.1f s: a bug", key.namespace, key.name, delay_s)
            RECONCILE_SECONDS.labels(result="error").observe(time.monotonic() - started)
        else:
            self._queue.done(key)
            if again_s is None:
                self._queue.forget(key)
            else:
                self._queue.add_later(key, again_s)
            RECONCILE_SECONDS.labels(result="ok").observe(time.monotonic() - started)
