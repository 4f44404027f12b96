"""The Ray jobs of mode pods: scripted drivers, all served by this one process, each on its head's own address."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.kuberay.addresses import AddressBook
from tests.kuberay.api import RL_JOBS, Api, ApiError
from tests.kuberay.cluster_status import is_head, is_running_and_ready
from tests.kuberay.dashboard import DashboardError
from tests.kuberay.informer import Informer
from tests.kuberay.names import GROUP_LABEL, Object, annotations_of, controller_of, is_terminating, key_of, labels_of
from tests.kuberay.scripted_driver import SCRIPT_ANNOTATION, Run, Script, Storage
from tests.kuberay.scripted_state import Driver, StateFiles

_LOG = logging.getLogger(__name__)
STATUS_PORT = 9400
_TICK_S = 0.25
_KEPT_STATUS = ("phase", "podIP", "conditions", "containerStatuses")
_EVALUATORS = re.compile(r'"evaluator":(\d+)')


class ScriptedJobs:
    """Stands in for every dashboard, and for the driver that each of them runs."""

    def __init__(self, api: Api, pods: Informer, config_maps: Informer, folder: Path) -> None:
        self._api, self._pods, self._config_maps = api, pods, config_maps
        self._files = StateFiles(folder)
        self._addresses = AddressBook([STATUS_PORT])
        self._storage, drivers = self._files.load()
        self._drivers = {driver.run.head_uid: driver for driver in drivers}
        for driver in drivers:
            self._addresses.keep(driver.run.head_uid, driver.address)
        self._sites: dict[str, web.TCPSite] = {}
        self._controls: dict[tuple[str, str], tuple[str, Object]] = {}
        self._runner: web.AppRunner | None = None
        pods.handlers.append(self._pod_changed)

    def adapt(self, pod: Object) -> Object:
        """Platform: nothing is special about these pods."""
        return pod

    def head_ip(self, head: Mapping[str, Any]) -> str:
        """Platform: not the pod's address, which leads nowhere, but that of its driver."""
        status = head.get("status") or {}
        if not status.get("podIP") or status.get("phase") != "Running":
            return ""
        return self._addresses.claim(head["metadata"]["uid"])

    async def info(self, cluster: Object, job_id: str) -> Object | None:
        driver = self._drivers.get(self._head_uid(cluster))
        if driver is None or driver.job_id != job_id:
            return None
        self._advance(driver)
        code = driver.run.exit_code
        info = {
            "status": "RUNNING",
            "message": "Job is currently running.",
            "start_time": int(driver.run.started_s * 1000),
        }
        if code is None:
            return info
        status = "STOPPED" if driver.stopped else "SUCCEEDED" if code == 0 else "FAILED"
        end_time = int((driver.ended_s or time.time()) * 1000)
        return {**info, "status": status, "message": driver.run.message, "end_time": end_time}

    async def submit(self, cluster: Object, job: Object, job_id: str) -> None:
        head_uid = self._head_uid(cluster)
        about = await self._about(job)
        try:
            script = Script.parse(annotations_of(about).get(SCRIPT_ANNOTATION, ""))
        except (ValueError, TypeError) as error:
            raise DashboardError(f"annotation {SCRIPT_ANNOTATION}: {error}") from error
        namespace, name = key_of(cluster)
        labels, spec = labels_of(job), about.get("spec") or {}
        job_name = labels.get("rlcore.io/job", about["metadata"]["name"])
        storage_key = about["metadata"]["uid"]
        run = Run(
            job=job_name,
            attempt=int(labels.get("rlcore.io/attempt", "1")),
            head_uid=head_uid,
            started_s=time.time(),
            storage=self._storage.setdefault(storage_key, Storage()),
            script=script,
            algorithm=spec.get("algorithm", ""),
            environment=(spec.get("environment") or {}).get("id", ""),
            location=f"/var/lib/rlcore/checkpoints/{job_name}",
        )
        driver = self._drivers[head_uid] = Driver(
            run=run,
            job_id=job_id,
            address=self._addresses.claim(head_uid),
            storage_key=storage_key,
            namespace=namespace,
            cluster=name,
            job_name=job_name,
        )
        self._files.save(driver)

    async def stop(self, cluster: Object, job_id: str) -> None:
        driver = self._drivers.get(self._head_uid(cluster))
        if driver is not None and driver.job_id == job_id:
            self._advance(driver)
            driver.stopped = driver.run.exit_code is None
            driver.run.terminate(time.time())
            self._files.save(driver)

    async def run(self) -> None:
        """Lets the drivers live, for ever."""
        app = web.Application()
        app.router.add_get("/status", self._get_status)
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/healthz", self._get_health)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await self._pods.synced.wait()
        self._forget_lost_heads()
        try:
            while True:
                for driver in list(self._drivers.values()):
                    self._advance(driver)
                    await self._serve(driver)
                await asyncio.sleep(_TICK_S)
        finally:
            await self._runner.cleanup()

    def _head_uid(self, cluster: Object) -> str:
        """Of the head that would answer now. Raises DashboardError."""
        heads = [pod for pod in self._pods.group(*key_of(cluster)) if is_head(pod)]
        if len(heads) != 1 or not is_running_and_ready(heads[0]):
            raise DashboardError("the head does not answer")
        return heads[0]["metadata"]["uid"]

    async def _about(self, job: Object) -> Object:
        """The RLJob that owns a RayJob, or the RayJob itself where none does."""
        owner = controller_of(job)
        if owner is None or owner["kind"] != "RLJob":
            return job
        try:
            return await self._api.get(RL_JOBS, job["metadata"]["namespace"], owner["name"])
        except ApiError as error:
            raise DashboardError(str(error)) from error

    def _advance(self, driver: Driver) -> None:
        driver.run.advance(time.time(), self._control(driver))
        if driver.run.exit_code is not None and driver.ended_s is None:
            driver.ended_s = time.time()
        self._files.save(driver)

    def _control(self, driver: Driver) -> Object:
        """control.json as it is in the API: no kubelet stands between."""
        key = (driver.namespace, f"{driver.job_name}-run")
        config_map = self._config_maps.get(*key)
        if config_map is None:
            return {}
        version = config_map["metadata"]["resourceVersion"]
        known = self._controls.get(key)
        if known is None or known[0] != version:
            control = {}
            with contextlib.suppress(ValueError):
                control = json.loads(config_map["data"].get("control.json", "{}"))
            known = self._controls[key] = version, control
        return known[1]

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        """A driver goes with its head; one that is told in time saves a checkpoint first."""
        pod = new or old
        if pod is None or not is_head(pod):
            return
        uid = pod["metadata"]["uid"]
        driver = self._drivers.get(uid)
        phase = (pod.get("status") or {}).get("phase")
        if new is not None and phase not in ("Failed", "Succeeded"):
            if driver is not None and is_terminating(new) and old is not None and not is_terminating(old):
                self._advance(driver)
                driver.run.checkpoint(time.time())
                self._files.save(driver)
            return
        self._drop(uid)

    def _drop(self, uid: str) -> None:
        driver, site = self._drivers.pop(uid, None), self._sites.pop(uid, None)
        if driver is not None:
            self._files.forget(driver)
        if site is not None:
            asyncio.get_running_loop().create_task(_close(site))
        self._addresses.release(uid)

    def _forget_lost_heads(self) -> None:
        present = {pod["metadata"]["uid"] for pod in self._pods}
        for uid in set(self._drivers) - present:
            self._drop(uid)

    async def _serve(self, driver: Driver) -> None:
        """Opens or closes the driver's port."""
        uid = driver.run.head_uid
        site = self._sites.get(uid)
        if driver.run.serves and site is None:
            assert self._runner is not None
            site = web.TCPSite(self._runner, driver.address, STATUS_PORT)
            await site.start()
            if uid in self._drivers:
                self._sites[uid] = site
            else:  # lost meanwhile
                await _close(site)
        elif site is not None and not driver.run.serves:
            del self._sites[uid]
            await _close(site)

    def _asked(self, request: web.Request) -> Driver:
        """The driver at the address that the request came to; a connection to one that ended is cut."""
        assert request.transport is not None
        address = request.transport.get_extra_info("sockname")[0]
        driver = self._drivers.get(self._addresses.owner(address))
        if driver is not None:
            self._advance(driver)
        if driver is None or not driver.run.serves:
            request.transport.close()
            raise web.HTTPServiceUnavailable
        return driver

    async def _get_status(self, request: web.Request) -> web.Response:
        driver = self._asked(request)
        return web.json_response(driver.run.status(time.time(), self._evaluator_pods(driver)))

    async def _get_metrics(self, request: web.Request) -> web.Response:
        run = self._asked(request).run
        numbers = {"timesteps": int(run.timesteps), "episode_reward_mean": run.reward}
        lines = (f'rlcore_{name}{{job="{run.job}"}} {number}\n' for name, number in numbers.items())
        return web.Response(text="".join(lines))

    async def _get_health(self, request: web.Request) -> web.Response:
        self._asked(request)
        return web.Response(text="ok\n")

    def _evaluator_pods(self, driver: Driver) -> list[Object]:
        """Ready pods of the pools; those beyond a pool's limit, or the job's number, are drained: newest first."""
        evaluators = self._control(driver).get("evaluators") or {}
        limits = {name: pool.get("maxReplicas") for name, pool in (evaluators.get("pools") or {}).items()}
        total, found, counts, working = evaluators.get("replicas"), [], dict[str, int](), 0
        for pod in self._pods.group(driver.namespace, driver.cluster):
            labels = labels_of(pod)
            if labels.get("rlcore.io/role") != "evaluator" or not is_running_and_ready(pod) or is_terminating(pod):
                continue
            pool = labels.get("rlcore.io/pool", labels.get(GROUP_LABEL, ""))
            counts[pool] = counts.get(pool, 0) + 1
            most = limits.get(pool)
            drained = (most is not None and counts[pool] > most) or (total is not None and working >= total)
            working += not drained
            entry = {"pod": pod["metadata"]["name"], "address": pod["status"].get("podIP", ""), "pool": pool}
            found.append({**entry, "evaluators": 0 if drained else pod["evaluators"]})
        return found


def trim_pod(pod: Object) -> Object:
    """The little of a pod that mode pods looks at: hundreds of jobs' pods have to fit into memory."""
    kept = [{"name": container["name"]} for container in pod["spec"]["containers"][:1]]
    status = {name: value for name, value in (pod.get("status") or {}).items() if name in _KEPT_STATUS}
    spec = {"containers": kept, "restartPolicy": pod["spec"].get("restartPolicy")}
    return {**pod, "spec": spec, "status": status, "evaluators": _evaluators_of(pod)}


def trim_config_map(config_map: Object) -> Object:
    data = config_map.get("data") or {}
    return {**config_map, "data": {name: data[name] for name in ("control.json",) if name in data}}


def _evaluators_of(pod: Object) -> int:
    """How many evaluators the Ray container offers."""
    match = _EVALUATORS.search(" ".join(pod["spec"]["containers"][0].get("args") or []))
    return int(match[1]) if match else 0


async def _close(site: web.TCPSite) -> None:
    with contextlib.suppress(RuntimeError):
        await site.stop()
