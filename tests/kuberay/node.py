"""The Node that the pods of mode process are on: one that takes no others, with the heartbeat of a kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os

import aiohttp

from tests.kuberay.api import LEASES, NODES, Api, ApiError
from tests.kuberay.names import Object, now

NODE_NAME = "standin-node"
_LOG = logging.getLogger(__name__)
_TAINT = {"key": "standin.rlcore.io/pods-of-kuberay-only", "value": "true", "effect": "NoSchedule"}
_HEARTBEAT_S, _LEASE_S = 10.0, 40
_LEASE_NAMESPACE = "kube-node-lease"


class Node:
    """Registers the Node and keeps it Ready."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def register(self) -> None:
        """Makes the Node, or takes over one that is there."""
        labels = {"kubernetes.io/hostname": NODE_NAME, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        await self._api.ensure(NODES, {"metadata": {"name": NODE_NAME, "labels": labels}, "spec": {"taints": [_TAINT]}})
        await self._beat()

    async def remove(self) -> None:
        with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError, OSError):
            await self._api.delete(LEASES, _LEASE_NAMESPACE, NODE_NAME)
            await self._api.delete(NODES, "", NODE_NAME)

    async def run(self) -> None:
        """Beats for ever."""
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            try:
                await self._beat()
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
                _LOG.info("heartbeat: %s", error or type(error).__name__)

    async def _beat(self) -> None:
        await self._api.patch(NODES, "", NODE_NAME, {"status": _status()}, "status")
        time = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": NODE_NAME, "leaseDurationSeconds": _LEASE_S, "renewTime": time}
        try:
            await self._api.patch(LEASES, _LEASE_NAMESPACE, NODE_NAME, {"spec": spec})
        except ApiError as error:
            if error.status != 404:
                raise
            await self._api.ensure(
                LEASES, {"metadata": {"name": NODE_NAME, "namespace": _LEASE_NAMESPACE}, "spec": spec}
            )


def _status() -> Object:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    resources = {"cpu": str(os.cpu_count()), "memory": str(memory), "pods": "250"}
    condition = {"status": "True", "lastHeartbeatTime": now(), "reason": "KubeletReady", "message": "ready"}
    return {
        "capacity": resources,
        "allocatable": resources,
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": NODE_NAME}],
        "conditions": [{**condition, "type": "Ready", "lastTransitionTime": condition["lastHeartbeatTime"]}],
    }
