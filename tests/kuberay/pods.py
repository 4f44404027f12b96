"""The pods of a RayCluster, as KubeRay makes them of the templates. Pure."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tests.kuberay import ray_start
from tests.kuberay.names import (
    CLUSTER_LABEL,
    CREATED_BY,
    GROUP_LABEL,
    HEAD_GROUP,
    KUBERAY_VERSION,
    NODE_TYPE_LABEL,
    REPLICA_INDEX_LABEL,
    Object,
    annotations_of,
    head_service_host,
    head_service_name,
    key_of,
    label_value,
    labels_of,
    owner_reference,
    pod_prefix,
)
from tests.kuberay.objects import auth_secret_name, has_tokens, head_account

_SHELL = ["/bin/bash", "-c", "--"]
_LOGS_DIR, _SHARED_MEMORY_DIR = "/tmp/ray", "/dev/shm"
_WAIT_FOR_GCS = """
SECONDS=0
until ray health-check --address {address} > /dev/null 2>&1; do
  echo "GCS at {address} is not there after $SECONDS seconds."
  sleep 5
done
echo "GCS is ready."
"""


def head_pod(cluster: Mapping[str, Any]) -> Object:
    """The head: with the autoscaler beside it, where that is on."""
    name, spec = cluster["metadata"]["name"], cluster["spec"]
    group = spec["headGroupSpec"]
    pod = _pod(cluster, group, "head", HEAD_GROUP, pod_prefix(name, "head"))
    pod["metadata"]["annotations"] = {
        **(pod["metadata"].get("annotations") or {}),
        "ray.io/ft-enabled": "false",
        "ray.io/kuberay-version": KUBERAY_VERSION,
        "ray.io/upgrade-strategy-recreate-hash": _hash(spec),
    }
    container = pod["spec"]["containers"][0]
    autoscaled = bool(spec.get("enableInTreeAutoscaling"))
    if autoscaled and _autoscaler_version(spec) == "v2":
        _add_env(container, {"name": "RAY_enable_autoscaler_v2", "value": "true"})
    _add_env(container, *_auth_env(cluster), *_identity_env())
    command = ray_start.start_command("head", ray_start.head_parameters(spec))
    port = ray_start.gcs_port(spec)
    tags = f"kuberay_version={KUBERAY_VERSION};kuberay_crd={_creator(cluster)}"
    _finish_ray_container(cluster, container, command, port, f"127.0.0.1:{port}", tags, probe_timeout_s=5)
    if autoscaled:
        pod["spec"]["serviceAccountName"] = head_account(cluster)
        pod["spec"].setdefault("volumes", []).append({"name": "ray-logs", "emptyDir": {}})
        container.setdefault("volumeMounts", []).append({"name": "ray-logs", "mountPath": _LOGS_DIR})
        pod["spec"]["containers"].append(_autoscaler(cluster, container))
    _add_shared_memory(pod)
    return pod


def worker_pod(cluster: Mapping[str, Any], group: Mapping[str, Any], index: int) -> Object:
    """One worker of a group; the index is the lowest that no other worker of the group has."""
    namespace, name = key_of(cluster)
    pod = _pod(cluster, group, "worker", group["groupName"], pod_prefix(f"{name}-{group['groupName']}", "worker"))
    pod["metadata"]["labels"][REPLICA_INDEX_LABEL] = str(index)
    host, port = head_service_host(name, namespace), ray_start.gcs_port(cluster["spec"])
    address = f"{host}:{port}"
    container = pod["spec"]["containers"][0]
    _add_env(
        container,
        *_auth_env(cluster),
        {"name": "FQ_RAY_IP", "value": host},
        {"name": "RAY_IP", "value": head_service_name(name)},
    )
    pod["spec"].setdefault("initContainers", []).append(_wait_for_gcs(container, address))
    _add_env(container, *_identity_env())
    command = ray_start.start_command("worker", ray_start.worker_parameters(group, address))
    _finish_ray_container(cluster, container, command, port, address, "", probe_timeout_s=2)
    _add_shared_memory(pod)
    return pod


def _pod(cluster: Mapping[str, Any], group: Mapping[str, Any], node_type: str, name: str, prefix: str) -> Object:
    pod: Object = copy.deepcopy({**group["template"]})
    cluster_name = cluster["metadata"]["name"]
    template_metadata = pod.get("metadata") or {}
    labels = {
        **CREATED_BY,
        **(group.get("labels") or {}),
        **(template_metadata.get("labels") or {}),
        CLUSTER_LABEL: cluster_name,
        NODE_TYPE_LABEL: node_type,
        GROUP_LABEL: name,
        "ray.io/identifier": label_value(f"{cluster_name}-{node_type}"),
        "ray.io/is-ray-node": "yes",
    }
    pod["metadata"] = {
        "generateName": prefix,
        "namespace": cluster["metadata"]["namespace"],
        "labels": labels,
        "annotations": dict(template_metadata.get("annotations") or {}),
        "ownerReferences": [owner_reference(cluster)],
    }
    spec = cluster["spec"]
    if spec.get("enableInTreeAutoscaling") and _autoscaler_version(spec) == "v2":
        pod["spec"]["restartPolicy"] = "Never"
    return pod


def _finish_ray_container(
    cluster: Mapping[str, Any],
    container: Object,
    command: str,
    port: int,
    address: str,
    tags: str,
    *,
    probe_timeout_s: int,
) -> None:
    """What the head's and the workers' Ray containers have in common."""
    _add_env(
        container,
        {"name": "KUBERAY_GEN_RAY_START_CMD", "value": command},
        {"name": "RAY_PORT", "value": str(port)},
        {"name": "RAY_ADDRESS", "value": address},
        {"name": "RAY_USAGE_STATS_KUBERAY_IN_USE", "value": "1"},
        *([{"name": "RAY_USAGE_STATS_EXTRA_TAGS", "value": tags}] if tags else []),
        {"name": "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "value": "1"},
    )
    if annotations_of(cluster).get("ray.io/overwrite-container-cmd") != "true":
        own = " ".join([*(container.get("command") or []), *(container.get("args") or [])])
        container["command"], container["args"] = list(_SHELL), [ray_start.container_args(command, own)]
    ports = container.setdefault("ports", [])
    if not any(known.get("name") == "metrics" for known in ports):
        ports.append({"name": "metrics", "containerPort": ray_start.METRICS_PORT})
    check = {"httpGet": {"path": "/api/healthz", "port": ray_start.AGENT_PORT}, "timeoutSeconds": probe_timeout_s}
    container.setdefault(
        "livenessProbe", {**check, "initialDelaySeconds": 30, "periodSeconds": 5, "failureThreshold": 120}
    )
    container.setdefault(
        "readinessProbe", {**check, "initialDelaySeconds": 10, "periodSeconds": 5, "failureThreshold": 10}
    )


def _autoscaler(cluster: Mapping[str, Any], ray_container: Mapping[str, Any]) -> Object:
    options = cluster["spec"].get("autoscalerOptions") or {}
    command = "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
    identity = [entry for entry in _identity_env() if entry["name"].startswith("RAY_CLUSTER_")]
    container: Object = {
        "name": "autoscaler",
        "image": options.get("image") or ray_container["image"],
        "command": list(_SHELL),
        "args": [command],
        "env": [
            *identity,
            _field("RAY_HEAD_POD_NAME", "metadata.name"),
            {"name": "KUBERAY_CRD_VER", "value": "v1"},
            {"name": "KUBERAY_GEN_AUTOSCALER_START_CMD", "value": command},
            *_auth_env(cluster),
            *(options.get("env") or []),
        ],
        "resources": options.get("resources")
        or {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "500m", "memory": "512Mi"}},
        "volumeMounts": [{"name": "ray-logs", "mountPath": _LOGS_DIR}, *(options.get("volumeMounts") or [])],
    }
    for field in ("envFrom", "imagePullPolicy", "securityContext"):
        if field in options:
            container[field] = options[field]
    return container


def _wait_for_gcs(ray_container: Mapping[str, Any], address: str) -> Object:
    container: Object = {
        "name": "wait-gcs-ready",
        "image": ray_container["image"],
        "command": list(_SHELL),
        "args": [_WAIT_FOR_GCS.format(address=address)],
        "env": copy.deepcopy(ray_container.get("env") or []),
        "resources": {
            "limits": {"cpu": "200m", "memory": "256Mi"},
            "requests": {"cpu": "200m", "memory": "256Mi"},
        },
    }
    for field in ("volumeMounts", "imagePullPolicy", "securityContext"):
        if field in ray_container:
            container[field] = copy.deepcopy(ray_container[field])
    return container


def _add_shared_memory(pod: Object) -> None:
    """Ray's object store: a volume in memory as large as the container may become."""
    container = pod["spec"]["containers"][0]
    mounts = container.setdefault("volumeMounts", [])
    if any(mount["mountPath"] == _SHARED_MEMORY_DIR for mount in mounts):
        return
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    size = {"sizeLimit": amounts["memory"]} if "memory" in amounts else {}
    volumes = pod["spec"].setdefault("volumes", [])
    volumes.insert(0, {"name": "shared-mem", "emptyDir": {"medium": "Memory", **size}})
    mounts.insert(0, {"name": "shared-mem", "mountPath": _SHARED_MEMORY_DIR})


