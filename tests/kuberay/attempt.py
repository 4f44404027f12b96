"""RayJobs as the operator makes them, for tests of the stand-in."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

from kubernetes import client

from tests.kube.cluster import Cluster
from tests.kube.wait import eventually

Object = dict[str, Any]
RAY_PORTS = {"gcs-server": 6379, "dashboard": 8265, "client": 10001}
PRE_STOP = "import os; open(os.environ['RLCORE_CHECKPOINT_DIR'] + '/history', 'a').write('pre-stop' + os.linesep)"


def container(name: str, ports: dict[str, int] | None = None, cpu: str = "100m", memory: str = "128Mi") -> Object:
    declared = [{"name": port, "containerPort": number} for port, number in (ports or {}).items()]
    limits = {"cpu": cpu, "memory": memory}
    return {"name": name, "image": "r:1", "ports": declared, "resources": {"limits": limits}}


def template(of: Object, **labels: str) -> Object:
    return {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [of]}}


def group(name: str, replicas: int, most: int = 8) -> Object:
    return {
        "groupName": name,
        "replicas": replicas,
        "minReplicas": 0,
        "maxReplicas": most,
        "rayStartParams": {},
        "resources": {"CPU": "2", "evaluator": "2"},
        "template": template(container("ray-worker"), **{"rlcore.io/role": "evaluator", "rlcore.io/pool": name}),
    }


def ray_job_spec(**changes: Any) -> Object:
    """A RayJob as the operator makes them, with one pool of two pods."""
    cluster = {
        "rayVersion": "2.60.0",
        "headGroupSpec": {
            "rayStartParams": {},
            "resources": {"CPU": "0", "head": "1"},
            "template": template(container("ray-head", {**RAY_PORTS, "rlcore-metrics": 9400})),
        },
        "workerGroupSpecs": [group("spot", 2)],
    }
    spec = {
        "submissionMode": "HTTPMode",
        "entrypoint": "python -m rlcore.driver",
        "backoffLimit": 0,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 60,
        "rayClusterSpec": {**cluster, **changes.pop("cluster", {})},
    }
    return {**spec, **changes}


def real_ray_spec(job: str, workers: int) -> Object:
    """A RayCluster for mode process; its head has the job's ConfigMap, the claim `checkpoints`, and a preStop hook
    that appends a line to the claim's file `history`."""
    head = container("ray-head", {"gcs-server": 6379, "dashboard": 8265}, "1", "2Gi")
    head["env"] = [
        {"name": "RLCORE_CONFIG_DIR", "value": "/etc/rlcore"},
        {"name": "RLCORE_CHECKPOINT_DIR", "value": "/var/lib/rlcore/checkpoints"},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    head["volumeMounts"] = [
        {"name": "config", "mountPath": "/etc/rlcore"},
        {"name": "checkpoints", "mountPath": "/var/lib/rlcore/checkpoints"},
    ]
    head["lifecycle"] = {"preStop": {"exec": {"command": ["python", "-c", PRE_STOP]}}}
    of_head = template(head)
    of_head["spec"]["volumes"] = [
        {"name": "config", "configMap": {"name": f"{job}-run"}},
        {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}},
    ]
    cluster = ray_job_spec()["rayClusterSpec"]
    cluster["headGroupSpec"]["template"] = of_head
    pool = group("spot", workers)
    pool["template"] = template(container("ray-worker", {}, "1", "2Gi"))
    return {**cluster, "authOptions": {"mode": "token"}, "workerGroupSpecs": [pool]}


