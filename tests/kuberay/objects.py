"""What stands beside the pods of a RayCluster, and the RayCluster of a RayJob. Pure."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Mapping
from typing import Any

from tests.kuberay.names import (
    CLUSTER_LABEL,
    CREATED_BY,
    NODE_TYPE_LABEL,
    Object,
    annotations_of,
    head_service_name,
    key_of,
    label_value,
    labels_of,
    last_50,
    owner_reference,
)
from tests.kuberay.ray_start import METRICS_PORT

_DEFAULT_PORTS = {"gcs-server": 6379, "dashboard": 8265, "client": 10001, "serve": 8000}


def cluster_of_job(job: Mapping[str, Any], name: str) -> Object:
    """The RayCluster that a RayJob gets, with the labels and annotations of the RayJob."""
    return {
        "metadata": {
            "name": name,
            "namespace": job["metadata"]["namespace"],
            "labels": {
                **labels_of(job),
                "ray.io/originated-from-cr-name": job["metadata"]["name"],
                "ray.io/originated-from-crd": "RayJob",
                "ray.io/job-submission-mode": job["spec"].get("submissionMode", "K8sJobMode"),
            },
            "annotations": dict(annotations_of(job)),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": copy.deepcopy(job["spec"]["rayClusterSpec"]),
    }


def head_labels(cluster: str) -> dict[str, str]:
    """The labels by which the head service finds the head."""
    return {
        **CREATED_BY,
        CLUSTER_LABEL: cluster,
        "ray.io/identifier": label_value(f"{cluster}-head"),
        NODE_TYPE_LABEL: "head",
    }


def head_ports(spec: Mapping[str, Any]) -> dict[str, int]:
    """The ports of the head service: those that the head declares, else the default ones, and always metrics."""
    declared = spec["headGroupSpec"]["template"]["spec"]["containers"][0].get("ports") or []
    named = {port["name"]: port["containerPort"] for port in declared if port.get("name")}
    return {"metrics": METRICS_PORT, **(named or _DEFAULT_PORTS)}


def head_service(cluster: Mapping[str, Any]) -> Object:
    """Headless, and it publishes addresses that are not ready."""
    _, name = key_of(cluster)
    ports = sorted(head_ports(cluster["spec"]).items())
    service_type = cluster["spec"]["headGroupSpec"].get("serviceType", "ClusterIP")
    return {
        "metadata": _metadata(cluster, head_service_name(name), head_labels(name)),
        "spec": {
            "type": service_type,
            **({"clusterIP": "None"} if service_type == "ClusterIP" else {}),
            "publishNotReadyAddresses": True,
            "selector": head_labels(name),
            "ports": [
                {"name": port, "port": number, "targetPort": number, "protocol": "TCP", "appProtocol": "tcp"}
                for port, number in ports
            ],
        },
    }


def has_tokens(spec: Mapping[str, Any]) -> bool:
    return (spec.get("authOptions") or {}).get("mode") == "token"


def auth_secret_name(cluster: str) -> str:
    return last_50(cluster)


def auth_secret(cluster: Mapping[str, Any]) -> Object:
    """A new random token."""
    _, name = key_of(cluster)
    return {
        "metadata": _metadata(cluster, auth_secret_name(name), {CLUSTER_LABEL: name}),
        "type": "Opaque",
        "stringData": {"auth_token": secrets.token_urlsafe(32)},
    }


def service_account(cluster: Mapping[str, Any]) -> Object:
    """Of the autoscaler."""
    return {"metadata": _autoscaler_metadata(cluster)}


def role(cluster: Mapping[str, Any]) -> Object:
    """What the autoscaler may do."""
    return {
        "metadata": _autoscaler_metadata(cluster),
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
            {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
        ],
    }


def role_binding(cluster: Mapping[str, Any]) -> Object:
    namespace, name = key_of(cluster)
    return {
        "metadata": _autoscaler_metadata(cluster),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": last_50(name)},
        "subjects": [{"kind": "ServiceAccount", "name": head_account(cluster), "namespace": namespace}],
    }


def head_account(cluster: Mapping[str, Any]) -> str:
    """The head's service account where the autoscaler is on: the template's, else one of the cluster's own."""
    own = cluster["spec"]["headGroupSpec"]["template"]["spec"].get("serviceAccountName")
    return own or last_50(cluster["metadata"]["name"])


def _autoscaler_metadata(cluster: Mapping[str, Any]) -> Object:
    name = cluster["metadata"]["name"]
    return _metadata(cluster, last_50(name), {**CREATED_BY, CLUSTER_LABEL: name})


def _metadata(cluster: Mapping[str, Any], name: str, labels: dict[str, str]) -> Object:
    return {
        "name": name,
        "namespace": cluster["metadata"]["namespace"],
        "labels": labels,
        "ownerReferences": [owner_reference(cluster)],
    }
