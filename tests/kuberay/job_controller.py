"""RayJobs in HTTPMode: a RayCluster for each, the entrypoint submitted to its dashboard, and polled until it ended."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tests.kuberay import job_state
from tests.kuberay.api import RAY_CLUSTERS, RAY_JOBS, Api, ApiError
from tests.kuberay.dashboard import Dashboard, DashboardError
from tests.kuberay.events import Events
from tests.kuberay.informer import Informer, Key
from tests.kuberay.names import (
    STOP_JOB_FINALIZER,
    Object,
    controller_of,
    head_service_host,
    is_terminating,
    key_of,
    seconds_since,
)
from tests.kuberay.objects import cluster_of_job, head_ports
from tests.kuberay.validation import job_problem
from tests.kuberay.workqueue import WorkQueue

_LOG = logging.getLogger(__name__)
_SHUTDOWN_MARGIN_S = 2.0


@dataclass(frozen=True)
class Timing:
    """How often KubeRay looks, and how long it bears a dashboard that does not answer. Seconds."""

    poll_s: float = 3.0
    status_check_timeout_s: float = 300.0


class JobController:
    """Reconciles RayJobs one by one."""

    def __init__(
        self, api: Api, jobs: Informer, clusters: Informer, events: Events, dashboard: Dashboard, timing: Timing
    ) -> None:
        self._api, self._jobs, self._clusters = api, jobs, clusters
        self._events, self._dashboard, self._timing = events, dashboard, timing
        self._queue = WorkQueue("RayJob", self.reconcile)
        jobs.handlers.append(self._job_changed)
        clusters.handlers.append(self._cluster_changed)

    async def run(self) -> None:
        await self._jobs.synced.wait()
        await self._clusters.synced.wait()
        await self._queue.run()

    async def reconcile(self, key: Key) -> float | None:
        """One step; seconds until the next."""
        job = self._jobs.get(*key)
        if job is None:
            return None
        if job["spec"].get("managedBy", "ray.io/kuberay-operator") != "ray.io/kuberay-operator":
            return None
        if is_terminating(job):
            return await self._stop(job)
        state = (job.get("status") or {}).get("jobDeploymentStatus", "")
        if problem := job_problem(job):
            if state != "ValidationFailed":
                self._events.record(job, "InvalidRayJobSpec", problem, warning=True)
            await self._write(job, job_state.refused(problem))
            return None
        step = {
            "": self._new,
            "ValidationFailed": self._new,
            "Initializing": self._initializing,
            "Running": self._running,
            "Suspending": self._deleting,
            "Retrying": self._deleting,
            "Suspended": self._suspended,
            "Complete": self._finished,
            "Failed": self._finished,
        }[state]
        return await step(job)

    def _job_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None and (
            old is None
            or old["metadata"].get("generation") != new["metadata"].get("generation")
            or is_terminating(old) != is_terminating(new)
        ):
            self._queue.add(key_of(new))

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        item = new or old
        if item is not None and (owner := controller_of(item)) and owner["kind"] == "RayJob":
            self._queue.add((item["metadata"]["namespace"], owner["name"]))

    async def _new(self, job: Object) -> float | None:
        finalizers = job["metadata"].get("finalizers") or []
        if STOP_JOB_FINALIZER not in finalizers:
            metadata = {**job["metadata"], "finalizers": [*finalizers, STOP_JOB_FINALIZER]}
            job = await self._api.replace(RAY_JOBS, {**job, "metadata": metadata})
            self._jobs.put(job)
        cleared = {"reason": None, "message": None}
        await self._write(job, {**cleared, **job_state.first_changes(job)})
        return 0

    async def _initializing(self, job: Object) -> float | None:
        if changes := job_state.interruption(job):
            await self._write(job, changes)
            return 0
        cluster = await self._cluster(job)
        changes = {"rayClusterStatus": cluster.get("status") or {}}
        state = changes["rayClusterStatus"].get("state")
        if state == "ready" and "dashboard" in head_ports(cluster["spec"]):
            namespace, name = key_of(cluster)
            port = head_ports(cluster["spec"])["dashboard"]
            changes["dashboardURL"] = f"{head_service_host(name, namespace)}:{port}"
            changes["jobDeploymentStatus"] = "Running"
            await self._write(job, changes)
            return 0
        await self._write(job, changes)
        return self._timing.poll_s

    async def _running(self, job: Object) -> float | None:
        if changes := job_state.interruption(job):
            await self._write(job, changes)
            return 0
        cluster = await self._cluster(job)
        job_id = job["status"]["jobId"]
        try:
            info = await self._dashboard.info(cluster, job_id)
            if info is None:
                # Never submitted, or to a head that is no more.
                await self._dashboard.submit(cluster, job, job_id)
                self._events.record(job, "SubmittedJob", f"Submitted the Ray job {job_id}")
                return min(self._timing.poll_s, 1.0)
        except DashboardError as error:
            _LOG.info("RayJob %s/%s: %s", *key_of(job), error)
            changes = job_state.unreachable(job["status"], self._timing.status_check_timeout_s)
        else:
            changes = {**job_state.observed(info), "rayClusterStatus": cluster.get("status") or {}}
        await self._write(job, changes)
        return self._timing.poll_s

    async def _deleting(self, job: Object) -> float | None:
        if not await self._cluster_is_gone(job):
            return self._timing.poll_s
        await self._write(job, job_state.after_deletion(job["status"]))
        return 0

    async def _suspended(self, job: Object) -> float | None:
        if job["spec"].get("suspend"):
            return None
        await self._write(job, {"jobDeploymentStatus": None})
        return 0

    async def _finished(self, job: Object) -> float | None:
        spec = job["spec"]
        if not spec.get("shutdownAfterJobFinishes") or spec.get("clusterSelector"):
            return None
        left_s = spec.get("ttlSecondsAfterFinished", 0) - seconds_since(job["status"]["endTime"])
        if left_s > 0:
            return left_s + (_SHUTDOWN_MARGIN_S if left_s > _SHUTDOWN_MARGIN_S else 0)
        return None if await self._cluster_is_gone(job) else self._timing.poll_s

    async def _stop(self, job: Object) -> float | None:
        """The RayJob is being deleted: its Ray job is asked to end; whether it does or not, nothing waits for it."""
        status = job.get("status") or {}
        finalizers = job["metadata"].get("finalizers") or []
        if STOP_JOB_FINALIZER not in finalizers:
            return None
        cluster = self._clusters.get(job["metadata"]["namespace"], status.get("rayClusterName", ""))
        if cluster is not None and status.get("jobStatus") not in job_state.TERMINAL:
            try:
                await self._dashboard.stop(cluster, status["jobId"])
            except DashboardError as error:
                _LOG.info("RayJob %s/%s could not be stopped: %s", *key_of(job), error)
        left = [name for name in finalizers if name != STOP_JOB_FINALIZER]
        try:
            await self._api.replace(RAY_JOBS, {**job, "metadata": {**job["metadata"], "finalizers": left}})
        except ApiError as error:
            if error.status != 404:
                raise
        return None

    async def _cluster(self, job: Object) -> Object:
        """The RayCluster named in the status; made where it is missing."""
        namespace, name = job["metadata"]["namespace"], job["status"]["rayClusterName"]
        if cluster := self._clusters.get(namespace, name):
            return cluster
        if job["spec"].get("clusterSelector"):
            return await self._api.get(RAY_CLUSTERS, namespace, name)
        cluster = await self._api.ensure(RAY_CLUSTERS, cluster_of_job(job, name))
        if cluster is None:
            return await self._api.get(RAY_CLUSTERS, namespace, name)
        self._clusters.put(cluster)
        self._events.record(job, "CreatedRayCluster", f"Created RayCluster {namespace}/{name}")
        return cluster

    async def _cluster_is_gone(self, job: Object) -> bool:
        """Deletes the RayCluster of the job; True once it is no more."""
        namespace, name = job["metadata"]["namespace"], job["status"].get("rayClusterName", "")
        cluster = await self._api.find(RAY_CLUSTERS, namespace, name) if name else None
        if cluster is None:
            return True
        if not is_terminating(cluster):
            await self._api.delete(RAY_CLUSTERS, namespace, name, uid=cluster["metadata"]["uid"])
            self._events.record(job, "DeletedRayCluster", f"Deleted RayCluster {namespace}/{name}")
        return False

    async def _write(self, job: Object, changes: Object) -> None:
        old = job.get("status") or {}
        new = job_state.merged(job, changes)
        before, after = (status.get("jobDeploymentStatus", "") for status in (old, new))
        if before != after:
            _LOG.info("RayJob %s/%s: %s -> %s %s", *key_of(job), before, after, new.get("reason", ""))
        if _without_times(old) != _without_times(new):
            self._jobs.put(await self._api.replace(RAY_JOBS, {**job, "status": new}, "status"))


def _without_times(status: Object) -> Object:
    """The status less what changes whenever it is written."""
    cluster_status = status.get("rayClusterStatus") or {}
    return {**status, "rayClusterStatus": {**cluster_status, "lastUpdateTime": None}}
