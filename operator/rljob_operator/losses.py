"""Why a pod was lost: read off its last state, for KubeRay deletes failed pods at once."""

from __future__ import annotations

from typing import Any

from rljob_operator import names
from rljob_operator.observed import LostPod, Manifest, condition, pod_labels, pod_phase
from rljob_operator.timestamps import to_seconds

PREEMPTED, EVICTED, NODE_LOST, DELETED = "Preempted", "Evicted", "NodeLost", "Deleted"
OUT_OF_MEMORY, CRASHED = "OutOfMemory", "Crashed"

DISRUPTIONS = frozenset({PREEMPTED, EVICTED, NODE_LOST, DELETED})
"""Not the application's doing: never counted against it."""

KILLED = 137
"""Exit code of a process that SIGKILL ended, the memory limit's doing unless somebody else sent it."""

TERMINATED = frozenset({130, 143})
"""128 + SIGINT or SIGTERM: somebody asked the process to stop."""

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
        deleted: it is gone, or about to go.
        now_s: seconds since 1970.
    """
    labels = pod_labels(pod)
    role, attempt = labels.get(names.LABEL_ROLE, ""), labels.get(names.LABEL_ATTEMPT, "")
    if not role or not attempt.isdecimal():
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
    said = str(status.get("message") or "")
    if disruption.get("status") == "True":
        kind = _DISRUPTION_REASONS.get(str(disruption.get("reason")), EVICTED)
        return kind, code, str(disruption.get("message") or disruption.get("reason"))
    if exited.get("reason") == "OOMKilled":
        return OUT_OF_MEMORY, code, "killed: it used more memory than its limit"
    reason = str(status.get("reason") or "")
    if reason in ("Evicted", "Preempting", "Shutdown", "NodeShutdown", "Terminated"):
        return EVICTED, code, said or reason
    if reason == "NodeLost" or (deleted and not _node_is_known(pod)):
        return NODE_LOST, code, said or "its node is gone"
    if deleted and not _ended_before_deletion(pod, exited):
        # Its exit code tells nothing: a deleted pod's shell forwards no SIGTERM, so that most are killed in the end.
        return DELETED, code, "the pod was deleted"
    if pod_phase(pod) != "Failed" and not code:
        return None
    if code == KILLED:
        return OUT_OF_MEMORY, code, "killed: most likely it used more memory than its limit"
    unsaid = "it failed and says not why" if code is None else f"exited with code {code}"
    return CRASHED, code, str(exited.get("message") or said or unsaid)


def _terminated(pod: Manifest) -> dict[str, Any]:
    """State of the Ray container after its end, empty while it runs.

    The head's autoscaler is a container of its own: it lives on, and the pod's phase says Running.
    """
    for entry in (pod.get("status") or {}).get("containerStatuses") or []:
        if str(entry.get("name", "")).startswith("ray-"):
            state = entry.get("state") or {}
            return dict(state.get("terminated") or (entry.get("lastState") or {}).get("terminated") or {})
    return {}


def _ended_before_deletion(pod: Manifest, exited: dict[str, Any]) -> bool:
    """Whether a pod had ended when somebody deleted it, as KubeRay does with failed ones."""
    ended_s = to_seconds(exited.get("finishedAt"))
    gone_by_s = to_seconds(pod["metadata"].get("deletionTimestamp"))
    if ended_s is None or gone_by_s is None:
        return bool(exited) or pod_phase(pod) in ("Failed", "Succeeded")
    deleted_s = gone_by_s - float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    # Times are whole seconds: within the same one the exit code tells which came first.
    return ended_s < deleted_s or (ended_s == deleted_s and exited.get("exitCode") not in TERMINATED)


def _node_is_known(pod: Manifest) -> bool:
    ready = condition(pod, "Ready")
    return str(ready.get("reason") or "") not in ("NodeNotReady", "NodeLost")
