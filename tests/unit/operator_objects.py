"""Objects as the API server and drivers tell of them, for tests of the operator's pure core."""

from __future__ import annotations

import copy
from typing import Any

from rljob_operator import names
from rljob_operator.decide import decide
from rljob_operator.draft import Decision
from rljob_operator.observed import DriverReport, LostPod, Observed
from rljob_operator.provision import ray_job as make_ray_job
from rljob_operator.settings import Settings
from rljob_operator.timestamps import to_rfc3339
from rljob_operator.understood import parse

from rlcore.api import RLJob

NOW_S = 1_800_000_000.0
SETTINGS = Settings()

SPOT: dict[str, Any] = {
    "name": "spot",
    "minReplicas": 2,
    "maxReplicas": 8,
    "preemptible": True,
    "resources": {"cpu": 2, "memory": "4Gi"},
}
BASE: dict[str, Any] = {"name": "base", "minReplicas": 1, "maxReplicas": 4}


def at(seconds: float) -> str:
    """So many seconds after the beginning, RFC 3339."""
    return to_rfc3339(NOW_S + seconds)


def raw_job(
    name: str = "pong",
    *,
    status: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    generation: int = 1,
    **spec: Any,
) -> dict[str, Any]:
    """An RLJob of the API server; keyword arguments are fields of spec, in the manifest's spelling."""
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "generation": generation,
            "resourceVersion": "1",
            "creationTimestamp": at(0),
            "annotations": annotations or {},
            "labels": labels or {},
        },
        "spec": {
            "algorithm": "PPO",
            "environment": {"id": "CartPole-v1"},
            "stop": {"timesteps": 100_000},
            "evaluators": {"pools": [copy.deepcopy(SPOT), copy.deepcopy(BASE)]},
            **spec,
        },
        "status": status or {},
    }


def understood(raw: dict[str, Any]) -> RLJob:
    """A valid RLJob as a model."""
    job, problem = parse(raw)
    assert job is not None, problem
    return job


def job(name: str = "pong", **fields: Any) -> RLJob:
    """The model of `raw_job`."""
    return understood(raw_job(name, **fields))


def ray_job(raw: dict[str, Any], attempt: int = 1, settings: Settings = SETTINGS, **status: Any) -> dict[str, Any]:
    """The RayJob of an attempt, with a status of KubeRay's."""
    made = make_ray_job(understood(raw), attempt, settings)
    made["metadata"] |= {"uid": f"uid-{made['metadata']['name']}", "resourceVersion": "1"}
    return {**made, "status": {"rayClusterName": f"{made['metadata']['name']}-abcde", **status}}


def ray_cluster(of: dict[str, Any], **status: Any) -> dict[str, Any]:
    """The RayCluster of a RayJob."""
    metadata = {
        "name": of["status"]["rayClusterName"],
        "namespace": "team",
        "uid": f"uid-{of['status']['rayClusterName']}",
        "resourceVersion": "1",
        "labels": of["metadata"]["labels"],
    }
    return {"metadata": metadata, "spec": copy.deepcopy(of["spec"]["rayClusterSpec"]), "status": status}


