"""Which nodes pods may run on: a provider's spot labels and taints, and what the manifest itself asks for."""

from __future__ import annotations

import copy
from typing import Any

from rlcore.api.pods import PodGroupSpec, Toleration
from rljob_operator.settings import NodePlacement, PlacementSettings, Settings


def _tolerates(key: str, value: str) -> Toleration:
    return Toleration(key=key, operator="Equal", value=value, effect="NoSchedule")


def _spot(label: str, value: str, *, tainted: bool) -> tuple[NodePlacement, NodePlacement]:
    """Placement of preemptible pods and of others, where spot nodes carry a label (and a taint of the same name)."""
    preemptible = NodePlacement(node_selector={label: value}, tolerations=[_tolerates(label, value)] if tainted else [])
    on_demand = NodePlacement(node_affinity=[{"key": label, "operator": "NotIn", "values": [value]}])
    return preemptible, on_demand


PRESETS: dict[str, tuple[NodePlacement, NodePlacement]] = {
    "none": (NodePlacement(), NodePlacement()),
    "gke": _spot("cloud.google.com/gke-spot", "true", tainted=True),
    "eks": _spot("eks.amazonaws.com/capacityType", "SPOT", tainted=False),
    "aks": _spot("kubernetes.azure.com/scalesetpriority", "spot", tainted=True),
    "karpenter": _spot("karpenter.sh/capacity-type", "spot", tainted=False),
}
"""Provider -> (preemptible, on-demand). EKS and Karpenter taint spot nodes only where their owner says so."""

# A dead node's pods are given up after this long: Kubernetes' own default of 300 s is five minutes of a lost head.
NODE_LOST_TOLERATION_S = 30


def placement(group: PodGroupSpec, settings: Settings, *, preemptible: bool, gpus: bool) -> dict[str, Any]:
    """The scheduling fields of a pod spec."""
    cluster = _cluster_wide(settings.placement, preemptible=preemptible)
    tolerations = [*cluster.tolerations, *(settings.gpu_tolerations if gpus else []), *group.tolerations]
    spec: dict[str, Any] = {"tolerations": [_as_manifest(t) for t in tolerations] + _node_lost()}
    selector = {**cluster.node_selector, **group.node_selector}
    if selector:
        spec["nodeSelector"] = selector
    affinity = with_node_affinity(group.affinity, cluster.node_affinity)
    if affinity:
        spec["affinity"] = affinity
    if group.topology_spread_constraints:
        spec["topologySpreadConstraints"] = copy.deepcopy(group.topology_spread_constraints)
    if group.priority_class_name:
        spec["priorityClassName"] = group.priority_class_name
    return spec


def _cluster_wide(settings: PlacementSettings, *, preemptible: bool) -> NodePlacement:
    preset = PRESETS[settings.preset][0 if preemptible else 1]
    own = settings.preemptible if preemptible else settings.on_demand
    return NodePlacement(
        node_selector={**preset.node_selector, **own.node_selector},
        tolerations=[*preset.tolerations, *own.tolerations],
        node_affinity=[*preset.node_affinity, *own.node_affinity],
    )


def with_node_affinity(affinity: dict[str, Any], expressions: list[dict[str, Any]]) -> dict[str, Any]:
    """An affinity that also requires all `expressions` of a node. Terms are alternatives: each one gets them.

    Raises:
        ValueError: the affinity is none; the text names the field.
    """
    result = copy.deepcopy(affinity)
    if not expressions:
        return result
    required = _inner(_inner(result, "nodeAffinity", dict), "requiredDuringSchedulingIgnoredDuringExecution", dict)
    terms = _inner(required, "nodeSelectorTerms", list)
    if not terms:
        terms.append({})
    for term in terms:
        if not isinstance(term, dict):
            raise ValueError(f"affinity: a term of nodeSelectorTerms is a {type(term).__name__}, not a dict")
        _inner(term, "matchExpressions", list).extend(copy.deepcopy(expressions))
    return result


def _inner(outer: dict[str, Any], field: str, kind: type[dict[str, Any]] | type[list[Any]]) -> Any:
    """A field of a manifest that is free-form, made empty where it is missing or null."""
    if outer.get(field) is None:
        outer[field] = kind()
    if not isinstance(outer[field], kind):
        raise ValueError(f"affinity: {field} is a {type(outer[field]).__name__} here, not a {kind.__name__}")
    return outer[field]


def _as_manifest(toleration: Toleration) -> dict[str, Any]:
    return toleration.model_dump(mode="json", by_alias=True, exclude_none=True)


def _node_lost() -> list[dict[str, Any]]:
    return [
        {
            "key": f"node.kubernetes.io/{what}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": NODE_LOST_TOLERATION_S,
        }
        for what in ("not-ready", "unreachable")
    ]
