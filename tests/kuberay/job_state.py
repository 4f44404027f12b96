"""Where a RayJob goes next, as far as its own status and the clock decide. Pure: status in, changes of it out."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from tests.kuberay.names import Object, now, seconds_since, with_suffix

TERMINAL = ("STOPPED", "SUCCEEDED", "FAILED")
"""Of jobStatus; STOPPED ends in the deployment status Complete."""
FINISHED = ("Complete", "Failed")
"""Of jobDeploymentStatus."""
_NEVER_RETRIED = ("DeadlineExceeded", "PreRunningDeadlineExceeded")
_LONGEST_MESSAGE = 32_000


def first_changes(job: Mapping[str, Any]) -> Object:
    """New: names are written down before anything of that name is made."""
    spec, status = job["spec"], job.get("status") or {}
    selected = (spec.get("clusterSelector") or {}).get("ray.io/cluster")
    name = job["metadata"]["name"]
    return {
        "jobDeploymentStatus": "Initializing",
        "jobId": status.get("jobId") or spec.get("jobId") or with_suffix(name),
        "rayClusterName": status.get("rayClusterName") or selected or with_suffix(name),
        "startTime": now(),
    }


def refused(problem: str) -> Object:
    return {"jobDeploymentStatus": "ValidationFailed", "reason": "ValidationFailed", "message": problem}


def interruption(job: Mapping[str, Any]) -> Object | None:
    """What ends Initializing or Running from outside: suspension, or a deadline."""
    spec, status = job["spec"], job["status"]
    if spec.get("suspend"):
        return {"jobDeploymentStatus": "Suspending"}
    age_s = seconds_since(status["startTime"])
    if "activeDeadlineSeconds" in spec and age_s >= spec["activeDeadlineSeconds"]:
        return _late(status, "DeadlineExceeded", "activeDeadlineSeconds", spec["activeDeadlineSeconds"])
    limit_s = spec.get("preRunningDeadlineSeconds")
    if limit_s is not None and status["jobDeploymentStatus"] == "Initializing" and age_s >= limit_s:
        return _late(status, "PreRunningDeadlineExceeded", "preRunningDeadlineSeconds", limit_s)
    return None


def observed(job_info: Mapping[str, Any]) -> Object:
    """What the dashboard says of the Ray job."""
    status = job_info["status"]
    deployment = {"FAILED": "Failed"}.get(status, "Complete") if status in TERMINAL else "Running"
    times = {
        name: _time(job_info[field])
        for name, field in (("startTime", "start_time"), ("endTime", "end_time"))
        if job_info.get(field)
    }
    return {
        "jobStatus": status,
        "jobDeploymentStatus": deployment,
        "reason": "AppFailed" if deployment == "Failed" else "",
        "message": (job_info.get("message") or "")[:_LONGEST_MESSAGE],
        "rayJobInfo": times,
        "jobStatusCheckFailureStartTime": None,
    }


def unreachable(status: Mapping[str, Any], timeout_s: float) -> Object:
    """The dashboard did not answer: since when is remembered, and after a while the job is given up."""
    since = status.get("jobStatusCheckFailureStartTime")
    if since is None:
        return {"jobStatusCheckFailureStartTime": now()}
    if seconds_since(since) < timeout_s:
        return {}
    text = f"the status of the Ray job could not be read for {timeout_s:g} s, since {since}"
    return {"jobDeploymentStatus": "Failed", "reason": "JobStatusCheckTimeoutExceeded", "message": text}


def after_deletion(status: Mapping[str, Any]) -> Object:
    """Suspending or Retrying, and all is gone: nothing of the last run stays, its start time excepted."""
    gone = ("jobId", "rayClusterName", "rayClusterStatus", "dashboardURL", "message", "reason", "jobStatus")
    deployment = {"Suspending": "Suspended", "Retrying": ""}[status["jobDeploymentStatus"]]
    return {
        **dict.fromkeys((*gone, "jobStatusCheckFailureStartTime")),
        "rayJobInfo": {},
        "jobDeploymentStatus": deployment,
    }


def merged(job: Mapping[str, Any], changes: Mapping[str, Any]) -> Object:
    """The status with the changes (None or an empty text: without that field), counted, and dated where it ends."""
    old = job.get("status") or {}
    new = {name: value for name, value in {**old, **changes}.items() if value not in (None, "")}
    new.setdefault("rayJobInfo", {})
    new.setdefault("failed", 0)
    new.setdefault("succeeded", 0)
    ends = new.get("jobDeploymentStatus") in FINISHED and old.get("jobDeploymentStatus") not in FINISHED
    if ends:
        new["endTime"] = now()
        if new["jobDeploymentStatus"] == "Failed":
            new["failed"] += 1
            retries = job["spec"].get("backoffLimit", 0)
            if new["failed"] <= retries and new.get("reason") not in _NEVER_RETRIED:
                new["jobDeploymentStatus"] = "Retrying"
        elif new.get("jobStatus") == "SUCCEEDED":
            new["succeeded"] += 1
    return new


def _late(status: Mapping[str, Any], reason: str, field: str, limit_s: int) -> Object:
    text = f"the RayJob has passed its {field}: started {status['startTime']}, limit {limit_s} s"
    return {"jobDeploymentStatus": "Failed", "reason": reason, "message": text}


def _time(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
