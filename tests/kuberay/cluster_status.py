"""The status of a RayCluster, made of its spec, its pods and what went wrong. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from rlcore.api.quantity import parse_quantity
from tests.kuberay.names import NODE_TYPE_LABEL, Object, head_service_name, labels_of, now
from tests.kuberay.objects import head_ports

_MANY = 2**31 - 1
_BINARY = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def is_running_and_ready(pod: Mapping[str, Any]) -> bool:
    return _phase(pod) == "Running" and (_pod_condition(pod, "Ready") or {}).get("status") == "True"


def is_head(pod: Mapping[str, Any]) -> bool:
    return labels_of(pod).get(NODE_TYPE_LABEL) == "head"


def wanted_replicas(group: Mapping[str, Any]) -> int:
    """Pods that a worker group should have: its replicas, held between its limits."""
    if group.get("suspend"):
        return 0
    least, most = group.get("minReplicas", 0), group.get("maxReplicas", _MANY)
    return min(max(group.get("replicas", least), least), most) * group.get("numOfHosts", 1)


def cluster_status(
    cluster: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], head_ip: str, failure: tuple[str, str] | None
) -> Object:
    """The status now. `failure` is the reason and the message of what could not be done to the pods."""
    spec, status = cluster["spec"], copy.deepcopy(cluster.get("status") or {})
    status.setdefault("conditions", [])
    workers = [pod for pod in pods if not is_head(pod)]
    heads = [pod for pod in pods if is_head(pod)]
    _set_counts(status, spec, workers)
    _set_head(status, cluster, heads, head_ip)
    _set_condition(status, _head_condition(heads))
    all_ready = bool(heads) and all(map(is_running_and_ready, pods))
    _set_provisioned(status, all_ready and failure is None)
    _set_suspended(status, spec, pods)
    if failure:
        _set_condition(status, condition("ReplicaFailure", True, *failure))
    else:
        status["conditions"] = [known for known in status["conditions"] if known["type"] != "ReplicaFailure"]
    if _is_true(status, "RayClusterSuspended"):
        _set_state(status, "suspended")
    elif all_ready and failure is None and len(workers) == status["desiredWorkerReplicas"]:
        # Sticky: pods that die later change the conditions and the counts, never this.
        _set_state(status, "ready")
    status["observedGeneration"] = cluster["metadata"].get("generation", 1)
    status["lastUpdateTime"] = now()
    return status


def refused_status(cluster: Mapping[str, Any], problem: str) -> Object:
    """The status of a RayCluster that is not acted upon."""
    status = copy.deepcopy(cluster.get("status") or {})
    _set_state(status, "failed")
    return {**status, "reason": problem, "observedGeneration": cluster["metadata"].get("generation", 1)}


def differs(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the new status is worth a write: KubeRay makes none for the times and the generation alone."""
    fleeting = ("lastUpdateTime", "observedGeneration")
    return {**old, **dict.fromkeys(fleeting)} != {**new, **dict.fromkeys(fleeting)}


def condition(kind: str, value: bool, reason: str, message: str = "") -> Object:
    return {"type": kind, "status": "True" if value else "False", "reason": reason, "message": message}


def _set_counts(status: Object, spec: Mapping[str, Any], workers: Sequence[Mapping[str, Any]]) -> None:
    groups = [group for group in spec.get("workerGroupSpecs") or [] if not group.get("suspend")]
    hosts = [group.get("numOfHosts", 1) for group in groups]
    minima = (group.get("minReplicas", 0) * n for group, n in zip(groups, hosts, strict=True))
    maxima = (group.get("maxReplicas", _MANY) * n for group, n in zip(groups, hosts, strict=True))
    status["desiredWorkerReplicas"] = sum(map(wanted_replicas, groups))
    status["minWorkerReplicas"] = sum(minima)
    status["maxWorkerReplicas"] = min(sum(maxima), _MANY)
    counts = {
        "availableWorkerReplicas": sum(_phase(pod) == "Running" for pod in workers),
        "readyWorkerReplicas": sum(map(is_running_and_ready, workers)),
    }
    for name, count in counts.items():
        status.pop(name, None)
        if count:
            status[name] = count
    templates = [(spec["headGroupSpec"], 1), *((group, wanted_replicas(group)) for group in groups)]
    amounts = {"cpu": Fraction(0), "memory": Fraction(0), "gpu": Fraction(0)}
    for group, count in templates:
        for container in group["template"]["spec"]["containers"]:
            resources = container.get("resources") or {}
            for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
                kind = "gpu" if name.endswith("gpu") else name
                if kind in amounts:
                    amounts[kind] += parse_quantity(str(amount)) * count
    status["desiredCPU"] = _cores(amounts["cpu"])
    status["desiredMemory"] = _size(amounts["memory"])
    status["desiredGPU"] = _cores(amounts["gpu"])
    status["desiredTPU"] = "0"


