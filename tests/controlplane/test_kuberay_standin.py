"""The stand-in behaves as KubeRay 1.7 did where it was watched, and as is known of it elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from tests.kube.cluster import Cluster
from tests.kuberay.attempt import Attempt, container, group, ray_job_spec, real_ray_spec, until
from tests.kuberay.standin import KubeRayStandIn

Object = dict[str, Any]


@pytest.fixture(scope="module")
def kuberay(cluster: Cluster) -> Iterator[KubeRayStandIn]:
    with KubeRayStandIn(cluster, "pods", poll_s=0.2) as running:
        yield running


@pytest.fixture
def attempt(cluster: Cluster, kuberay: KubeRayStandIn, namespace: str) -> Attempt:
    return Attempt(cluster, namespace)


# What KubeRay made of a RayJob with tokens, autoscaler v2, and a head that declares one port of its own.
COMMON_ENV = [
    "RAY_CLUSTER_NAME",
    "RAY_CLUSTER_NAMESPACE",
    "RAY_CLOUD_INSTANCE_ID",
    "RAY_NODE_TYPE_NAME",
    "KUBERAY_GEN_RAY_START_CMD",
    "RAY_PORT",
    "RAY_ADDRESS",
    "RAY_USAGE_STATS_KUBERAY_IN_USE",
]
AUTH_ENV = ["RAY_AUTH_MODE", "RAY_AUTH_TOKEN"]
HEAD_ENV = [
    "RAY_enable_autoscaler_v2",
    *AUTH_ENV,
    *COMMON_ENV,
    "RAY_USAGE_STATS_EXTRA_TAGS",
    "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE",
]
WORKER_ENV = [*AUTH_ENV, "FQ_RAY_IP", "RAY_IP", *COMMON_ENV, "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE"]
AUTOSCALER_ENV = [
    "RAY_CLUSTER_NAME",
    "RAY_CLUSTER_NAMESPACE",
    "RAY_HEAD_POD_NAME",
    "KUBERAY_CRD_VER",
    "KUBERAY_GEN_AUTOSCALER_START_CMD",
    *AUTH_ENV,
]
HEAD_COMMAND = (
    "ray start --head  --block  --dashboard-agent-listen-port=52365  --dashboard-host=0.0.0.0  --memory=4294967296"
    "  --metrics-export-port=8080  --no-monitor  --num-cpus=0 "
)
WORKER_COMMAND = (
    "ray start  --address={fqdn}:6379  --block  --dashboard-agent-listen-port=52365  --memory=4294967296"
    "  --metrics-export-port=8080  --num-cpus=2  --resources='{{\"evaluator\":2}}' "
)
ULIMIT = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; "


@pytest.fixture
def autoscaled(attempt: Attempt) -> Attempt:
    """The RayJob that was given to KubeRay."""
    head = {
        "rayStartParams": {"num-cpus": "0"},
        "template": {"spec": {"containers": [container("ray-head", {"rlcore-metrics": 9400}, "2", "4Gi")]}},
    }
    workers = {**group("spot", 2), "minReplicas": 2}
    workers["template"] = {"spec": {"containers": [container("ray-worker", {}, "2", "4Gi")]}}
    cluster = {
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {"version": "v2", "idleTimeoutSeconds": 60},
        "authOptions": {"mode": "token"},
        "headGroupSpec": head,
        "workerGroupSpecs": [workers],
    }
    attempt.create(cluster=cluster)
    until(lambda: attempt.ray_cluster["status"].get("readyWorkerReplicas") == 2, "all pods")
    return attempt


def env_names(of: client.V1Container) -> list[str]:
    return [entry.name for entry in of.env]


def env(of: client.V1Container) -> dict[str, str]:
    return {entry.name: entry.value for entry in of.env}


def test_head_pod(autoscaled: Attempt) -> None:
    name = autoscaled.status["rayClusterName"]
    head = autoscaled.head()
    ray, autoscaler = head.spec.containers
    assert head.metadata.name.startswith(f"{name}-head-")
    assert head.metadata.labels == {
        "app.kubernetes.io/created-by": "kuberay-operator",
        "app.kubernetes.io/name": "kuberay",
        "ray.io/cluster": name,
        "ray.io/group": "headgroup",
        "ray.io/identifier": f"{name}-head",
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": "head",
    }
    (owner,) = head.metadata.owner_references
    assert (owner.kind, owner.name, owner.controller, owner.block_owner_deletion) == ("RayCluster", name, True, True)
    assert (ray.command, ray.args) == (["/bin/bash", "-c", "--"], [ULIMIT + HEAD_COMMAND])
    assert env_names(ray) == HEAD_ENV
    assert env(ray)["KUBERAY_GEN_RAY_START_CMD"] == HEAD_COMMAND
    assert env(ray)["RAY_ADDRESS"] == "127.0.0.1:6379"
    assert [(port.name, port.container_port) for port in ray.ports] == [("rlcore-metrics", 9400), ("metrics", 8080)]
    assert {mount.mount_path for mount in ray.volume_mounts} >= {"/dev/shm", "/tmp/ray"}
    probe = ray.readiness_probe
    assert (probe.http_get.path, probe.http_get.port, probe.timeout_seconds) == ("/api/healthz", 52365, 5)
    assert (probe.initial_delay_seconds, probe.failure_threshold) == (10, 10)
    assert (ray.liveness_probe.initial_delay_seconds, ray.liveness_probe.failure_threshold) == (30, 120)
    assert autoscaler.name == "autoscaler"
    assert env_names(autoscaler) == AUTOSCALER_ENV
    assert autoscaler.args == [
        "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
    ]
    assert autoscaler.resources.limits == {"cpu": "500m", "memory": "512Mi"}
    assert (head.spec.restart_policy, head.spec.service_account_name) == ("Never", name)
    assert head.spec.volumes[0].empty_dir.size_limit == "4Gi"


def test_worker_pods(autoscaled: Attempt) -> None:
    name = autoscaled.status["rayClusterName"]
    fqdn = f"{name}-head-svc.{autoscaled.namespace}.svc.cluster.local"
    workers = autoscaled.pods("worker")
    assert {pod.metadata.labels.pop("ray.io/worker-group-replica-index") for pod in workers} == {"0", "1"}
    for pod in workers:
        (ray,), (init,) = pod.spec.containers, pod.spec.init_containers
        command = WORKER_COMMAND.format(fqdn=fqdn)
        assert pod.metadata.name.startswith(f"{name}-spot-worker-")
        assert pod.metadata.labels == {
            "app.kubernetes.io/created-by": "kuberay-operator",
            "app.kubernetes.io/name": "kuberay",
            "ray.io/cluster": name,
            "ray.io/group": "spot",
            "ray.io/identifier": f"{name}-worker",
            "ray.io/is-ray-node": "yes",
            "ray.io/node-type": "worker",
        }
        assert (ray.command, ray.args) == (["/bin/bash", "-c", "--"], [ULIMIT + command])
        assert env_names(ray) == WORKER_ENV
        assert (env(ray)["FQ_RAY_IP"], env(ray)["RAY_IP"]) == (fqdn, f"{name}-head-svc")
        assert env(ray)["RAY_ADDRESS"] == f"{fqdn}:6379"
        assert (ray.readiness_probe.http_get.port, ray.readiness_probe.timeout_seconds) == (52365, 2)
        assert (init.name, env_names(init)) == ("wait-gcs-ready", [*AUTH_ENV, "FQ_RAY_IP", "RAY_IP"])
        assert init.resources.limits == {"cpu": "200m", "memory": "256Mi"}
        assert pod.spec.restart_policy == "Never"


def test_what_stands_beside_the_pods(autoscaled: Attempt) -> None:
    name, namespace = autoscaled.status["rayClusterName"], autoscaled.namespace
    service = autoscaled.core.read_namespaced_service(f"{name}-head-svc", namespace)
    assert service.spec.cluster_ip == "None"
    assert service.spec.publish_not_ready_addresses
    assert {port.name: port.port for port in service.spec.ports} == {"metrics": 8080, "rlcore-metrics": 9400}
    assert set(autoscaled.core.read_namespaced_secret(name, namespace).data) == {"auth_token"}
    autoscaled.core.read_namespaced_service_account(name, namespace)
    rbac = client.RbacAuthorizationV1Api(autoscaled.cluster.api)
    rules = {tuple(rule.resources): rule.verbs for rule in rbac.read_namespaced_role(name, namespace).rules}
    assert rules[("pods",)] == ["get", "list", "watch", "patch"]
    assert rules[("rayclusters",)] == ["get", "patch"]
    assert rbac.read_namespaced_role_binding(name, namespace).subjects[0].name == name


def test_status_of_a_cluster(autoscaled: Attempt) -> None:
    status = autoscaled.ray_cluster["status"]
    assert status["state"] == "ready"
    assert (status["desiredCPU"], status["desiredMemory"], status["desiredGPU"]) == ("6", "12Gi", "0")
    assert (status["minWorkerReplicas"], status["desiredWorkerReplicas"], status["maxWorkerReplicas"]) == (2, 2, 8)
    assert status["endpoints"] == {"metrics": "8080", "rlcore-metrics": "9400"}
    assert status["head"]["podName"] == autoscaled.head().metadata.name
    assert autoscaled.condition("HeadPodReady")["reason"] == "HeadPodRunningAndReady"
    assert autoscaled.condition("RayClusterProvisioned")["reason"] == "AllPodRunningAndReadyFirstTime"


def test_without_a_dashboard_port_nothing_is_submitted(autoscaled: Attempt) -> None:
    until(lambda: autoscaled.status["rayClusterStatus"].get("state") == "ready", "the RayJob to see it ready")
    assert autoscaled.status["jobDeploymentStatus"] == "Initializing"


def test_complete_run(attempt: Attempt) -> None:
    attempt.control(stop={"timesteps": 3000})
    attempt.create({"timestepsPerS": 3000}, ttlSecondsAfterFinished=2)
    running = attempt.wait("Running", "RUNNING")
    assert running["jobId"].startswith("job-1-")
    final = until(lambda: attempt.driver()["final"], "a final status")
    assert (final["phase"], final["exit_code"]) == ("Succeeded", 0)
    assert attempt.status["jobDeploymentStatus"] == "Running", "the driver waits until it was read"
    attempt.control(stop={"timesteps": 3000}, finalObserved=final["token"])
    done = attempt.wait("Complete", "SUCCEEDED")
    assert (done["succeeded"], done["failed"], done["message"]) == (1, 0, "Job finished successfully.")
    assert done["endTime"]
    assert done["jobId"] == running["jobId"]
    until(lambda: not attempt.ray_clusters(), "its RayCluster to go")
    until(lambda: not attempt.pods("head") + attempt.pods("worker"), "its pods to go")


def test_failed_run(attempt: Attempt) -> None:
    attempt.create({"failAfterS": 0.2, "exitCode": 1, "message": "CUDA error"})
    status = attempt.wait("Failed", "FAILED")
    assert (status["reason"], status["failed"]) == ("AppFailed", 1)
    assert status["message"].startswith(
        "Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):\n"
    )
    assert "CUDA error" in status["message"]


def test_back_off_limit_makes_a_new_cluster(attempt: Attempt) -> None:
    attempt.create({"failAfterS": 0, "exitCode": 1, "failures": 1}, backoffLimit=1)
    first = until(lambda: attempt.status.get("rayClusterName"), "a RayCluster")
    until(lambda: attempt.status.get("rayClusterName", first) != first, "another RayCluster")
    assert attempt.wait("Running", "RUNNING")["failed"] == 1


def test_checkpoint_on_request_and_pause(attempt: Attempt) -> None:
    attempt.control()
    attempt.create({"checkpointEveryS": 1000})
    until(lambda: attempt.driver()["phase"] == "Running", "the driver")
    attempt.control(checkpointRequest="now-1", pause=True)
    paused = until(lambda: (d := attempt.driver())["phase"] == "Paused" and d, "the pause")
    assert paused["checkpoint"]["request"] == "now-1"
    assert paused["checkpoint"]["timesteps"] == paused["timesteps"] == attempt.driver()["timesteps"]
    attempt.control()
    until(lambda: attempt.driver()["timesteps"] > paused["timesteps"], "training to go on")


def test_evaluators_beyond_a_limit_are_drained(attempt: Attempt) -> None:
    attempt.control(evaluators={"replicas": None, "pools": {"spot": {"minReplicas": 0, "maxReplicas": 1}}})
    attempt.create()
    until(lambda: attempt.driver()["evaluators"] == 2, "the driver")
    assert sorted(pod["evaluators"] for pod in attempt.driver()["evaluator_pods"]) == [0, 2]


def test_suspend_and_resume(attempt: Attempt) -> None:
    attempt.create()
    first = attempt.wait("Running", "RUNNING")
    attempt.patch_job(suspend=True)
    suspended = attempt.wait("Suspended")
    assert not attempt.ray_clusters()
    assert not suspended.keys() & {"jobId", "rayClusterName", "jobStatus", "dashboardURL"}
    attempt.patch_job(suspend=False)
    second = attempt.wait("Running", "RUNNING")
    assert first["jobId"] != second["jobId"]
    assert first["rayClusterName"] != second["rayClusterName"]


def test_deletion_stops_the_job(attempt: Attempt) -> None:
    attempt.create()
    attempt.wait("Running", "RUNNING")
    until(lambda: attempt.driver()["timesteps"] > 0, "the driver")
    assert attempt.find("rayjobs", attempt.name)["metadata"]["finalizers"] == ["ray.io/rayjob-finalizer"]
    attempt.objects.delete_namespaced_custom_object("ray.io", "v1", attempt.namespace, "rayjobs", attempt.name)
    until(lambda: not attempt.ray_clusters(), "the RayCluster to go")
    until(lambda: not attempt.pods("head") + attempt.pods("worker"), "the pods to go")


@pytest.mark.parametrize(
    ("field", "reason"),
    [("activeDeadlineSeconds", "DeadlineExceeded"), ("preRunningDeadlineSeconds", "PreRunningDeadlineExceeded")],
)
def test_deadlines(attempt: Attempt, field: str, reason: str) -> None:
    cluster = copy.deepcopy(ray_job_spec()["rayClusterSpec"])
    cluster["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] = "missing"
    attempt.create(cluster=cluster, **{field: 1})
    status = attempt.wait("Failed")
    assert status["reason"] == reason
    assert field in status["message"]


REFUSED = {
    "suspended but kept": {"suspend": True, "shutdownAfterJobFinishes": False, "ttlSecondsAfterFinished": 0},
    "kept for a while": {"shutdownAfterJobFinishes": False},
    "fewer than none": {"cluster": {"workerGroupSpecs": [group("spot", -1)]}},
    "min over max": {"cluster": {"workerGroupSpecs": [{**group("spot", 1, most=1), "minReplicas": 2}]}},
    "resources twice": {"cluster": {"workerGroupSpecs": [{**group("a", 1), "rayStartParams": {"num-cpus": "1"}}]}},
    "labels in parameters": {"cluster": {"workerGroupSpecs": [{**group("a", 1), "rayStartParams": {"labels": "a=b"}}]}},
    "tokens of an old Ray": {"cluster": {"authOptions": {"mode": "token"}, "rayVersion": "2.51.0"}},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED.keys())
def test_refused(attempt: Attempt, changes: Object) -> None:
    attempt.create(**copy.deepcopy(changes))
    status = attempt.wait("ValidationFailed")
    assert status["reason"] == "ValidationFailed"
    assert status["message"]
    assert not attempt.ray_clusters()


def test_metadata_is_copied_and_later_edits_are_not(attempt: Attempt) -> None:
    attempt.create()
    attempt.wait("Running")
    metadata = attempt.ray_cluster["metadata"]
    assert metadata["labels"]["rlcore.io/job"] == "job"
    assert metadata["labels"]["ray.io/originated-from-cr-name"] == "job-1"
    assert "standin.rlcore.io/script" in metadata["annotations"]
    attempt.patch_job(rayClusterSpec={**ray_job_spec()["rayClusterSpec"], "workerGroupSpecs": [group("spot", 5)]})
    attempt.patch_cluster({"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3})
    until(lambda: len(attempt.pods("worker")) == 3, "what the RayCluster says")
    assert attempt.ray_cluster["spec"]["workerGroupSpecs"][0]["replicas"] == 3


def test_lost_head_runs_the_same_job_again(attempt: Attempt) -> None:
    attempt.create({"checkpointEveryS": 0.2})
    job_id = attempt.wait("Running", "RUNNING")["jobId"]
    until(lambda: attempt.driver()["checkpoint"]["timesteps"], "a checkpoint")
    head, before = attempt.head(), attempt.driver()
    attempt.core.delete_namespaced_pod(head.metadata.name, attempt.namespace, grace_period_seconds=0)
    after = until(lambda: (d := attempt.driver())["token"] != before["token"] and d, "a new driver")
    assert after["timesteps"] >= before["checkpoint"]["timesteps"]
    assert attempt.status["jobId"] == job_id
    assert attempt.ray_cluster["status"]["state"] == "ready"
    assert attempt.head().metadata.uid != head.metadata.uid


def test_terminating_head_still_counts(attempt: Attempt) -> None:
    attempt.create()
    attempt.wait("Running", "RUNNING")
    head = attempt.head().metadata.name
    hold = {"metadata": {"finalizers": ["test.rlcore.io/hold"]}}
    attempt.core.patch_namespaced_pod(head, attempt.namespace, hold)
    attempt.core.delete_namespaced_pod(head, attempt.namespace)
    until(lambda: attempt.head().metadata.deletion_timestamp, "the deletion")
    attempt.patch_cluster({"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3})
    until(lambda: len(attempt.pods("worker")) == 3, "another look")
    assert attempt.head().metadata.name == head
    attempt.core.patch_namespaced_pod(head, attempt.namespace, {"metadata": {"finalizers": None}})
    until(lambda: attempt.pods("head") and attempt.head().metadata.name != head, "a new head")


def test_failed_worker_is_replaced_and_ready_is_sticky(attempt: Attempt) -> None:
    attempt.create()
    attempt.wait("Running", "RUNNING")
    before = attempt.worker_names()
    lost = min(before)
    attempt.fail(lost)
    until(lambda: lost not in attempt.worker_names() and len(attempt.worker_names()) == 2, "a new worker")
    assert attempt.worker_names() & before == before - {lost}
    assert attempt.ray_cluster["status"]["state"] == "ready"


def test_workers_to_delete_are_deleted(attempt: Attempt) -> None:
    attempt.create()
    attempt.wait("Running", "RUNNING")
    before = attempt.worker_names()
    chosen = max(before)
    path = "/spec/workerGroupSpecs/0"
    attempt.patch_cluster(
        {"op": "replace", "path": f"{path}/replicas", "value": 1},
        {"op": "add", "path": f"{path}/scaleStrategy", "value": {"workersToDelete": [chosen]}},
    )
    until(lambda: attempt.worker_names() == before - {chosen}, "the chosen one to go")
    until(lambda: attempt.ray_cluster["status"]["desiredWorkerReplicas"] == 1, "the status")


def test_quota_is_a_replica_failure(attempt: Attempt) -> None:
    quota = client.V1ResourceQuota(
        metadata=client.V1ObjectMeta(name="quota"), spec=client.V1ResourceQuotaSpec(hard={"pods": "2"})
    )
    attempt.core.create_namespaced_resource_quota(attempt.namespace, quota)
    until(lambda: attempt.core.read_namespaced_resource_quota("quota", attempt.namespace).status.hard, "the quota")
    attempt.create()
    failure = until(lambda: attempt.condition("ReplicaFailure"), "the condition")
    assert (failure["status"], failure["reason"]) == ("True", "FailedCreateWorkerPod")
    assert "exceeded quota" in failure["message"]
    attempt.core.delete_namespaced_resource_quota("quota", attempt.namespace)
    until(lambda: not attempt.condition("ReplicaFailure"), "its end")


def test_restarts_change_nothing(attempt: Attempt, kuberay: KubeRayStandIn) -> None:
    """Neither those of the API server nor KubeRay's own."""
    until(lambda: not attempt.ending_namespaces(), "other tests' namespaces to go", deadline_s=120)
    attempt.create({"checkpointEveryS": 1000})
    attempt.wait("Running", "RUNNING")
    before = until(lambda: attempt.driver(), "the driver")
    kuberay.kill()
    attempt.cluster.restart_api_server()
    kuberay.start()
    after = until(lambda: attempt.driver(), "the driver")
    assert after["token"] == before["token"]
    assert after["timesteps"] >= before["timesteps"]
    attempt.cluster.restart_api_server()
    attempt.fail(min(attempt.worker_names()))
    until(lambda: attempt.ray_cluster["status"].get("readyWorkerReplicas") == 2, "the worker to be replaced")
    assert attempt.status["jobStatus"] == "RUNNING"


