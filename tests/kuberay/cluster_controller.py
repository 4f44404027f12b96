"""RayClusters: pods kept in the wanted number, what stands beside them, and the status."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tests.kuberay import cluster_status, objects, pods
from tests.kuberay.api import (
    PODS,
    RAY_CLUSTERS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Api,
    ApiError,
)
from tests.kuberay.events import Events
from tests.kuberay.informer import Informer, Key
from tests.kuberay.names import (
    CLUSTER_LABEL,
    GROUP_LABEL,
    REPLICA_INDEX_LABEL,
    Object,
    is_terminating,
    key_of,
    labels_of,
)
from tests.kuberay.validation import cluster_problem
from tests.kuberay.workqueue import WorkQueue

_RESYNC_S = 300.0
_AFTER_DELETION_S = 2.0
_SOON_S = 0.05
"""Events come in bunches; one look for all of them."""


class Platform(Protocol):
    """What runs the pods."""

    def adapt(self, pod: Object) -> Object:
        """The pod with what this platform needs, just before it is made."""

    def head_ip(self, head: Mapping[str, Any]) -> str:
        """The address at which the head can be reached; empty while it has none."""


class RealPods:
    """The platform of pods that a real kubelet runs."""

    def adapt(self, pod: Object) -> Object:
        """Nothing is special about them."""
        return pod

    def head_ip(self, head: Mapping[str, Any]) -> str:
        """The pod's own address."""
        return str((head.get("status") or {}).get("podIP", ""))


