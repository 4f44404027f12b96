"""The running operator: server, Lease, watches, workers, poller; started in order, stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Coroutine, Iterable
from http import HTTPStatus
from typing import Any

from rljob_operator.cache import Cache, JobKey
from rljob_operator.drivers import DriverPoller
from rljob_operator.events import EventRecorder
from rljob_operator.handlers import watch
from rljob_operator.kube import ApiError, Kube
from rljob_operator.leader import LeaderElection
from rljob_operator.metrics import JOBS, LEADER, QUEUE_DEPTH, RECONCILE_ERRORS, RECONCILE_SECONDS
from rljob_operator.reconcile import Reconciler
from rljob_operator.resync import Resync
from rljob_operator.served import MISSING_POLL_S, Served
from rljob_operator.server import Health, start_server
from rljob_operator.settings import Settings
from rljob_operator.work_queue import WorkQueue

logger = logging.getLogger("rljob_operator")

STOP_DEADLINE_S = 20.0
"""For looks at jobs that are under way when the process is asked to end."""

EVENTS_STOP_S, RELEASE_S, CANCEL_S = 3.0, 3.0, 5.0

LOST_LEASE_EXIT_CODE, FAILED_EXIT_CODE = 3, 4
"""Ends on purpose: Kubernetes starts the process again, and another replica takes over meanwhile."""


async def serve(settings: Settings) -> int:
    """Runs until SIGTERM or SIGINT (0), or until the Lease is lost or a part fails (not 0)."""
    stop = asyncio.Event()
    _stop_on_signals(stop)
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
        try:
            if await _first(election.acquire(), stop):
                return 0
            kube.may_write = lambda: election.leads
            return await _act(kube, settings, identity, health, stop, election)
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(election.release(), RELEASE_S)
    finally:
        await kube.close()
        await runner.cleanup()


def _stop_on_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


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
    QUEUE_DEPTH.set_function(lambda: len(queue))
    LEADER.set(1)
    resync = Resync(kube, cache, queue, settings)
    events = EventRecorder(kube, identity)
    served = Served(kube)
    workers = Workers(queue, Reconciler(kube, cache, events, served, settings), health)
    poller = DriverPoller(cache, queue, settings)
    filled = asyncio.Event()
    tasks = {
        "watches": asyncio.create_task(_watch(cache, queue, resync, served, filled, settings, stop)),
        "drivers": asyncio.create_task(poller.run(filled)),
        "resync": asyncio.create_task(resync.run()),
        "events": asyncio.create_task(events.run()),
        "jobs": asyncio.create_task(_count_jobs(cache)),
        **{f"worker-{i}": asyncio.create_task(workers.run(poller.asked_all)) for i in range(settings.workers)},
    }
    lease = asyncio.create_task(election.keep() if election is not None else asyncio.Event().wait())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({stopped, lease, *tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
    if lease.done():
        code = LOST_LEASE_EXIT_CODE  # nothing may be done any more, not even finished
    else:
        code = 0 if stop.is_set() else FAILED_EXIT_CODE
        for name, task in tasks.items():
            if task.done() and code:
                logger.error("%s ended: %s", name, task.exception() or "not asked to", exc_info=task.exception())
        await workers.finish(STOP_DEADLINE_S)
        await events.finish(EVENTS_STOP_S)
    await _cancel([*tasks.values(), lease, stopped])
    return code


async def _watch(
    cache: Cache,
    queue: WorkQueue[JobKey],
    resync: Resync,
    served: Served,
    filled: asyncio.Event,
    settings: Settings,
    stop: asyncio.Event,
) -> None:
    """First what is there, then what happens to it; watches begin anew when a kind of resource came or went."""
    await resync.fill()
    await _first_look(served)
    filled.set()
    while True:
        # kopf takes SIGTERM for itself, and would end before the looks that are under way.
        watches = asyncio.create_task(watch(cache, queue, settings.namespaces, begun=lambda: _stop_on_signals(stop)))
        change = asyncio.create_task(served.change())
        try:
            await asyncio.wait({watches, change}, return_when=asyncio.FIRST_COMPLETED)
            if watches.done():
                # A watch of what is not served any more ends; any other one should not.
                if getattr(watches.exception(), "status", None) != HTTPStatus.NOT_FOUND:
                    return watches.result()
                served.doubt()
                await asyncio.wait({change}, timeout=2 * MISSING_POLL_S)
        finally:
            await _cancel([watches, change])
        for key in list(cache.records):
            queue.add(key)
        with contextlib.suppress(ApiError):
            await resync.compare()  # what went with KubeRay told nobody


async def _first_look(served: Served) -> None:
    while True:
        try:
            return await served.look()
        except ApiError as error:
            logger.warning("cannot see what is served yet: %s", error)
            await asyncio.sleep(MISSING_POLL_S)


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.wait(cancelled, timeout=CANCEL_S)


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
        self._stopping = False

    async def run(self, begin: asyncio.Event) -> None:
        """One worker, until cancelled; not before `begin`."""
        await begin.wait()
        while True:
            key = await self._queue.get()
            if self._stopping:
                await asyncio.Event().wait()
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
        """Waits for the looks that are under way; none begins any more."""
        self._stopping = True
        try:
            await asyncio.wait_for(self._idle.wait(), deadline_s)
        except TimeoutError:
            logger.warning("%d jobs were being worked on when the process ended", self._busy)

    async def _work(self, key: JobKey) -> None:
        started = time.monotonic()
        try:
            again_s = await self._reconciler.reconcile(key)
        except ApiError as error:
            RECONCILE_ERRORS.labels(handler="reconcile", reason=error.reason or str(error.code)).inc()
            delay_s = self._queue.failed(key, error.retry_after_s or 0.0)
            level = logging.WARNING if error.code in (0, 409, 429) or error.code >= 500 else logging.ERROR
            logger.log(level, "job=%s/%s put off for %.1f s: %s", key.namespace, key.name, delay_s, error)
            RECONCILE_SECONDS.labels(handler="reconcile", result="error").observe(time.monotonic() - started)
        except Exception:
            RECONCILE_ERRORS.labels(handler="reconcile", reason="Bug").inc()
            delay_s = self._queue.failed(key, 5.0)
            logger.exception("job=%s/%s put off for %.1f s: a bug", key.namespace, key.name, delay_s)
            RECONCILE_SECONDS.labels(handler="reconcile", result="error").observe(time.monotonic() - started)
        else:
            self._queue.done(key)
            if again_s is None:
                self._queue.forget(key)
            else:
                self._queue.add_later(key, again_s)
            RECONCILE_SECONDS.labels(handler="reconcile", result="ok").observe(time.monotonic() - started)
