"""Health and metrics over HTTP: /healthz, /readyz, /metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from rljob_operator.metrics import REGISTRY


class Health:
    """Whether the process is alive: its loop turns, and workers do not hang.

    Args:
        stuck_after_s: longest time that one look at a job may take.
        clock: seconds, monotonic.
    """

    def __init__(self, stuck_after_s: float = 120.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._stuck_after_s, self._clock = stuck_after_s, clock
        self._busy_since: dict[Any, float] = {}
        self.ready = False

    def begins(self, key: Any) -> None:
        """A worker begins with a job."""
        self._busy_since[key] = self._clock()

    def ends(self, key: Any) -> None:
        """A worker is done with a job."""
        self._busy_since.pop(key, None)

    def stuck(self) -> list[Any]:
        """Jobs that a worker has been at for too long."""
        return [key for key, since in self._busy_since.items() if self._clock() - since > self._stuck_after_s]


async def start_server(health: Health, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Starts serving; returns what to clean up and the port."""

    async def healthz(_: web.Request) -> web.Response:
        stuck = health.stuck()
        if stuck:
            return web.Response(status=500, text=f"stuck: {', '.join(f'{k[0]}/{k[1]}' for k in stuck)}\n")
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if health.ready else web.Response(status=503, text="starting\n")

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(REGISTRY), headers={"Content-Type": content_type})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    sockets = site._server.sockets if site._server is not None else []  # type: ignore[attr-defined]
    return runner, int(sockets[0].getsockname()[1]) if sockets else port
