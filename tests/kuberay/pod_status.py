"""The status that a kubelet writes of a pod. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.kuberay.names import Object, now


@dataclass
class ContainerState:
    """A container as its kubelet knows it."""

    name: str
    image: str
    state: Object = field(default_factory=lambda: {"waiting": {"reason": "PodInitializing"}})
    last: Object | None = None
    ready: bool = False
    restarts: int = 0

    @property
    def runs(self) -> bool:
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        """None while it has not ended."""
        return self.state["terminated"]["exitCode"] if "terminated" in self.state else None

    def wait(self, reason: str, message: str = "") -> None:
        if "terminated" in self.state:
            self.last = self.state
        self.state, self.ready = {"waiting": {"reason": reason, "message": message}}, False

    def start(self) -> None:
        self.state = {"running": {"startedAt": now()}}

    def terminate(self, code: int, reason: str = "") -> None:
        started = self.state.get("running", {}).get("startedAt", now())
        why = reason or ("Completed" if code == 0 else "Error")
        self.state = {"terminated": {"exitCode": code, "reason": why, "startedAt": started, "finishedAt": now()}}
        self.ready = False

    def as_status(self) -> Object:
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.ready,
            "started": self.runs,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last or {},
        }


def pod_status(
    pod: Mapping[str, Any],
    address: str,
    init_containers: Sequence[ContainerState],
    containers: Sequence[ContainerState],
) -> Object:
    """Phase, conditions and containers; conditions that others set are left to a strategic merge."""
    initialized = all(container.exit_code == 0 for container in init_containers)
    ready = all(container.ready for container in containers)
    phase = _phase(pod, init_containers, containers)
    finished = phase in ("Failed", "Succeeded")
    known = {item["type"]: item for item in (pod.get("status") or {}).get("conditions") or []}

    def condition(kind: str, value: bool, reason: str = "") -> Object:
        status, old = ("True" if value else "False"), known.get(kind, {})
        since = old.get("lastTransitionTime") if old.get("status") == status else None
        return {"type": kind, "status": status, "lastTransitionTime": since or now(), "reason": reason}

    not_ready = {"Failed": "PodFailed", "Succeeded": "PodCompleted"}.get(phase, "ContainersNotReady")
    return {
        "phase": phase,
        "hostIP": "127.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": (pod.get("status") or {}).get("startTime") or now(),
        "conditions": [
            condition("PodScheduled", True),
            condition("Initialized", initialized, "" if initialized else "ContainersNotInitialized"),
            condition("ContainersReady", ready and not finished, "" if ready and not finished else not_ready),
            condition("Ready", ready and not finished, "" if ready and not finished else not_ready),
        ],
        "initContainerStatuses": [container.as_status() for container in init_containers],
        "containerStatuses": [container.as_status() for container in containers],
    }


def restarts(pod: Mapping[str, Any], exit_code: int) -> bool:
    """Whether a container that ended is started again."""
    policy = pod["spec"].get("restartPolicy", "Always")
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _phase(
    pod: Mapping[str, Any], init_containers: Sequence[ContainerState], containers: Sequence[ContainerState]
) -> str:
    failed_init = any(container.exit_code for container in init_containers)
    if failed_init and pod["spec"].get("restartPolicy") == "Never":
        return "Failed"
    codes = [container.exit_code for container in containers]
    if all(code is not None for code in codes):
        return "Succeeded" if not any(codes) else "Failed"
    return (
        "Running" if any(container.runs or container.exit_code is not None for container in containers) else "Pending"
    )
