"""KubeRay, scheduler and kubelet of the small world, second by second: RayJob -> RayCluster -> pods -> a driver."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from rljob_operator import names
from rljob_operator.timestamps import to_rfc3339

from tests.unit.operator_driver import Driver

if TYPE_CHECKING:
    from tests.unit.operator_world import World

Object = dict[str, Any]
CLUSTER = "ray.io/cluster"


def step_ray_job(world: World, ray_job: Object) -> None:
    """HTTPMode: submits when the cluster is up, and again where the head came back."""
    name, status = ray_job["metadata"]["name"], ray_job["status"]
    before = copy.deepcopy(status)
    cluster = world.ray_clusters.get(str(status.get("rayClusterName")))
    if ray_job["metadata"].get("deletionTimestamp"):
        if cluster is not None:
            _drop_cluster(world, cluster)
        world.tell("ray_jobs", world.ray_jobs.pop(name), deleted=True)
        return
    state = status.get("jobDeploymentStatus", "")
    if ray_job["spec"].get("suspend"):
        status.pop("rayClusterName", None)
        status["jobDeploymentStatus"] = "Suspended"
        if cluster is not None:
            _drop_cluster(world, cluster)
    elif state in ("", "Suspended"):
        status |= {"jobDeploymentStatus": "Initializing", "startTime": to_rfc3339(world.now_s)}
        status["rayClusterName"] = _make_cluster(world, ray_job)
    elif state in ("Initializing", "Running") and cluster is not None:
        _submit(world, ray_job, cluster)
    if status != before:
        world.tell("ray_jobs", ray_job)


def _submit(world: World, ray_job: Object, cluster: Object) -> None:
    status = ray_job["status"]
    pods = _pods_of(world, cluster["metadata"]["name"])
    head = next((pod for pod in pods if pod["metadata"]["labels"][names.LABEL_ROLE] == names.HEAD), None)
    if head is None or not is_ready(head):
        return
    uid = head["metadata"]["uid"]
    driver = world.drivers.get(uid)
    if driver is None:
        if status["jobDeploymentStatus"] == "Running" or all(map(is_ready, pods)):
            attempt = int(ray_job["metadata"]["labels"][names.LABEL_ATTEMPT])
            world.drivers[uid] = Driver(attempt, uid, world.now_s, world.script, world.storage)
            status |= {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
    elif driver.exit_code == 0:
        status |= {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    elif driver.exit_code is not None:
        message = f"Job entrypoint command failed with exit code {driver.exit_code}, logs:\n{world.script.message}\n"
        status |= {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed", "message": message}


def step_cluster(world: World, cluster: Object) -> None:
    """Keeps the number of each group's pods."""
    head = {**cluster["spec"]["headGroupSpec"], "groupName": names.HEAD, "replicas": 1}
    for group in [head, *cluster["spec"]["workerGroupSpecs"]]:
        prefix = f"{cluster['metadata']['name']}-{group['groupName']}-"
        mine = {name: pod for name, pod in world.pods.items() if name.startswith(prefix)}
        for name, pod in list(mine.items()):
            victims = (group.get("scaleStrategy") or {}).get("workersToDelete") or []
            if pod["status"]["phase"] == "Failed" or name in victims:
                drop_pod(world, mine.pop(name))
        for name in list(mine)[group["replicas"] :]:
            drop_pod(world, mine[name])
        for _ in range(group["replicas"] - len(mine)):
            _make_pod(world, cluster, group, prefix)


def step_pod(world: World, pod: Object) -> None:
    """A pod runs a second after it found a node."""
    pool = pod["metadata"]["labels"].get(names.LABEL_POOL)
    if pod["status"]["phase"] == "Pending" and pool not in world.no_nodes:
        pod["spec"]["nodeName"] = "node"
        pod["status"] |= {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        world.tell("pods", pod)


def drop_pod(world: World, pod: Object) -> None:
    """A pod is gone, and the driver in it."""
    del world.pods[pod["metadata"]["name"]]
    world.drivers.pop(pod["metadata"]["uid"], None)
    world.tell("pods", pod, deleted=True)


def is_ready(pod: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"]["conditions"])


def _pods_of(world: World, cluster: str) -> list[Object]:
    return [pod for pod in world.pods.values() if pod["metadata"]["labels"][CLUSTER] == cluster]


def _make_cluster(world: World, ray_job: Object) -> str:
    name = f"{ray_job['metadata']['name']}-{next(world.numbers)}"
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "labels": ray_job["metadata"]["labels"]}
    cluster = {"metadata": metadata, "spec": copy.deepcopy(ray_job["spec"]["rayClusterSpec"]), "status": {}}
    world.ray_clusters[name] = cluster
    world.tell("ray_clusters", cluster)
    return name


def _drop_cluster(world: World, cluster: Object) -> None:
    name = cluster["metadata"]["name"]
    world.tell("ray_clusters", world.ray_clusters.pop(name), deleted=True)
    for pod in _pods_of(world, name):
        drop_pod(world, pod)


def _make_pod(world: World, cluster: Object, group: Object, prefix: str) -> None:
    name, created = f"{prefix}{next(world.numbers)}", to_rfc3339(world.now_s)
    pod: Object = {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "labels": {**group["template"]["metadata"]["labels"], CLUSTER: cluster["metadata"]["name"]},
            "creationTimestamp": created,
        },
        "spec": {},
        "status": {"phase": "Pending", "conditions": []},
    }
    if group["groupName"] in world.no_nodes:
        unscheduled = {"type": "PodScheduled", "status": "False", "lastTransitionTime": created, "message": "no node"}
        pod["status"]["conditions"] = [unscheduled]
    world.pods[name] = pod
    world.tell("pods", pod)
