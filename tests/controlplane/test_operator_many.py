"""Many jobs at once: all of them are served, without errors and without much memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.operated import SCRIPT, Job, Operated
from tests.kube.operator_process import OperatorProcess
from tests.kube.wait import eventually

JOBS = 40
DEADLINE_S = 240.0
MOST_MIB = 250.0
TINY = {"cpu": "50m", "memory": "64Mi"}

pytestmark = pytest.mark.timeout(600)


def apply_all(job: Job, timesteps: int) -> None:
    """One `kubectl apply` of all jobs, which train until so many timesteps."""
    spec = {
        "algorithm": "PPO",
        "environment": {"id": "CartPole-v1"},
        "stop": {"timesteps": timesteps},
        "head": {"resources": TINY},
        "learner": {"resources": TINY},
        "evaluators": {"pools": [{"name": "evaluators", "minReplicas": 1, "maxReplicas": 1, "resources": TINY}]},
    }
    marks = {SCRIPT: json.dumps({"timestepsPerS": 10_000})}
    items = [
        {
            "apiVersion": "rlcore.io/v1alpha1",
            "kind": "RLJob",
            "metadata": {"name": f"job-{number}", "namespace": job.namespace, "annotations": marks},
            "spec": spec,
        }
        for number in range(JOBS)
    ]
    job.cluster.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def all_reach(job: Job, phase: str) -> list[dict[str, Any]]:
    """Waits until all jobs are in a phase; their statuses then."""

    def statuses() -> list[dict[str, Any]]:
        return [item.get("status", {}) for item in json.loads(job.kubectl("get", "rlj", "-o", "json"))["items"]]

    def there() -> list[dict[str, Any]]:
        found = statuses()
        missing = [status for status in found if status.get("phase") != phase]
        assert not missing, f"{len(missing)} are not, such as {json.dumps(missing[0])}"
        return found

    return eventually(there, DEADLINE_S, 1.0, f"{JOBS} jobs {phase}")


def errors(operator: OperatorProcess) -> float:
    """Looks that ended in an error, but for conflicts, which are tried again."""
    name = "rljob_operator_reconcile_errors_total"
    return operator.metric(name) - operator.metric(name, reason="Conflict")


def test_many_jobs_at_once_run_to_their_end_without_errors(operated: Operated, job: Job) -> None:
    errors_before = errors(operated.operator)
    apply_all(job, timesteps=1_000_000_000)
    statuses = all_reach(job, "Running")
    assert len(statuses) == JOBS
    assert {status["attempt"] for status in statuses} == {1}
    apply_all(job, timesteps=1_000)
    statuses = all_reach(job, "Succeeded")
    assert not [status for status in statuses if status.get("restarts") or status.get("losses")]
    eventually(lambda: not json.loads(job.kubectl("get", "pods", "-o", "json"))["items"], 60, what="no pods left")
    assert errors(operated.operator) == errors_before
    assert memory_mib(operated.operator.pid) < MOST_MIB


def memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