def _auth_env(cluster: Mapping[str, Any]) -> list[Object]:
    if not has_tokens(cluster["spec"]):
        return []
    reference = {"name": auth_secret_name(cluster["metadata"]["name"]), "key": "auth_token"}
    return [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": reference}},
    ]


def _identity_env() -> list[Object]:
    return [
        _field("RAY_CLUSTER_NAME", f"metadata.labels['{CLUSTER_LABEL}']"),
        _field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
        _field("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        _field("RAY_NODE_TYPE_NAME", f"metadata.labels['{GROUP_LABEL}']"),
    ]


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _add_env(container: Object, *entries: Object) -> None:
    """Adds what the template does not already set."""
    known = container.setdefault("env", [])
    names = {entry["name"] for entry in known}
    known.extend(entry for entry in entries if entry["name"] not in names)


def _autoscaler_version(spec: Mapping[str, Any]) -> str:
    return (spec.get("autoscalerOptions") or {}).get("version") or ""


def _creator(cluster: Mapping[str, Any]) -> str:
    return labels_of(cluster).get("ray.io/originated-from-crd", "RayCluster")


def _hash(spec: Mapping[str, Any]) -> str:
    """Of what a pod is made of: sizes are not part of it, since the autoscaler changes them."""
    sizes = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")
    groups = [
        {name: value for name, value in group.items() if name not in sizes}
        for group in spec.get("workerGroupSpecs") or []
    ]
    text = json.dumps({**spec, "workerGroupSpecs": groups}, sort_keys=True)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:32].upper()
