"""KubeRay's names and labels, and what objects of Kubernetes have in common."""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

KUBERAY_VERSION = "v1.7.0"
CREATED_BY = {"app.kubernetes.io/name": "kuberay", "app.kubernetes.io/created-by": "kuberay-operator"}
POD_SELECTOR = "app.kubernetes.io/created-by=kuberay-operator"
CLUSTER_LABEL = "ray.io/cluster"
GROUP_LABEL = "ray.io/group"
NODE_TYPE_LABEL = "ray.io/node-type"
REPLICA_INDEX_LABEL = "ray.io/worker-group-replica-index"
HEAD_GROUP = "headgroup"
STOP_JOB_FINALIZER = "ray.io/rayjob-finalizer"

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_NAME = 50
"""KubeRay keeps names so short that the suffixes it and Kubernetes add still fit into 63 characters."""


def with_suffix(name: str) -> str:
    """The name and five random characters, none of which can make a word."""
    return f"{name}-{''.join(random.choices(_SUFFIX_LETTERS, k=5))}"


def last_50(name: str) -> str:
    """What KubeRay makes of a name that is too long: its end, with a letter first."""
    short = name[-_LONGEST_NAME:]
    return short if short[0].isalpha() else f"r{short[1:]}"


def pod_prefix(prefix: str, node_type: str) -> str:
    """generateName of a pod."""
    return f"{prefix[:_LONGEST_NAME]}-{node_type}-".lower()


def head_service_name(cluster: str) -> str:
    return last_50(f"{cluster}-head-svc")


def head_service_host(cluster: str, namespace: str) -> str:
    return f"{head_service_name(cluster)}.{namespace}.svc.cluster.local"


def label_value(value: str) -> str:
    """A label's value: the last 63 characters, the first of which must be a letter or a digit."""
    short = value[-63:]
    return short if short[:1].isalnum() else f"r{short[1:]}"


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(time: str) -> float:
    """Seconds since a time that Kubernetes wrote."""
    return (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(time)).total_seconds()


def key_of(item: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of an object."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def labels_of(item: Mapping[str, Any]) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def annotations_of(item: Mapping[str, Any]) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}


def is_terminating(item: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in item["metadata"]


def owner_reference(owner: Mapping[str, Any]) -> Object:
    """Makes the owner the controller of what carries this."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(item: Mapping[str, Any]) -> Object | None:
    """The owner reference of the controller of an object."""
    references = item["metadata"].get("ownerReferences") or []
    return next((reference for reference in references if reference.get("controller")), None)