@pytest.fixture
def real_ray(cluster: Cluster, kuberay: KubeRayStandIn) -> Iterator[KubeRayStandIn]:
    """The stand-in whose pods are real; there is one KubeRay at a time."""
    pytest.importorskip("ray")
    objects = client.CustomObjectsApi(cluster.api)
    for kind in ("rayjobs", "rayclusters"):  # of other tests, whose namespaces are being deleted
        until(
            lambda kind=kind: not objects.list_cluster_custom_object("ray.io", "v1", kind)["items"], f"no {kind}", 120
        )
    kuberay.stop()
    with KubeRayStandIn(cluster, "process", volume_sync_s=1) as running:
        yield running
        print(running.tail(100))
    kuberay.start()


RUN_A_TASK = """
import os, ray
from pathlib import Path

ray.init(log_to_driver=False)
where = ray.get(ray.remote(resources={"evaluator": 1})(ray.util.get_node_ip_address).remote())
Path(os.environ["RLCORE_CHECKPOINT_DIR"], "where").write_text(where)
"""
FAIL = "raise SystemExit(3)"
RUN_TWICE = """
import os, time
from pathlib import Path

config = Path(os.environ["RLCORE_CONFIG_DIR"])
history = Path(os.environ["RLCORE_CHECKPOINT_DIR"], "history")
with history.open("a") as file:
    file.write(os.environ["POD_NAME"] + os.linesep)
while len(history.read_text().split()) < 3:
    history.with_name("seen").write_text((config / "message").read_text())
    time.sleep(0.1)
"""


