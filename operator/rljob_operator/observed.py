"""What is known of one job at one moment: plain data, gathered by the shell, read by the pure core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.api import RLJob
from rljob_operator import names
from rljob_operator.timestamps import to_seconds

Manifest = Mapping[str, Any]

REQUEST_CHARACTERS = 1024

RAY_CONTAINERS = ("ray-head", "ray-worker")


@dataclass(frozen=True)
class DriverReport:
    """A driver's answer to GET /status.

    Attributes:
        values: its JSON object.
        received_s: when it came, seconds since 1970.
        progressed_s: when its timesteps last changed, seconds since 1970.
    """

    values: Mapping[str, Any]
    received_s: float
    progressed_s: float

    @property
    def attempt(self) -> int | None:
        """Attempt of the driver that answered."""
        return self.values.get("attempt")

    @property
    def phase(self) -> str:
        """Starting, Running, Paused, Recovering, Stopping, Succeeded or Failed."""
        return str(self.values.get("phase") or "")

    @property
    def final(self) -> Mapping[str, Any] | None:
        """How the driver ended, once it has."""
        return self.values.get("final") or None

    @property
    def checkpoint(self) -> Mapping[str, Any]:
        """Its newest checkpoint."""
        return self.values.get("checkpoint") or {}

    @property
    def head_uid(self) -> str:
        """uid of the head pod that it runs in, the middle of its token; empty where it does not say."""
        return str(self.values.get("token") or "").partition(".")[2].rpartition(".")[0]


@dataclass(frozen=True)
class LostPod:
    """A pod that ended while its job ran, as the watch saw it."""

    uid: str
    name: str
    node: str
    role: str
    attempt: int
    failure_class: str
    exit_code: int | None
    message: str
    time_s: float


@dataclass(frozen=True)
class Observed:
    """Everything a decision is made from.

    Attributes:
        raw: the RLJob as the API server has it.
        job: the same, understood; where it is invalid what its running attempt was made from, or None.
        problem: why it is invalid; empty: it is valid.
        ray_job: of the present attempt, None where there is none.
        old_ray_jobs: of earlier attempts.
        ray_cluster: of the present attempt's RayJob.
        pods: of the job, all attempts.
        lost: pods lost, of all attempts, in the order in which they were seen to be lost.
        report: the driver's, of the present attempt, None before the first.
        kuberay: whether the RayJob and RayCluster resources are served.
        rejected: why the API server refuses what is made from this very manifest, empty: it does not.
        rejected_reason: the same in one word.
        forbidden: why the API server lets nothing be made for now, such as a quota; empty: it does.
        try_again: whether what was refused is to be tried once more: KubeRay or a webhook may have changed.
        drivers_answer: whether other jobs' drivers have answered of late, so that silence is the driver's own.
        accepted: whether the API server is known to take a RayJob of the manifest as it is now.
        frozen: hyper-parameters of the job's first start, None where it has not started.
        now_s: seconds since 1970.
    """

    raw: Manifest
    job: RLJob | None
    problem: str = ""
    ray_job: Manifest | None = None
    old_ray_jobs: Sequence[Manifest] = ()
    ray_cluster: Manifest | None = None
    pods: Sequence[Manifest] = ()
    lost: Sequence[LostPod] = ()
    report: DriverReport | None = None
    kuberay: bool = True
    rejected: str = ""
    rejected_reason: str = "RayJobRejected"
    forbidden: str = ""
    try_again: bool = False
    drivers_answer: bool = False
    accepted: bool = True
    frozen: Mapping[str, Any] | None = None
    now_s: float = 0.0

    @property
    def status(self) -> Mapping[str, Any]:
        """The RLJob's status."""
        return self.raw.get("status") or {}

    @property
    def name(self) -> str:
        """Name of the job."""
        return str(self.raw["metadata"]["name"])

    @property
    def generation(self) -> int:
        """metadata.generation."""
        return int(self.raw["metadata"].get("generation") or 0)

    @property
    def annotations(self) -> Mapping[str, str]:
        """The RLJob's annotations."""
        return self.raw["metadata"].get("annotations") or {}

    def request(self, annotation: str) -> str:
        """What a person asks for by an annotation: as much of its value as the status keeps."""
        return str(self.annotations.get(annotation) or "")[:REQUEST_CHARACTERS]

    def pods_of(self, attempt: int, role: str = "", pool: str = "") -> list[Manifest]:
        """Pods of one attempt, of a role and a pool where these are given; those being deleted included."""
        wanted = {names.LABEL_ATTEMPT: str(attempt)}
        if role:
            wanted[names.LABEL_ROLE] = role
        if pool:
            wanted[names.LABEL_POOL] = pool
        return [
            pod for pod in self.pods if wanted.items() <= pod_labels(pod).items() and not is_older_than(pod, self.raw)
        ]


def is_older_than(pod: Manifest, job: Manifest) -> bool:
    """Whether a pod was made before the job: it belongs to an earlier job of the same name."""
    made, begun = (to_seconds(thing["metadata"].get("creationTimestamp")) for thing in (pod, job))
    return made is not None and begun is not None and made < begun


def pod_labels(pod: Manifest) -> dict[str, str]:
    """metadata.labels."""
    return dict(pod["metadata"].get("labels") or {})


def is_alive(pod: Manifest) -> bool:
    """Neither finished nor being deleted."""
    return not pod["metadata"].get("deletionTimestamp") and pod_phase(pod) not in ("Succeeded", "Failed")


def is_ready(pod: Manifest) -> bool:
    """Alive, and its readiness probe says so."""
    return is_alive(pod) and condition(pod, "Ready").get("status") == "True"


def is_ray_ready(pod: Manifest) -> bool:
    """Alive, and its Ray container is ready: another container, such as the autoscaler's, may have ended."""
    ray = container_status(pod, *RAY_CONTAINERS)
    return is_alive(pod) and bool(ray["ready"]) if "ready" in ray else is_ready(pod)


def container_status(pod: Manifest, *containers: str) -> Mapping[str, Any]:
    """Status of the first of these containers that the pod has, empty where there is none."""
    for entry in (pod.get("status") or {}).get("containerStatuses") or []:
        if entry.get("name") in containers:
            return dict(entry)
    return {}


def pod_phase(pod: Manifest) -> str:
    """status.phase."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def condition(thing: Manifest, kind: str) -> Mapping[str, Any]:
    """The condition of one type of any object, empty where it has none."""
    for entry in (thing.get("status") or {}).get("conditions") or []:
        if entry.get("type") == kind:
            return dict(entry)
    return {}
