"""Kubernetes events on RLJobs: what `kubectl describe` tells. The same one again raises a count."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from rljob_operator import names
from rljob_operator.actions import Event
from rljob_operator.kube import ApiError, Kube
from rljob_operator.observed import Manifest
from rljob_operator.timestamps import to_rfc3339

logger = logging.getLogger("rljob_operator")

REMEMBERED = 4096
LANES = 4
"""Events that are written at the same time."""

MOST_WAITING = 8192


@dataclass(frozen=True)
class _Emitted:
    """An event on its way; `job` is the RLJob's metadata."""

    job: Manifest
    name: str
    event: Event
    count: int
    now_s: float


def _lost(emitted: _Emitted, why: str) -> None:
    job = emitted.job
    logger.warning("event lost: job=%s/%s %s: %s", job["namespace"], job["name"], emitted.event.reason, why)


class EventRecorder:
    """Emits events beside the work on jobs; one that cannot be written is logged and lost."""

    def __init__(self, kube: Kube, reporter: str) -> None:
        self._kube, self._reporter = kube, reporter
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._lanes: list[asyncio.Queue[_Emitted]] = [asyncio.Queue(MOST_WAITING // LANES) for _ in range(LANES)]

    def emit(self, job: Manifest, event: Event, now_s: float) -> None:
        """One event on a job, soon; those of one job in their order."""
        metadata = job["metadata"]
        digest = hashlib.sha256("\n".join((metadata["uid"], event.kind, event.reason, event.message)).encode())
        name = f"{metadata['name']}.{digest.hexdigest()[:16]}"
        count = self._counts.get(name, 0) + 1
        self._counts[name] = count
        self._counts.move_to_end(name)
        while len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
        emitted = _Emitted(metadata, name, event, count, now_s)
        try:
            self._lanes[hash(metadata["uid"]) % LANES].put_nowait(emitted)
        except asyncio.QueueFull:
            _lost(emitted, "too many wait")

    async def run(self) -> None:
        """Writes what was emitted, until cancelled."""
        await asyncio.gather(*map(self._write, self._lanes))

    async def finish(self, deadline_s: float) -> None:
        """Waits until all that was emitted is written."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(lane.join() for lane in self._lanes)), deadline_s)

    async def _write(self, lane: asyncio.Queue[_Emitted]) -> None:
        while True:
            emitted = await lane.get()
            try:
                if emitted.count == 1:
                    await self._create(emitted.job, emitted.name, emitted.event, emitted.now_s)
                else:
                    await self._count(emitted.job["namespace"], emitted.name, emitted.count, emitted.now_s)
            except ApiError as error:
                _lost(emitted, str(error))
            finally:
                lane.task_done()

    async def _create(self, metadata: Manifest, name: str, event: Event, now_s: float) -> None:
        now = to_rfc3339(now_s)
        body: dict[str, Any] = {
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": f"{names.GROUP}/{names.VERSION}",
                "kind": names.KIND,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": event.kind,
            "reason": event.reason,
            "message": event.message,
            "source": {"component": names.FIELD_MANAGER},
            "reportingComponent": names.FIELD_MANAGER,
            "reportingInstance": self._reporter,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._kube.create("api/v1", "events", body)
        except ApiError as error:
            if error.reason != "AlreadyExists":  # told by the operator that was here before
                raise
            await self._count(metadata["namespace"], name, 2, now_s)

    async def _count(self, namespace: str, name: str, count: int, now_s: float) -> None:
        try:
            patch = {"count": count, "lastTimestamp": to_rfc3339(now_s)}
            await self._kube.patch("api/v1", "events", namespace, name, patch)
        except ApiError as error:
            if error.code == 404:  # events live an hour
                self._counts.pop(name, None)
            else:
                raise
