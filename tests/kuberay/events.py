"""Events for people who describe an object: written when there is time for it, lost where that fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

import aiohttp

from tests.kuberay.api import EVENTS, Api, ApiError
from tests.kuberay.names import Object, now

_LOG = logging.getLogger(__name__)
_MOST_WAITING = 1000


class Events:
    """A queue of events and the task that writes them."""

    def __init__(self, api: Api, component: str) -> None:
        self._api, self._component = api, component
        self._queue: asyncio.Queue[Object] = asyncio.Queue(_MOST_WAITING)

    def record(self, about: Mapping[str, Any], reason: str, message: str, *, warning: bool = False) -> None:
        metadata, time = about["metadata"], now()
        _LOG.info("%s %s/%s: %s: %s", about["kind"], metadata["namespace"], metadata["name"], reason, message)
        event = {
            "metadata": {"generateName": f"{metadata['name'][:200]}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message[:1000],
            "source": {"component": self._component},
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(event)

    async def run(self) -> None:
        """Writes for ever."""
        while True:
            event = await self._queue.get()
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError, OSError):
                await self._api.create(EVENTS, event)
