"""Why a pod was lost: read off its last state, for KubeRay deletes failed pods at once."""

from __future__ import annotations

from typing import Any

from rljob_operator import names
from rljob_operator.observed import LostPod, Manifest, condition, pod_labels, pod_phase

PREEMPTED, EVICTED, NODE_LOST, DELETED = "Preempted", "Evicted", "NodeLost", "Deleted"
OUT_OF_MEMORY, CRASHED = "OutOfMemory", "Crashed"

DISRUPTIONS = frozenset({PREEMPTED, EVICTED, NODE_LOST, DELETED})
"""Not the application's doing: never counted against it."""

KILLED = 137
"""Exit code of a process that SIGKILL ended, the memory limit's doing unless somebody else sent it."""

_DISRUPTION_REASONS = {
    "PreemptionByScheduler": PREEMPTED,
    "TerminationByKubelet": EVICTED,
    "EvictionByEvictionAPI": EVICTED,
    "DeletionByTaintManager": NODE_LOST,
    "DeletionByPodGC": NODE_LOST,
}


def lost_pod(pod: Manifest, *, deleted: bool, now_s: float) -> LostPod | None:
    """What became of a pod of a training cluster; None while it lives, and for one that ended in peace.

    Args:
        pod: as last seen.
        deleted: the watch said that it is gone.
        now_s: seconds since 1970.
    """
    labels = pod_labels(pod)
    role, attempt = labels.get(names.LABEL_ROLE, ""), labels.get(names.LABEL_ATTEMPT, "")
    if not role or not attempt.isdigit():
        return None
    found = _classify(pod, deleted=deleted)
    if found is None:
        return None
    failure_class, exit_code, message = found
    return LostPod(
        uid=str(pod["metadata"].get("uid", "")),
        name=str(pod["metadata"]["name"]),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        role=role,
        attempt=int(attempt),
        failure_class=failure_class,
        exit_code=exit_code,
        message=message,
        time_s=now_s,
    )


def _classify(pod: Manifest, *, deleted: bool) -> tuple[str, int | None, str] | None:
    status = pod.get("status") or {}
    disruption = condition(pod, "DisruptionTarget")
    exited = _terminated(pod)
    code = exited.get("exitCode")
    if disruption.get("status") == "True":
        kind = _DISRUPTION_REASONS.get(str(disruption.get("reason")), EVICTED)
        return kind, code, str(disruption.get("message") or disruption.get("reason"))
    if exited.get("reason") == "OOMKilled" or (code == KILLED and pod_phase(pod) == "Failed"):
        return OUT_OF_MEMORY, code, "killed: it used more memory than its limit"
    reason = str(status.get("reason") or "")
    if reason in ("Evicted", "Preempting", "Shutdown", "NodeShutdown", "Terminated"):
        return EVICTED, code, str(status.get("message") or reason)
    if reason == "NodeLost" or (deleted and not _node_is_known(pod)):
        return NODE_LOST, code, str(status.get("message") or "its node is gone")
    if pod_phase(pod) == "Failed":
        return CRASHED, code, str(exited.get("message") or status.get("message") or f"exited with code {code}")
    if deleted and pod_phase(pod) in ("Running", "Pending"):
        return DELETED, code, "the pod was deleted"
    return None


def _terminated(pod: Manifest) -> dict[str, Any]:
    """State of container 0 (the Ray container) after its end, empty while it runs."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    for entry in statuses:
        if str(entry.get("name", "")).startswith("ray-"):
            state = entry.get("state") or {}
            return dict(state.get("terminated") or (entry.get("lastState") or {}).get("terminated") or {})
    return {}


def _node_is_known(pod: Manifest) -> bool:
    ready = condition(pod, "Ready")
    return str(ready.get("reason") or "") not in ("NodeNotReady", "NodeLost")
