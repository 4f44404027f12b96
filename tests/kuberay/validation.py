"""What KubeRay refuses, as pure functions: the first thing that is wrong with an object, or an empty text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

_LONGEST_JOB_NAME, _LONGEST_CLUSTER_NAME = 47, 63
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_FIRST_RAY_WITH_TOKENS = (2, 52, 0)
_RESOURCE_PARAMETERS = ("num-cpus", "num-gpus", "memory", "resources")


def job_problem(job: Mapping[str, Any]) -> str:
    """Why a RayJob is not acted upon."""
    return next(_job_problems(job), "")


def cluster_problem(cluster: Mapping[str, Any]) -> str:
    """Why a RayCluster is not acted upon."""
    return next(_cluster_problems(cluster["metadata"]["name"], cluster["spec"]), "")


def _job_problems(job: Mapping[str, Any]) -> Iterator[str]:
    spec = job["spec"]
    yield from _name_problems("RayJob", job["metadata"]["name"], _LONGEST_JOB_NAME)
    selects = bool(spec.get("clusterSelector"))
    shuts_down = bool(spec.get("shutdownAfterJobFinishes"))
    if spec.get("suspend") and not shuts_down:
        yield "a RayJob that does not shut down after it finishes (shutdownAfterJobFinishes) cannot be suspended"
    if spec.get("suspend") and selects:
        yield "a RayJob with a clusterSelector cannot be suspended"
    if spec.get("ttlSecondsAfterFinished", 0) < 0:
        yield "ttlSecondsAfterFinished must not be negative"
    if spec.get("ttlSecondsAfterFinished", 0) and not shuts_down:
        yield "ttlSecondsAfterFinished is for a RayJob with shutdownAfterJobFinishes only"
    if not selects and "rayClusterSpec" not in spec:
        yield "one of rayClusterSpec and clusterSelector must be given"
    if shuts_down and (spec.get("deletionStrategy") or {}).get("deletionRules"):
        yield "shutdownAfterJobFinishes and deletionStrategy.deletionRules exclude each other"
    for field in ("activeDeadlineSeconds", "preRunningDeadlineSeconds"):
        if field in spec and spec[field] <= 0:
            yield f"{field} must be a positive number"
    if spec.get("backoffLimit", 0) < 0:
        yield "backoffLimit must not be negative"
    if spec.get("submissionMode") == "SidecarMode":
        yield from _sidecar_problems(spec)
    yield from _runtime_env_problems(spec.get("runtimeEnvYAML", ""))
    if "rayClusterSpec" in spec:
        yield from _cluster_spec_problems(spec["rayClusterSpec"])


def _sidecar_problems(spec: Mapping[str, Any]) -> Iterator[str]:
    for field in ("submitterPodTemplate", "submitterConfig", "clusterSelector"):
        if spec.get(field):
            yield f"SidecarMode does not go with {field}"
    head = spec.get("rayClusterSpec", {}).get("headGroupSpec", {}).get("template", {}).get("spec", {})
    if head.get("restartPolicy", "Never") != "Never":
        yield "in SidecarMode the restartPolicy of the head must be Never, or unset"


def _runtime_env_problems(text: str) -> Iterator[str]:
    try:
        yaml.safe_load(text)
    except yaml.YAMLError as error:
        yield f"runtimeEnvYAML is no YAML: {error}"


def _cluster_problems(name: str, spec: Mapping[str, Any]) -> Iterator[str]:
    yield from _name_problems("RayCluster", name, _LONGEST_CLUSTER_NAME)
    yield from _cluster_spec_problems(spec)


def _name_problems(kind: str, name: str, longest: int) -> Iterator[str]:
    if len(name) > longest:
        yield f"the name of a {kind} has at most {longest} characters"
    if not _DNS_1035.fullmatch(name):
        yield f"the name of a {kind} must be a DNS-1035 label: lower case letters, digits and -, a letter first"


def _cluster_spec_problems(spec: Mapping[str, Any]) -> Iterator[str]:
    head, groups = spec["headGroupSpec"], spec.get("workerGroupSpecs") or []
    autoscaled = bool(spec.get("enableInTreeAutoscaling"))
    for name, group in (("headGroupSpec", head), *((f"worker group {g['groupName']}", g) for g in groups)):
        yield from _group_problems(name, group)
    names = [group["groupName"] for group in groups]
    if len(set(names)) < len(names):
        yield "the groupNames of the worker groups must differ"
    for group in groups:
        yield from _size_problems(group, autoscaled)
    for group in groups:
        if "idleTimeoutSeconds" in group and (spec.get("autoscalerOptions") or {}).get("version") != "v2":
            yield f"worker group {group['groupName']} has idleTimeoutSeconds, and the autoscaler's version is not v2"
    if autoscaled and (spec.get("autoscalerOptions") or {}).get("version") == "v2":
        for name, group in (("the head", head), *((f"worker group {g['groupName']}", g) for g in groups)):
            if group["template"]["spec"].get("restartPolicy", "Never") != "Never":
                yield f"with autoscaler v2 the restartPolicy of {name} must be Never, or unset"
    if (spec.get("authOptions") or {}).get("mode") == "token" and _version(spec) < _FIRST_RAY_WITH_TOKENS:
        yield "authOptions.mode token needs rayVersion 2.52.0 or newer"


def _group_problems(name: str, group: Mapping[str, Any]) -> Iterator[str]:
    if not group["template"].get("spec", {}).get("containers"):
        yield f"the template of {name} needs a container"
    parameters = group.get("rayStartParams") or {}
    if group.get("resources") and any(parameters.get(parameter) for parameter in _RESOURCE_PARAMETERS):
        yield f"{name} has resources both in rayStartParams and in the field resources; only one may be used"
    if "labels" in parameters:
        yield f"{name} has labels in rayStartParams; use the field labels"


def _size_problems(group: Mapping[str, Any], autoscaled: bool) -> Iterator[str]:
    name = f"worker group {group['groupName']}"
    if not autoscaled and ("minReplicas" not in group or "maxReplicas" not in group):
        yield f"{name} must have minReplicas and maxReplicas"
    least, most = group.get("minReplicas", 0), group.get("maxReplicas", 2**31 - 1)
    if least < 0 or most < 0 or group.get("replicas", 0) < 0:
        yield f"{name} has a negative number of replicas"
    if least > most:
        yield f"{name} has minReplicas {least}, more than maxReplicas {most}"
    if autoscaled and group.get("suspend"):
        yield f"{name} cannot be suspended while the autoscaler is on"


def _version(spec: Mapping[str, Any]) -> tuple[int, ...]:
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", spec.get("rayVersion", ""))
    return tuple(int(part or 0) for part in match.groups()) if match else (0, 0, 0)
