"""Asks drivers how they are: GET /status at the head pod's address, many at once, each bounded in time."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from typing import Any

import aiohttp

from rljob_operator.cache import Cache, JobKey, JobRecord
from rljob_operator.observed import DriverReport
from rljob_operator.pods import STATUS_PORT
from rljob_operator.settings import Settings
from rljob_operator.work_queue import WorkQueue

logger = logging.getLogger("rljob_operator")

TIMEOUT_S = 2.0
AT_ONCE = 32
FIRST_ROUND_S = 10.0
"""At the start drivers are asked before anything is judged by their silence; those that hang do not hold up all."""

MOST_BYTES = 1024 * 1024


class DriverPoller:
    """Polls the driver of every running attempt, and queues jobs of which something new was heard."""

    def __init__(self, cache: Cache, queue: WorkQueue[JobKey], settings: Settings) -> None:
        self._cache, self._queue, self._times = cache, queue, settings.times
        self._limit = asyncio.Semaphore(AT_ONCE)
        self.asked_all = asyncio.Event()
        """Set once the drivers that there were at the start had their chance to answer."""

    async def run(self, begin: asyncio.Event) -> None:
        """Until cancelled; not before `begin`."""
        await begin.wait()
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:
            while True:
                started = time.monotonic()
                polls = asyncio.gather(*(self._poll(session, *item) for item in list(self._cache.records.items())))
                if not self.asked_all.is_set():
                    await asyncio.wait({polls}, timeout=FIRST_ROUND_S)
                    self.asked_all.set()
                await polls
                await asyncio.sleep(max(0.05, self._times.poll_s - (time.monotonic() - started)))

    async def _poll(self, session: aiohttp.ClientSession, key: JobKey, record: JobRecord) -> None:
        address = head_address(record)
        if address is None:
            return
        async with self._limit:
            values = await fetch(session, address)
        if values is None or not _is_of(values, key, record):
            return
        before = record.report
        record.report = next_report(before, values, time.time())
        if (
            before is None
            or _news(before.values, values)
            or record.report.received_s - record.written_s >= self._times.live_status_s
        ):
            self._queue.add(key)


def head_address(record: JobRecord) -> str | None:
    """Address of the driver of the present attempt; None while there is none."""
    status = (record.raw or {}).get("status") or {}
    cluster = record.ray_clusters.get(str(status.get("rayCluster")))
    if cluster is None or cluster["metadata"].get("deletionTimestamp"):
        return None
    address = ((cluster.get("status") or {}).get("head") or {}).get("podIP")
    return str(address) if address else None


async def fetch(session: aiohttp.ClientSession, address: str) -> dict[str, Any] | None:
    """A driver's status; None where it does not answer, or not sensibly."""
    host = f"[{address}]" if ":" in address else address
    try:
        async with session.get(f"http://{host}:{STATUS_PORT}/status", allow_redirects=False) as answer:
            if answer.status != 200:
                return None
            data = await answer.content.read(MOST_BYTES)
            values = json.loads(data)
            return values if _makes_sense(values) else None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        logger.debug("driver silent: address=%s error=%s", address, error)
        return None


def _makes_sense(values: Any) -> bool:
    """Whether it has the form of a status: anything may listen at an address that was a driver's."""
    if not isinstance(values, dict):
        return False
    parts = [values.get(name) or {} for name in ("checkpoint", "final", "evaluation")]
    pods = values.get("evaluator_pods") or []
    return all(isinstance(part, dict) for part in (*parts, *(pods if isinstance(pods, list) else [None])))


def _is_of(values: Mapping[str, Any], key: JobKey, record: JobRecord) -> bool:
    """Whether it is this attempt's driver: pods' addresses are used again."""
    attempt = ((record.raw or {}).get("status") or {}).get("attempt")
    return values.get("job") == key.name and values.get("attempt") == attempt


def next_report(before: DriverReport | None, values: Mapping[str, Any], now_s: float) -> DriverReport:
    """The report with the time since when its timesteps stand still."""
    progressed_s = now_s
    if before is not None and before.attempt == values.get("attempt"):
        same = before.values.get("timesteps") == values.get("timesteps") and before.phase == values.get("phase")
        progressed_s = before.progressed_s if same else now_s
    return DriverReport(values, now_s, progressed_s)


def _news(before: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    fields = ("phase", "final", "token", "message")
    if any(before.get(name) != values.get(name) for name in fields):
        return True
    old, new = before.get("checkpoint") or {}, values.get("checkpoint") or {}
    first = before.get("iteration") is None and values.get("iteration") is not None
    first_checkpoint = old.get("timesteps") is None and new.get("timesteps") is not None
    return first or first_checkpoint or old.get("request") != new.get("request")