@pytest.fixture
def claim(cluster: Cluster, real_ray: KubeRayStandIn, namespace: str) -> str:
    """A claim of the test's namespace."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "checkpoints", "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return "checkpoints"


def start_real(cluster: Cluster, namespace: str, job: str, program: str, workers: int) -> Attempt:
    attempt = Attempt(cluster, namespace, job)
    attempt.config(**{"main.py": program, "message": "first"})
    attempt.create(entrypoint="python $RLCORE_CONFIG_DIR/main.py", cluster=real_ray_spec(job, workers))
    return attempt


@pytest.mark.timeout(600)
def test_real_rays(cluster: Cluster, real_ray: KubeRayStandIn, namespace: str, claim: str) -> None:
    """Two of them at once: one runs a task on its worker, the other's entrypoint fails."""
    good = start_real(cluster, namespace, "good", RUN_A_TASK, workers=1)
    bad = start_real(cluster, namespace, "bad", FAIL, workers=0)
    failed = bad.wait("Failed", "FAILED", deadline_s=120)
    assert failed["reason"] == "AppFailed"
    assert failed["message"].startswith("Job entrypoint command failed with exit code 3, last available logs")
    done = good.wait("Complete", "SUCCEEDED", deadline_s=120)
    assert done["message"] == "Job finished successfully."
    (worker,) = good.pods("worker")
    assert (real_ray.claim(namespace, claim) / "where").read_text() == worker.status.pod_ip
    assert good.head().status.pod_ip != bad.head().status.pod_ip