def pod(
    role: str = "head",
    name: str = "",
    *,
    attempt: int = 1,
    pool: str = "",
    phase: str = "Running",
    ready: bool | None = None,
    conditions: list[dict[str, Any]] | None = None,
    terminated: dict[str, Any] | None = None,
    waiting: dict[str, Any] | None = None,
    deleted_at: float | None = None,
    grace_s: int = 60,
    made_at: float = 0.0,
    reason: str = "",
    message: str = "",
    job: str = "pong",
) -> dict[str, Any]:
    """A training pod.

    Args:
        role: head, learner or evaluator.
        name: of the pod; by default the role.
        attempt: that it belongs to.
        pool: of an evaluator.
        phase: status.phase.
        ready: its Ready condition; by default whether it runs.
        conditions: further ones.
        terminated: state of the Ray container after its end.
        waiting: its state before it runs.
        deleted_at: when deletion was asked for, seconds after the beginning.
        grace_s: seconds of grace from then.
        made_at: seconds after the beginning.
        reason: status.reason.
        message: status.message.
        job: that it belongs to.
    """
    name = name or role
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "creationTimestamp": at(made_at),
        "labels": names.labels(job, attempt=attempt, role=role, pool=pool),
    }
    if deleted_at is not None:
        metadata |= {"deletionTimestamp": at(deleted_at + grace_s), "deletionGracePeriodSeconds": grace_s}
    container = "ray-head" if role == "head" else "ray-worker"
    state: dict[str, Any] = {"terminated": terminated} if terminated else {"waiting": waiting} if waiting else {}
    is_ready = phase == "Running" and not terminated if ready is None else ready
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": str(is_ready)}, *(conditions or [])],
        "containerStatuses": [{"name": container, "image": "rlcore:1", "state": state}],
    }
    if reason:
        status |= {"reason": reason, "message": message}
    return {"metadata": metadata, "spec": {"nodeName": "node-1", "containers": [{"name": container}]}, "status": status}


def unscheduled(message: str = "0/3 nodes are available", since: float = 0.0) -> dict[str, Any]:
    """The condition of a pod that no node takes."""
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": at(since),
    }


def lost(
    failure_class: str = "Preempted",
    role: str = "head",
    uid: str = "",
    *,
    attempt: int = 1,
    when: float = 0.0,
    **more: Any,
) -> LostPod:
    """A lost pod, seen so many seconds after the beginning."""
    fields = {"node": "node-1", "exit_code": None, "message": "it was lost", **more}
    name = uid or role
    return LostPod(
        uid=f"uid-{name}",
        name=name,
        role=role,
        attempt=attempt,
        failure_class=failure_class,
        time_s=NOW_S + when,
        **fields,
    )


def report(
    phase: str = "Running",
    *,
    attempt: int = 1,
    head: str = "uid-head",
    when: float = 0.0,
    still: float = 0.0,
    **values: Any,
) -> DriverReport:
    """A driver's answer, so many seconds after the beginning; its timesteps stand `still` for so many seconds."""
    content = {
        "job": "pong",
        "phase": phase,
        "attempt": attempt,
        "token": f"{attempt}.{head}.1",
        "iteration": 3,
        "timesteps": 5000,
        "checkpoint": {"location": None, "timesteps": None, "time_s": None, "request": None},
        "final": None,
        **values,
    }
    return DriverReport(content, NOW_S + when, NOW_S + when - still)


def checkpoint(timesteps: int, *, when: float = 0.0, request: str | None = None) -> dict[str, Any]:
    """A driver's newest checkpoint."""
    return {"location": "/ckpt/1", "timesteps": timesteps, "time_s": NOW_S + when, "request": request}


def final(
    phase: str = "Succeeded", exit_code: int = 0, failure_class: str = "", message: str = "done"
) -> dict[str, Any]:
    """How a driver says that it ended."""
    return {
        "token": "1.uid-head.1",
        "phase": phase,
        "failure_class": failure_class,
        "exit_code": exit_code,
        "reason": "Reason",
        "message": message,
    }


def observe(raw: dict[str, Any], *, after: float = 0.0, **fields: Any) -> Observed:
    """What is observed of a job so many seconds after the beginning."""
    understood_job, problem = parse(raw)
    return Observed(raw=raw, job=understood_job, problem=problem, now_s=NOW_S + after, **fields)


def decided(raw: dict[str, Any], *, after: float = 0.0, settings: Settings = SETTINGS, **fields: Any) -> Decision:
    """The decision of what is observed."""
    return decide(observe(raw, after=after, **fields), settings)


def condition_of(status: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition of a status, empty where it has none."""
    return next((c for c in status.get("conditions", []) if c["type"] == kind), {})