class Attempt:
    """A RayJob of a test, named like the first attempt of the RLJob `job`, and what belongs to it."""

    def __init__(self, cluster: Cluster, namespace: str, job: str = "job") -> None:
        self.cluster, self.namespace = cluster, namespace
        self.job, self.name = job, f"{job}-1"
        self.objects = client.CustomObjectsApi(cluster.api)
        self.core = client.CoreV1Api(cluster.api)

    def create(self, script: Object | None = None, **changes: Any) -> None:
        labels = {"rlcore.io/job": self.job, "rlcore.io/attempt": "1"}
        annotations = {"standin.rlcore.io/script": json.dumps(script or {})}
        metadata = {"name": self.name, "labels": labels, "annotations": annotations}
        manifest = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": ray_job_spec(**changes)}
        self.objects.create_namespaced_custom_object("ray.io", "v1", self.namespace, "rayjobs", manifest)

    def control(self, **values: Any) -> None:
        """Writes control.json."""
        self.config(**{"control.json": json.dumps({"version": 1, "attempt": 1, **values})})

    def config(self, **data: str) -> None:
        """Writes the job's ConfigMap."""
        labels = {"app.kubernetes.io/managed-by": "rljob-operator"}
        metadata = {"name": f"{self.job}-run", "namespace": self.namespace, "labels": labels}
        self.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    def find(self, kind: str, name: str) -> Object:
        return self.objects.get_namespaced_custom_object("ray.io", "v1", self.namespace, kind, name)

    @property
    def status(self) -> Object:
        return self.find("rayjobs", self.name).get("status") or {}

    @property
    def ray_cluster(self) -> Object:
        return self.find("rayclusters", self.status["rayClusterName"])

    def ray_clusters(self) -> list[Object]:
        return self.objects.list_namespaced_custom_object("ray.io", "v1", self.namespace, "rayclusters")["items"]

    def pods(self, node_type: str) -> list[client.V1Pod]:
        pods = self.core.list_namespaced_pod(self.namespace, label_selector=f"ray.io/node-type={node_type}").items
        return [pod for pod in pods if pod.metadata.name.startswith(f"{self.name}-")]

    def head(self) -> client.V1Pod:
        (pod,) = self.pods("head")
        return pod

    def worker_names(self) -> set[str]:
        return {pod.metadata.name for pod in self.pods("worker")}

    def patch_job(self, **spec: Any) -> None:
        arguments = ("ray.io", "v1", self.namespace, "rayjobs", self.name, {"spec": spec})
        self.objects.patch_namespaced_custom_object(*arguments, _content_type="application/merge-patch+json")

    def patch_cluster(self, *operations: Object) -> None:
        name = self.status["rayClusterName"]
        arguments = ("ray.io", "v1", self.namespace, "rayclusters", name, list(operations))
        self.objects.patch_namespaced_custom_object(*arguments, _content_type="application/json-patch+json")

    def fail(self, pod: str) -> None:
        """The pod's processes are killed, and its kubelet says so."""
        self.core.patch_namespaced_pod_status(pod, self.namespace, {"status": {"phase": "Failed"}})

    def driver(self) -> Object:
        """What the driver says of itself."""
        address = self.ray_cluster["status"]["head"]["podIP"]
        with urllib.request.urlopen(f"http://{address}:9400/status", timeout=5) as answer:
            return json.load(answer)

    def wait(self, state: str, job_status: str | None = None, deadline_s: float = 60) -> Object:
        """The status once the RayJob is in a deployment status (and its Ray job in a status)."""

        def reached() -> Object:
            status = self.status
            same = status.get("jobDeploymentStatus") == state
            return status if same and job_status in (None, status.get("jobStatus")) else {}

        return eventually(reached, deadline_s, what=f"{self.name} {state} {job_status or ''}")

    def condition(self, kind: str) -> Object:
        conditions = self.ray_cluster["status"]["conditions"]
        return next((item for item in conditions if item["type"] == kind), {})

    def ending_namespaces(self) -> list[str]:
        """Those that would be lost with all that is in them: a new API server serves CRDs a little later than these."""
        return [item.metadata.name for item in self.core.list_namespace().items if item.metadata.deletion_timestamp]


def until(check: Callable[[], Any], what: str, deadline_s: float = 60) -> Any:
    return eventually(check, deadline_s, what=what)
