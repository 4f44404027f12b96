"""Why pods are not ready yet, in words a person can act on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rljob_operator.observed import Manifest, condition, is_alive, is_ready, pod_phase


class Wait(NamedTuple):
    """One reason, and the sentence for it."""

    reason: str
    message: str


# The most telling one is shown: what nobody can mend by waiting comes first.
ORDER = (
    "QuotaExceeded",
    "PodsRefused",
    "MissingSecret",
    "ImagePull",
    "UnboundClaim",
    "Unschedulable",
    "WaitingForPods",
)

_IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_MISSING = re.compile(r'(secret|configmap) "([^"]+)" not found', re.IGNORECASE)
_QUOTA = "exceeded quota"
_REFUSED = re.compile(r"is invalid|is forbidden|denied the request|Forbidden|Unprocessable|status code 4[02]")
_CLAIM = re.compile(
    r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim \"[^\"]+\" not found|volume binding"
)
_HINTS = {
    "ImagePull": "check spec.image and spec.imagePullSecrets",
    "Unschedulable": "add nodes of that kind, or lower the pod's resources",
    "UnboundClaim": "check the claim's StorageClass, or name another storage in spec.checkpoint",
    "MissingSecret": "create it in the job's namespace",
    "QuotaExceeded": "raise the namespace's ResourceQuota, or lower the pools",
    "PodsRefused": "mend the manifest, or make what it names",
    "Forbidden": "ask whoever runs the cluster",
}


def why_pods_wait(pods: Iterable[Manifest]) -> Wait | None:
    """The most telling reason among pods that are not ready; None where all are."""
    waits = [wait for pod in pods if (wait := why_pod_waits(pod)) is not None]
    return min(waits, key=lambda wait: ORDER.index(wait.reason), default=None)


def why_pod_waits(pod: Manifest) -> Wait | None:
    """Why one pod is not ready; None where it is, or where it ended."""
    if is_ready(pod) or not is_alive(pod):
        return None
    name = pod["metadata"]["name"]
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        message = str(scheduled.get("message") or "")
        if _CLAIM.search(message):
            return _wait("UnboundClaim", f"pod {name}: {message}")
        return _wait("Unschedulable", f"pod {name}: {message or 'no node takes it'}")
    for entry in _container_statuses(pod):
        waiting = (entry.get("state") or {}).get("waiting") or {}
        reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
        if reason in _IMAGE_REASONS:
            image = entry.get("image") or _image(pod, str(entry.get("name")))
            return _wait("ImagePull", f"pod {name}: image {image}: {reason} {message}".rstrip())
        missing = _MISSING.search(message)
        if missing:
            return _wait("MissingSecret", f"pod {name}: {missing.group(1).lower()} {missing.group(2)} is missing")
        if reason == "CreateContainerConfigError":
            return _wait("MissingSecret", f"pod {name}: {message or reason}")
    stage = "its containers start" if pod_phase(pod) == "Pending" else "Ray is not ready in it yet"
    return Wait("WaitingForPods", f"pod {name}: {stage}")


def why_cluster_waits(ray_cluster: Manifest | None) -> Wait | None:
    """What KubeRay says where it cannot even make pods: a quota, an admission webhook."""
    failure = condition(ray_cluster or {}, "ReplicaFailure")
    if failure.get("status") != "True":
        return None
    message = str(failure.get("message") or failure.get("reason") or "")
    if _QUOTA in message:
        return _wait("QuotaExceeded", message)
    if _REFUSED.search(message):
        return _wait("PodsRefused", message)
    return Wait("WaitingForPods", f"KubeRay cannot make pods: {message}")


def why_nothing_is_made(refusal: str) -> Wait:
    """What the API server says where it lets not even a RayJob be made: a quota, a webhook, missing rights."""
    return _wait("QuotaExceeded" if _QUOTA in refusal else "Forbidden", refusal)


def _wait(reason: str, message: str) -> Wait:
    return Wait(reason, f"{message}; {_HINTS[reason]}")


def _container_statuses(pod: Manifest) -> list[Manifest]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _image(pod: Manifest, container: str) -> str:
    for entry in (pod.get("spec") or {}).get("containers") or []:
        if entry.get("name") == container:
            return str(entry.get("image"))
    return ""