@pytest.mark.timeout(600)
def test_lost_pods_of_a_real_ray(cluster: Cluster, real_ray: KubeRayStandIn, namespace: str, claim: str) -> None:
    attempt = start_real(cluster, namespace, "job", RUN_TWICE, workers=1)
    attempt.wait("Running", "RUNNING", deadline_s=120)
    folder = real_ray.claim(namespace, claim)
    until(lambda: (folder / "seen").read_text() == "first", "the program")
    attempt.config(**{"main.py": RUN_TWICE, "message": "second"})
    until(lambda: (folder / "seen").read_text() == "second", "the ConfigMap's change to reach the program")

    (worker,) = attempt.worker_names()
    real_ray.kill_container(namespace, worker)
    until(lambda: attempt.worker_names() and worker not in attempt.worker_names(), "another worker")

    job_id, head = attempt.status["jobId"], attempt.head().metadata.name
    attempt.core.delete_namespaced_pod(head, namespace)
    done = attempt.wait("Complete", "SUCCEEDED", deadline_s=180)
    assert done["jobId"] == job_id
    new_head = attempt.head().metadata.name
    assert (folder / "history").read_text().split() == [head, "pre-stop", new_head]

    first_process = Path("/proc", str(real_ray.container_pid(namespace, new_head)))
    real_ray.kill()
    until(lambda: not first_process.exists(), "the watchdog to end what was left")
    until(lambda: not list((real_ray.workdir / "pids").iterdir()), "the watchdog's work")
    real_ray.start()
    until(lambda: attempt.head().metadata.name != new_head, "the pod of the ended processes to be replaced")
