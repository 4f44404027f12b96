"""What the pods of mode process share: this machine's addresses, ports and directories."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.kuberay.addresses import AddressBook, Ports
from tests.kuberay.api import Api
from tests.kuberay.containers import Head
from tests.kuberay.names import CLUSTER_LABEL, Object, labels_of
from tests.kuberay.volumes import Volumes

_LOG = logging.getLogger(__name__)
_DASHBOARD_PORT, _STATUS_PORT = 8265, 9400
_PROBE_TIMEOUT = aiohttp.ClientTimeout(total=5)


class Machine:
    """Shared by all pods."""

    def __init__(self, api: Api, workdir: Path) -> None:
        self.api, self.workdir = api, workdir
        self.pids, self.logs = workdir / "pids", workdir / "logs"
        self.addresses, self.ports = AddressBook([_DASHBOARD_PORT, _STATUS_PORT]), Ports()
        self.volumes = Volumes(api, workdir)
        self.heads: dict[tuple[str, str], tuple[str, Head]] = {}
        """Pod uid and place of the head by namespace and name of the RayCluster."""
        server = urlsplit(api.credentials.server)
        self.api_server = server.hostname or "127.0.0.1", str(server.port or 443)
        self.client_files = _client_files(api)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(timeout=_PROBE_TIMEOUT)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._session is not None:
            await self._session.close()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs something beside; it is kept alive until it is done."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _LOG.error("%s", task.get_name(), exc_info=error)

    async def answers(self, url: str) -> bool:
        """Whether a probe succeeds."""
        assert self._session is not None
        try:
            async with self._session.get(url) as answer:
                return 200 <= answer.status < 400
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    @staticmethod
    def cluster_of(pod: Object) -> tuple[str, str]:
        """Namespace and name of the RayCluster."""
        return pod["metadata"]["namespace"], labels_of(pod).get(CLUSTER_LABEL, "")


def _client_files(api: Api) -> dict[str, str]:
    """How Ray's autoscaler reaches the API server here: pods on this machine have no token in its usual place."""
    credentials = api.credentials
    if not (credentials.certificate and credentials.key and credentials.authority):
        return {}
    return {
        "RAY_KUBERAY_CLIENT_CERT_PATH": credentials.certificate,
        "RAY_KUBERAY_CLIENT_KEY_PATH": credentials.key,
        "RAY_KUBERAY_CA_CERT_PATH": credentials.authority,
    }
