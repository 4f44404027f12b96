"""Names, labels and annotations: the contract between the operator, the driver, the chart and people."""

from __future__ import annotations

from rlcore.api.crd import PLURAL
from rlcore.api.rljob import GROUP, KIND, VERSION

__all__ = ["GROUP", "KIND", "PLURAL", "VERSION"]

FIELD_MANAGER = "rljob-operator"
RAY_GROUP, RAY_VERSION = "ray.io", "v1"

LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_JOB = "rlcore.io/job"
LABEL_ATTEMPT = "rlcore.io/attempt"
LABEL_ROLE = "rlcore.io/role"
LABEL_POOL = "rlcore.io/pool"

OURS = f"{LABEL_MANAGED_BY}={FIELD_MANAGER}"
"""Label selector of everything that belongs to some job."""

HEAD, LEARNER, EVALUATOR = "head", "learner", "evaluator"

# On the RLJob, by people: each new value is a new request.
ANNOTATION_CHECKPOINT = "rlcore.io/checkpoint"
ANNOTATION_RESTART = "rlcore.io/restart"
ANNOTATION_PAUSED = "rlcore.io/paused"
# On what we make.
ANNOTATION_SPEC_HASH = "rlcore.io/spec-hash"
ANNOTATION_RANGES = "rlcore.io/pools-are-ranges"
"""Whether there was anything to scale when the RayJob was made: what its cluster does with pools is settled by that."""
ANNOTATION_TOUCHED = "rlcore.io/config-touched"
"""Changed on a head pod when its ConfigMap changed: the kubelet then syncs the mounted copy at once."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
SCHEDULER_LABEL_PREFIXES = ("kueue.x-k8s.io/", "volcano.sh/", "yunikorn.apache.org/", "scheduling.x-k8s.io/")
SCHEDULER_LABELS = ("ray.io/scheduler-name", "ray.io/gang-scheduling-enabled", "ray.io/priority-class-name")

MAX_ATTEMPTS = 999


def ray_job_name(job: str, attempt: int) -> str:
    """RayJob of one attempt."""
    return f"{job}-{attempt}"


def config_map_name(job: str) -> str:
    """ConfigMap through which the driver gets its manifest and live changes."""
    return f"{job}-run"


def claim_name(job: str) -> str:
    """PersistentVolumeClaim that the operator makes for checkpoints."""
    return f"{job}-checkpoints"


def labels(job: str, *, attempt: int | None = None, role: str = "", pool: str = "") -> dict[str, str]:
    """Labels of an object made for a job."""
    result = {LABEL_MANAGED_BY: FIELD_MANAGER, LABEL_PART_OF: "rlcore", LABEL_JOB: job}
    if attempt is not None:
        result[LABEL_ATTEMPT] = str(attempt)
    if role:
        result[LABEL_ROLE] = role
    if pool:
        result[LABEL_POOL] = pool
    return result


def evaluator_selector(job: str) -> str:
    """Label selector of a job's evaluator pods, for the scale subresource."""
    return f"{LABEL_JOB}={job},{LABEL_ROLE}={EVALUATOR}"


def scheduler_labels(job_labels: dict[str, str]) -> dict[str, str]:
    """Those labels of an RLJob that queues and batch schedulers read on a RayJob."""
    return {
        key: value
        for key, value in job_labels.items()
        if key in SCHEDULER_LABELS or key.startswith(SCHEDULER_LABEL_PREFIXES)
    }
