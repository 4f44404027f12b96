"""What is kept in memory of watched objects: what decisions read, and nothing of the large rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "labels",
    "annotations",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
)
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_GROUP_FIELDS = ("groupName", "replicas", "minReplicas", "maxReplicas", "scaleStrategy")


def trim_metadata(raw: Mapping[str, Any]) -> dict[str, Any]:
    """metadata without managedFields and kubectl's copy of the object."""
    metadata = {key: raw["metadata"][key] for key in _METADATA if key in raw["metadata"]}
    if _APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != _APPLIED}
    return metadata


def trim_job(raw: Mapping[str, Any]) -> dict[str, Any]:
    """An RLJob."""
    return {"metadata": trim_metadata(raw), "spec": raw.get("spec") or {}, "status": raw.get("status") or {}}


def trim_ray_job(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A RayJob without its cluster's pod templates."""
    spec = raw.get("spec") or {}
    kept = {"suspend": spec.get("suspend"), "rayClusterSpec": _trim_cluster_spec(spec.get("rayClusterSpec") or {})}
    return {"metadata": trim_metadata(raw), "spec": kept, "status": raw.get("status") or {}}


def trim_ray_cluster(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A RayCluster without pod templates."""
    spec = _trim_cluster_spec(raw.get("spec") or {})
    return {"metadata": trim_metadata(raw), "spec": spec, "status": raw.get("status") or {}}


def trim_pod(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A pod: where it is and how it is."""
    spec = raw.get("spec") or {}
    containers = [{"name": c.get("name"), "image": c.get("image")} for c in spec.get("containers") or []]
    return {
        "metadata": trim_metadata(raw),
        "spec": {"nodeName": spec.get("nodeName"), "containers": containers},
        "status": raw.get("status") or {},
    }


def _trim_cluster_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    groups = spec.get("workerGroupSpecs") or []
    return {
        "enableInTreeAutoscaling": spec.get("enableInTreeAutoscaling"),
        "workerGroupSpecs": [{key: group[key] for key in _GROUP_FIELDS if key in group} for group in groups],
    }
