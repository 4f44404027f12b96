"""The kubelet of mode process: every pod of a RayCluster becomes processes of this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.kuberay import processes
from tests.kuberay.api import PODS, Api
from tests.kuberay.informer import Informer
from tests.kuberay.machine import Machine
from tests.kuberay.names import Object, is_terminating, key_of
from tests.kuberay.node import NODE_NAME, Node
from tests.kuberay.pod_runner import PodRunner, failed_status, persistently

_LOG = logging.getLogger(__name__)
_OVER = ("Failed", "Succeeded")


class Kubelet:
    """Follows the pods bound to its Node. An async context manager: at its end all that it started has ended."""

    def __init__(self, api: Api, pods: Informer, workdir: Path, volume_sync_s: float) -> None:
        self._api, self._pods, self._volume_sync_s = api, pods, volume_sync_s
        self._machine, self._node = Machine(api, workdir), Node(api)
        self._runners: dict[str, PodRunner] = {}

    async def __aenter__(self) -> Self:
        for container in await asyncio.to_thread(processes.end_leftovers, self._machine.pids):
            _LOG.info("ended what was left of %s/%s %s", container.namespace, container.pod, container.container)
        await self._machine.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        """The node goes, and its pods with it."""
        runners = list(self._runners.values())
        await asyncio.gather(*(runner.kill() for runner in runners), return_exceptions=True)
        for runner in runners:
            namespace, name = key_of(runner.pod)
            try:
                await self._api.delete(PODS, namespace, name, uid=runner.uid, grace_s=0)
            except Exception as failure:
                _LOG.info("pod %s/%s stays: %s", namespace, name, failure)
        await self._node.remove()
        await self._machine.close()

    def adapt(self, pod: Object) -> Object:
        """Platform: no scheduler has to find a node."""
        return {**pod, "spec": {**pod["spec"], "nodeName": NODE_NAME}}

    def head_ip(self, head: Mapping[str, Any]) -> str:
        """Platform: the head's own address."""
        return (head.get("status") or {}).get("podIP", "")

    async def run(self) -> None:
        """For ever."""
        await persistently(self._node.register)
        await self._pods.synced.wait()
        for pod in self._pods:
            self._first_look(pod)
        self._pods.handlers.append(self._pod_changed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._node.run())
            tasks.create_task(self._sync_volumes())

    def _first_look(self, pod: Object) -> None:
        """A pod that an earlier stand-in had: what ran then has ended, what did not start yet starts now."""
        if pod["spec"].get("nodeName") != NODE_NAME:
            return
        namespace, name = key_of(pod)
        phase = (pod.get("status") or {}).get("phase")
        if is_terminating(pod):
            self._bury(pod)
        elif phase == "Running":
            uid, status = pod["metadata"]["uid"], failed_status(pod)
            self._machine.spawn(persistently(lambda: self._api.merge_status(PODS, namespace, name, uid, status)))
        else:
            self._pod_changed(None, pod)

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        pod = new or old
        if pod is None or pod["spec"].get("nodeName") != NODE_NAME:
            return
        uid = pod["metadata"]["uid"]
        runner = self._runners.get(uid)
        phase = (pod.get("status") or {}).get("phase")
        if new is None:
            if runner is not None:
                del self._runners[uid]
                self._machine.spawn(runner.kill())
        elif runner is None:
            if is_terminating(pod):
                self._bury(pod)
            elif phase not in _OVER:
                runner = self._runners[uid] = PodRunner(self._machine, pod)
                self._machine.spawn(runner.run())
        else:
            runner.changed(pod)
            if is_terminating(pod):
                self._machine.spawn(runner.terminate())
            elif phase in _OVER:
                # Its own doing, or somebody said so (an eviction): nothing runs on.
                self._machine.spawn(runner.kill())

    def _bury(self, pod: Object) -> None:
        """Nothing of a pod that is being deleted runs (any more): the object can go."""
        namespace, name = key_of(pod)
        uid = pod["metadata"]["uid"]
        self._machine.spawn(persistently(lambda: self._api.delete(PODS, namespace, name, uid=uid, grace_s=0)))

    async def _sync_volumes(self) -> None:
        while True:
            await asyncio.sleep(self._volume_sync_s)
            for runner in list(self._runners.values()):
                await runner.refresh_volumes()