class PodsError(Exception):
    """Pods could not be made or deleted; carries the reason of the condition ReplicaFailure."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ClusterController:
    """Reconciles RayClusters one by one."""

    def __init__(self, api: Api, clusters: Informer, pod_cache: Informer, events: Events, platform: Platform) -> None:
        self._api, self._clusters, self._pods = api, clusters, pod_cache
        self._events, self._platform = events, platform
        self._ensured: dict[str, float] = {}
        self._queue = WorkQueue("RayCluster", self.reconcile)
        clusters.handlers.append(self._queue_changed(key_of))
        pod_cache.handlers.append(self._queue_changed(cluster_of))

    async def run(self) -> None:
        await self._clusters.synced.wait()
        await self._pods.synced.wait()
        await self._queue.run()

    async def reconcile(self, key: Key) -> float | None:
        cluster = self._clusters.get(*key)
        if cluster is None or is_terminating(cluster):
            return None
        if cluster["spec"].get("managedBy", "ray.io/kuberay-operator") != "ray.io/kuberay-operator":
            return None
        if problem := cluster_problem(cluster):
            if (cluster.get("status") or {}).get("reason") != problem:
                self._events.record(cluster, "InvalidRayClusterSpec", problem, warning=True)
            await self._write(cluster, cluster_status.refused_status(cluster, problem))
            return None
        await self._ensure_surroundings(cluster)
        failure, again_s = None, _RESYNC_S
        try:
            if await self._reconcile_pods(cluster):
                again_s = _AFTER_DELETION_S
        except PodsError as error:
            failure, again_s = (error.reason, str(error)), _AFTER_DELETION_S
            self._events.record(cluster, error.reason, str(error), warning=True)
        members = self._pods.group(*key)
        heads = [pod for pod in members if cluster_status.is_head(pod)]
        head_ip = self._platform.head_ip(heads[0]) if len(heads) == 1 else ""
        await self._write(cluster, cluster_status.cluster_status(cluster, members, head_ip, failure))
        return again_s

    def _queue_changed(self, key: Callable[[Object], Key | None]) -> Callable[[Object | None, Object | None], None]:
        def changed(old: Object | None, new: Object | None) -> None:
            item = new or old
            if item is not None and (which := key(item)):
                self._queue.add(which, _SOON_S)

        return changed

    async def _ensure_surroundings(self, cluster: Object) -> None:
        """Token, autoscaler's rights, head service: made first, and looked after from time to time."""
        uid = cluster["metadata"]["uid"]
        if time.monotonic() - self._ensured.get(uid, -_RESYNC_S) < _RESYNC_S:
            return
        spec = cluster["spec"]
        if objects.has_tokens(spec):
            namespace, name = key_of(cluster)
            if await self._api.find(SECRETS, namespace, objects.auth_secret_name(name)) is None:
                await self._api.ensure(SECRETS, objects.auth_secret(cluster))
        if spec.get("enableInTreeAutoscaling"):
            if not spec["headGroupSpec"]["template"]["spec"].get("serviceAccountName"):
                await self._api.ensure(SERVICE_ACCOUNTS, objects.service_account(cluster))
            await self._api.ensure(ROLES, objects.role(cluster))
            await self._api.ensure(ROLE_BINDINGS, objects.role_binding(cluster))
        await self._api.ensure(SERVICES, objects.head_service(cluster))
        self._ensured[uid] = time.monotonic()

    async def _reconcile_pods(self, cluster: Object) -> bool:
        """Makes and deletes pods. True where some were deleted, so that another look is due soon."""
        members = self._pods.group(*key_of(cluster))
        if cluster["spec"].get("suspend"):
            for pod in members:
                await self._delete(cluster, pod, "FailedDeleteAllPods")
            return bool(members)
        if await self._reconcile_head(cluster, [pod for pod in members if cluster_status.is_head(pod)]):
            return True
        deleted = False
        for group in cluster["spec"].get("workerGroupSpecs") or []:
            workers = [
                pod
                for pod in members
                if not cluster_status.is_head(pod) and labels_of(pod).get(GROUP_LABEL) == group["groupName"]
            ]
            deleted |= await self._reconcile_group(cluster, group, workers)
            if deleted:
                break
        return deleted

    async def _reconcile_head(self, cluster: Object, heads: list[Object]) -> bool:
        if not heads:
            await self._create(cluster, pods.head_pod(cluster), "FailedCreateHeadPod")
            return False
        if len(heads) > 1:
            for pod in heads[1:]:
                await self._delete(cluster, pod, "FailedDeleteHeadPod")
            return True
        if is_over(heads[0]):
            # A head that is terminating still counts: the new one is made when the object is gone.
            await self._delete(cluster, heads[0], "FailedDeleteHeadPod")
            return True
        return False

    async def _reconcile_group(self, cluster: Object, group: Mapping[str, Any], workers: list[Object]) -> bool:
        if group.get("suspend"):
            for pod in workers:
                await self._delete(cluster, pod, "FailedDeleteWorkerPodsInGroup")
            return bool(workers)
        over = [pod for pod in workers if is_over(pod)]
        for pod in over:
            await self._delete(cluster, pod, "FailedDeleteWorkerPod")
        if over:
            return True
        named = set((group.get("scaleStrategy") or {}).get("workersToDelete") or [])
        chosen = [pod for pod in workers if pod["metadata"]["name"] in named]
        for pod in chosen:
            await self._delete(cluster, pod, "FailedDeleteWorkerPod")
        left = [pod for pod in workers if pod not in chosen]
        missing = cluster_status.wanted_replicas(group) - len(left)
        taken = {labels_of(pod).get(REPLICA_INDEX_LABEL) for pod in left}
        free = (index for index in range(len(left) + max(missing, 0)) if str(index) not in taken)
        for _, index in zip(range(missing), free, strict=False):
            await self._create(cluster, pods.worker_pod(cluster, group, index), "FailedCreateWorkerPod")
        if missing < 0 and not cluster["spec"].get("enableInTreeAutoscaling"):
            for pod in left[:-missing]:
                await self._delete(cluster, pod, "FailedDeleteWorkerPod")
        return False

    async def _create(self, cluster: Object, pod: Object, reason: str) -> None:
        try:
            made = await self._api.create(PODS, self._platform.adapt(pod))
        except ApiError as error:
            raise PodsError(reason, f"{reason}\n{error}") from error
        self._pods.put(made)
        kind = "Head" if cluster_status.is_head(made) else "Worker"
        _, name = key_of(made)
        self._events.record(cluster, f"Created{kind}Pod", f"Created {kind.lower()} Pod {name}")

    async def _delete(self, cluster: Object, pod: Object, reason: str) -> None:
        """Deletes a pod; one that is terminating already is left to its kubelet."""
        if is_terminating(pod):
            return
        namespace, name = key_of(pod)
        try:
            answer = await self._api.delete(PODS, namespace, name, uid=pod["metadata"]["uid"])
        except ApiError as error:
            raise PodsError(reason, f"{reason}\n{error}") from error
        if answer is not None and is_terminating_pod(answer):
            self._pods.put(answer)
        else:
            self._pods.remove(pod)
        kind = "Head" if cluster_status.is_head(pod) else "Worker"
        phase = (pod.get("status") or {}).get("phase")
        self._events.record(cluster, f"Deleted{kind}Pod", f"Deleted {kind.lower()} Pod {name}; its phase was {phase}")

    async def _write(self, cluster: Object, status: Object) -> None:
        if cluster_status.differs(cluster.get("status") or {}, status):
            self._clusters.put(await self._api.replace(RAY_CLUSTERS, {**cluster, "status": status}, "status"))


def is_over(pod: Mapping[str, Any]) -> bool:
    """Whether the pod, or its Ray container, ended for good."""
    if pod["spec"].get("restartPolicy") == "Always":
        return False
    status = pod.get("status") or {}
    if status.get("phase") in ("Failed", "Succeeded"):
        return True
    ray_container = pod["spec"]["containers"][0]["name"]
    return status.get("phase") == "Running" and any(
        container["name"] == ray_container and "terminated" in (container.get("state") or {})
        for container in status.get("containerStatuses") or []
    )


def is_terminating_pod(answer: Mapping[str, Any]) -> bool:
    """Whether the answer to a deletion is a pod that still has to end."""
    return answer.get("kind") == "Pod" and is_terminating(answer)


def cluster_of(pod: Object) -> Key | None:
    """Namespace and name of the RayCluster that a pod belongs to."""
    cluster = labels_of(pod).get(CLUSTER_LABEL)
    return (pod["metadata"]["namespace"], cluster) if cluster else None
