"""The life of one pod in mode process: volumes, init containers, containers, probes, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from tests.kuberay import containers, processes
from tests.kuberay.api import PODS, ApiError
from tests.kuberay.cluster_status import is_head
from tests.kuberay.containers import Head, MissingError, Place, Sources
from tests.kuberay.machine import Machine
from tests.kuberay.names import Object, key_of
from tests.kuberay.pod_status import ContainerState, pod_status, restarts
from tests.kuberay.ray_start import GCS_PORT

_LOG = logging.getLogger(__name__)
_WAIT_FOR_GCS = "wait-gcs-ready"
_RETRY_S, _PROBE_EVERY_S = 0.5, 0.5
_LONGEST_BACK_OFF_S = 10.0
_LOST = 137


class PodRunner:
    """Runs a pod until it ended or was deleted; `changed` and `gone` tell it of the object."""

    def __init__(self, machine: Machine, pod: Object) -> None:
        self._machine, self._api, self.pod = machine, machine.api, pod
        self.uid = pod["metadata"]["uid"]
        self._address = machine.addresses.claim(self.uid)
        self._agent_port, self._client_port, self._gcs_port = (machine.ports.claim() for _ in range(3))
        # Short, for the sockets of Ray and of the driver: their paths may have 107 bytes only.
        self._scratch = Path(tempfile.gettempdir(), f"rlk-{self.uid[:8]}")
        self._volumes: dict[str, Path] = {}
        self._sources = Sources({}, {})
        self._init = [ContainerState(c["name"], c["image"]) for c in pod["spec"].get("initContainers") or []]
        self._containers = [ContainerState(c["name"], c["image"]) for c in pod["spec"]["containers"]]
        self._running: dict[str, tuple[processes.Container, asyncio.subprocess.Process]] = {}
        self._ending = False
        self._work: asyncio.Task[None] | None = None
        if is_head(pod):
            machine.heads[machine.cluster_of(pod)] = (self.uid, Head(self._address, self._gcs_port))

    async def run(self) -> None:
        """All of its life: until it failed or succeeded; the end on request is `terminate`."""
        self._work = asyncio.current_task()
        await self._publish()
        await self._prepare()
        for spec, state in zip(self.pod["spec"].get("initContainers") or [], self._init, strict=True):
            if not await self._run_init(spec, state):
                return
        async with asyncio.TaskGroup() as tasks:
            for spec, state in zip(self.pod["spec"]["containers"], self._containers, strict=True):
                tasks.create_task(self._run_container(spec, state))

    def changed(self, pod: Object) -> None:
        """The object was changed: a kubelet looks at the volumes at once where it was more than the status."""
        old, self.pod = self.pod, pod
        watched = ("labels", "annotations")
        if self._volumes and any(old["metadata"].get(name) != pod["metadata"].get(name) for name in watched):
            self._machine.spawn(self.refresh_volumes())

    async def refresh_volumes(self) -> None:
        if self._volumes and not self._ending:
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError, OSError):
                await self._machine.volumes.refresh(self.pod, self._scratch / "volumes", self._field_value)

    async def terminate(self) -> None:
        """The pod is being deleted: preStop hooks, SIGTERM, SIGKILL when the grace period is over; then it goes."""
        if self._ending:
            return
        self._ending = True
        grace_s = self.pod["metadata"].get("deletionGracePeriodSeconds", 30)
        deadline = time.monotonic() + grace_s
        hooks = [self._pre_stop(spec) for spec in self.pod["spec"]["containers"] if spec["name"] in self._running]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + grace_s):
                await asyncio.gather(*hooks)
        for _, process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        while self._running and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        await self.kill()
        for state in self._containers:
            if state.exit_code is None:
                state.terminate(_LOST)
        await self._publish()
        namespace, name = key_of(self.pod)
        await persistently(lambda: self._api.delete(PODS, namespace, name, uid=self.uid, grace_s=0))

    async def kill(self) -> None:
        """Ends all processes now, and gives back what the pod had."""
        self._ending = True
        if self._work is not None and self._work is not asyncio.current_task():
            self._work.cancel()
            await asyncio.wait([self._work])
        for container, process in list(self._running.values()):
            await asyncio.to_thread(processes.end, container)
            await process.wait()
            processes.forget(self._machine.pids, container)
        self._running.clear()
        await asyncio.to_thread(self._clean_up)

    def _clean_up(self) -> None:
        namespace, name = key_of(self.pod)
        kept = self._machine.logs / namespace / name / "ray"
        logs = self._scratch / "ray" / "session_latest" / "logs"
        if logs.is_dir() and not kept.exists():
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(logs.resolve(), kept, ignore_dangling_symlinks=True)
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._machine.addresses.release(self.uid)
        for port in (self._agent_port, self._client_port, self._gcs_port):
            self._machine.ports.release(port)
        key = self._machine.cluster_of(self.pod)
        if self._machine.heads.get(key, ("",))[0] == self.uid:
            del self._machine.heads[key]

    async def _prepare(self) -> None:
        """Waits for what the pod's volumes and environment need."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        while True:
            reason = "ContainerCreating"
            try:
                volumes = await self._machine.volumes.prepare(self.pod, self._scratch / "volumes", self._field_value)
                reason = "CreateContainerConfigError"
                self._sources = await self._machine.volumes.sources(self.pod)
                for spec in self.pod["spec"]["containers"]:
                    containers.environment(spec, self.pod, self._place(), self._sources)
                self._volumes = volumes
                return
            except MissingError as error:
                for state in self._containers:
                    state.wait(reason, str(error))
                await self._publish()
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
                _LOG.info("pod %s/%s: %s", *key_of(self.pod), error or type(error).__name__)
            await asyncio.sleep(_RETRY_S)

    async def _run_init(self, spec: Mapping[str, Any], state: ContainerState) -> bool:
        """Runs an init container to its end. False where the pod failed with it."""
        while True:
            state.start()
            await self._publish()
            if spec["name"] == _WAIT_FOR_GCS:
                code = await self._wait_for_gcs()
            else:
                code = await self._execute(spec, state)
            state.terminate(code)
            await self._publish()
            if code == 0:
                return True
            if self.pod["spec"].get("restartPolicy") == "Never":
                return False
            await self._back_off(state)

    async def _wait_for_gcs(self) -> int:
        """What KubeRay's own init container waits for, without a Python started for each look."""
        while True:
            head = self._machine.heads.get(self._machine.cluster_of(self.pod))
            if head is not None and await asyncio.to_thread(_accepts, head[1].address, head[1].gcs_port):
                return 0
            await asyncio.sleep(_RETRY_S)

    async def _run_container(self, spec: Mapping[str, Any], state: ContainerState) -> None:
        while True:
            code = await self._execute(spec, state)
            state.terminate(code)
            if self._ending:
                return
            await self._publish()
            if not restarts(self.pod, code):
                return
            await self._back_off(state)

    async def _back_off(self, state: ContainerState) -> None:
        state.wait("CrashLoopBackOff")
        await self._publish()
        await asyncio.sleep(min(2.0**state.restarts, _LONGEST_BACK_OFF_S))
        state.restarts += 1

    async def _execute(self, spec: Mapping[str, Any], state: ContainerState) -> int:
        """Runs a container to its end; its exit code, as a container runtime would give it."""
        namespace, name = key_of(self.pod)
        place = self._place()
        env = containers.environment(spec, self.pod, place, self._sources)
        cwd = containers.mounts(spec, place).get(spec.get("workingDir", ""), self._scratch / "work")
        cwd.mkdir(parents=True, exist_ok=True)
        starting = self._machine.spawn(
            processes.start(
                self._machine.pids,
                mark=f"{self.uid}-{spec['name']}-{state.restarts}",
                owner=(namespace, name, spec["name"]),
                scratch=str(self._scratch),
                command=containers.command(spec, self.pod, place, env),
                env=env,
                cwd=cwd,
                log=self._machine.logs / namespace / name / f"{spec['name']}.log",
            )
        )
        try:
            container, process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._running[spec["name"]] = await starting  # `kill` ends it
            raise
        self._running[spec["name"]] = container, process
        state.start()
        await self._publish()
        probing = asyncio.create_task(self._probe(spec, state))
        try:
            code = await process.wait()
        finally:
            probing.cancel()
        # A container ends with its first process.
        await asyncio.to_thread(processes.end, container)
        processes.forget(self._machine.pids, container)
        self._running.pop(spec["name"], None)
        return code if code >= 0 else 128 - code

    async def _probe(self, spec: Mapping[str, Any], state: ContainerState) -> None:
        """The readiness probe; until it succeeds, more often than the pod says, since tests wait for it."""
        probe = spec.get("readinessProbe") or {}
        failures = 0
        while True:
            succeeded = "httpGet" not in probe or await self._answers(probe["httpGet"])
            failures = 0 if succeeded else failures + 1
            ready = succeeded or (state.ready and failures < probe.get("failureThreshold", 3))
            if ready != state.ready and state.runs:
                state.ready = ready
                await self._publish()
            if "httpGet" not in probe:
                return
            await asyncio.sleep(probe.get("periodSeconds", 10) if state.ready else _PROBE_EVERY_S)

    async def _answers(self, check: Mapping[str, Any]) -> bool:
        port = containers.probe_port(int(check["port"]), self._place())
        return await self._machine.answers(f"http://{self._address}:{port}{check.get('path', '/')}")

    async def _pre_stop(self, spec: Mapping[str, Any]) -> None:
        """Runs a container's preStop hook, in the container's environment; whether it fails does not matter."""
        hook = ((spec.get("lifecycle") or {}).get("preStop") or {}).get("exec")
        if not hook:
            return
        namespace, name = key_of(self.pod)
        place = self._place()
        env = containers.environment(spec, self.pod, place, self._sources)
        container, process = await processes.start(
            self._machine.pids,
            mark=f"{self.uid}-{spec['name']}-prestop",
            owner=(namespace, name, f"prestop-{spec['name']}"),
            scratch="",
            command=containers.command({**spec, "command": hook["command"], "args": []}, self.pod, place, env),
            env=env,
            cwd=self._scratch / "work",
            log=self._machine.logs / namespace / name / f"{spec['name']}-prestop.log",
        )
        try:
            await process.wait()
        finally:
            await asyncio.to_thread(processes.end, container)
            processes.forget(self._machine.pids, container)

    def _place(self) -> Place:
        uid_and_head = self._machine.heads.get(self._machine.cluster_of(self.pod))
        head = uid_and_head[1] if uid_and_head else Head("127.0.0.1", GCS_PORT)
        return Place(
            address=self._address,
            temp_dir=str(self._scratch / "ray"),
            agent_port=self._agent_port,
            client_port=self._client_port,
            head=head,
            volumes=self._volumes,
            api_server=self._machine.api_server,
            client_files=self._machine.client_files,
        )

    def _field_value(self, path: str) -> str:
        return containers.field_value(path, self.pod, self._place())

    async def _publish(self) -> None:
        """Writes the status; conditions that others set (DisruptionTarget) stay."""
        namespace, name = key_of(self.pod)
        status = pod_status(self.pod, self._address, self._init, self._containers)
        await persistently(lambda: self._api.merge_status(PODS, namespace, name, self.uid, status))


async def persistently(call: Callable[[], Awaitable[Any]]) -> None:
    """Calls until the API server answers; that the pod is no more is an answer too."""
    pause_s = 0.1
    while True:
        try:
            await call()
            return
        except ApiError as error:
            if error.status not in (404, 409):
                _LOG.info("%s", error)
            if error.status in (404, 409, 422):
                return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _LOG.info("%s", error or type(error).__name__)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 2.0)


def _accepts(address: str, port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.settimeout(1)
        probe.connect((address, port))
        return True
    return False


def failed_status(pod: Mapping[str, Any]) -> Object:
    """Of a pod whose processes ended unseen, with an earlier stand-in."""
    states = [ContainerState(c["name"], c["image"]) for c in pod["spec"]["containers"]]
    for state in states:
        state.terminate(_LOST, "ContainerStatusUnknown")
    return {**pod_status(pod, (pod.get("status") or {}).get("podIP", ""), [], states), "phase": "Failed"}