def _set_head(status: Object, cluster: Mapping[str, Any], heads: Sequence[Mapping[str, Any]], head_ip: str) -> None:
    head = {"serviceName": head_service_name(cluster["metadata"]["name"])}
    if len(heads) == 1:
        head["podName"] = heads[0]["metadata"]["name"]
        if head_ip:
            # The service is headless: its address is the pod's.
            head["podIP"] = head["serviceIP"] = head_ip
    status["head"] = head
    status["endpoints"] = {name: str(port) for name, port in head_ports(cluster["spec"]).items()}


def _head_condition(heads: Sequence[Mapping[str, Any]]) -> Object:
    if not heads:
        return condition("HeadPodReady", False, "HeadPodNotFound", "Head Pod not found")
    ready = _pod_condition(heads[0], "Ready")
    if ready is None:
        return condition("HeadPodReady", False, "Unknown")
    if ready["status"] == "True":
        return condition("HeadPodReady", True, "HeadPodRunningAndReady", ready.get("message", ""))
    for container in heads[0]["status"].get("containerStatuses") or []:
        if waiting := (container.get("state") or {}).get("waiting"):
            message = f"{container['name']}: {waiting.get('message', '')}"
            return condition("HeadPodReady", False, waiting.get("reason") or "Unknown", message)
    return condition("HeadPodReady", False, ready.get("reason") or "Unknown", ready.get("message", ""))


def _set_provisioned(status: Object, all_ready: bool) -> None:
    """True once all pods were ready together, for good."""
    if _is_true(status, "RayClusterProvisioned"):
        return
    if all_ready:
        text = "All Ray Pods are ready for the first time"
        _set_condition(status, condition("RayClusterProvisioned", True, "AllPodRunningAndReadyFirstTime", text))
    else:
        text = "RayCluster Pods are being provisioned for first time"
        _set_condition(status, condition("RayClusterProvisioned", False, "RayClusterPodsProvisioning", text))


def _set_suspended(status: Object, spec: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> None:
    """Suspending while pods are left, then suspended, until the spec says otherwise."""
    suspend = bool(spec.get("suspend"))
    if suspend:
        status["conditions"] = [known for known in status["conditions"] if known["type"] != "RayClusterProvisioned"]
    for kind, value in (("RayClusterSuspended", suspend and not pods), ("RayClusterSuspending", suspend and pods)):
        _set_condition(status, condition(kind, bool(value), kind))


def _set_condition(status: Object, new: Object) -> None:
    conditions = status["conditions"]
    known = next((item for item in conditions if item["type"] == new["type"]), None)
    if known is None:
        conditions.append({**new, "lastTransitionTime": now()})
        return
    if known["status"] != new["status"]:
        known["lastTransitionTime"] = now()
    known.update(new)


def _set_state(status: Object, state: str) -> None:
    if status.get("state") != state:
        status["state"] = state
        status.setdefault("stateTransitionTimes", {})[state] = now()


def _is_true(status: Mapping[str, Any], kind: str) -> bool:
    return any(known["type"] == kind and known["status"] == "True" for known in status.get("conditions") or [])


def _phase(pod: Mapping[str, Any]) -> str:
    return (pod.get("status") or {}).get("phase", "")


def _pod_condition(pod: Mapping[str, Any], kind: str) -> Object | None:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((known for known in conditions if known["type"] == kind), None)


def _cores(amount: Fraction) -> str:
    return str(int(amount)) if amount.denominator == 1 else f"{round(amount * 1000)}m"


def _size(amount: Fraction) -> str:
    count = int(amount)
    for suffix, unit in _BINARY:
        if count and count % unit == 0:
            return f"{count // unit}{suffix}"
    return str(count)
