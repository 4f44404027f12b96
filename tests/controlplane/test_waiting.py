"""Why a job waits: every reason is named, with what to do about it; the job goes on when it is gone, or fails when the
deadline is over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from rljob_operator.timestamps import to_seconds

from tests.controlplane.conftest import fresh_namespace
from tests.controlplane.operated import Job, Operated
from tests.kube.wait import eventually

pytestmark = pytest.mark.timeout(240)

SLOW = {"timestepsPerS": 1_000, "checkpointEveryS": 1}
DEADLINE = "30s"
NO_NODE = {"resources": {"cpu": "64"}}
"""More than any node has."""


class Obstacle(NamedTuple):
    """What holds a job up, and what is said of it."""

    spec: dict[str, Any]
    reason: str
    words: tuple[str, ...]
    before: Callable[[Job], None] | None = None
    """What is done to the namespace before the job is made."""
    mend: Callable[[Job], object] | None = None
    after: Callable[[Job], None] | None = None
    """What is done to its pods, as a kubelet would."""


def pools(**fields: Any) -> dict[str, Any]:
    """A spec with one pool of one pod that has these fields too."""
    return {"pools": [{"name": "evaluators", "minReplicas": 1, "maxReplicas": 1, **fields}]}


def few_pods(job: Job, pods: int = 2) -> None:
    """A quota that is too small for the job."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    quota |= {"spec": {"hard": {"pods": str(pods)}}}
    job.cluster.kubectl("apply", "-n", job.namespace, "-f", "-", input=json.dumps(quota))
    # Counted once before it is held against anybody.
    eventually(lambda: job.get("resourcequota", "few").get("status", {}).get("used"), what="the quota in force")


def no_claims(job: Job) -> None:
    """A quota that allows no claim at all."""
    job.kubectl("create", "quota", "none", "--hard=persistentvolumeclaims=0")
    eventually(lambda: job.get("resourcequota", "none").get("status", {}).get("used"), what="the quota in force")


def say_secret_is_missing(job: Job) -> None:
    """The head's kubelet says what it waits for, again and again: kwok may be late with a status of its own."""

    def said() -> bool:
        (head,) = [pod for pod in job.list("pods") if pod["metadata"]["labels"]["rlcore.io/role"] == "head"]
        statuses = head["status"]["containerStatuses"]
        assert statuses[0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
        statuses[0]["state"]["waiting"]["message"] = 'secret "tokens" not found'
        patch = json.dumps({"status": {"containerStatuses": statuses}})
        job.kubectl("patch", "pod", head["metadata"]["name"], "--subresource=status", "--type=merge", "-p", patch)
        return "secret tokens" in job.condition("Provisioned").get("message", "")

    eventually(said, interval_s=0.5, what="a missing Secret")


def make_storage_class(job: Job) -> None:
    """The class that was missing; called like the namespace, since it belongs to the cluster."""
    job.cluster.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": job.namespace},
            "provisioner": "kubernetes.io/host-path",
        }
    )


SECRET = {
    "envFrom": [{"secretRef": {"name": "tokens"}}],
    "head": {"podTemplate": {"metadata": {"annotations": {"test.rlcore.io/waiting": "CreateContainerConfigError"}}}},
}
OBSTACLES = {
    "image": Obstacle(
        {"image": "registry.example.com/missing:1"},
        "ImagePull",
        ("registry.example.com/missing:1", "spec.image"),
        mend=lambda job: job.patch({"image": "registry.example.com/there:1"}),
    ),
    "nodes": Obstacle(
        {"learner": NO_NODE},
        "Unschedulable",
        ("learner", "Insufficient cpu"),
        mend=lambda job: job.patch({"learner": {"resources": {"cpu": "1"}}}),
    ),
    "quota-of-pods": Obstacle(
        {},
        "QuotaExceeded",
        ("exceeded quota: few", "ResourceQuota"),
        before=few_pods,
        mend=lambda job: few_pods(job, 9),
    ),
    "quota-of-claims": Obstacle(
        {},
        "QuotaExceeded",
        ("exceeded quota: none", "ResourceQuota"),
        before=no_claims,
        mend=lambda job: job.cluster.kubectl("delete", "quota", "none", "-n", job.namespace),
    ),
    "claim": Obstacle(
        {"checkpoint": {"storage": {"newClaim": {"storageClassName": "{namespace}"}}}},
        "UnboundClaim",
        ("unbound immediate PersistentVolumeClaims", "StorageClass"),
        mend=make_storage_class,
    ),
    "secret": Obstacle(
        SECRET,
        "MissingSecret",
        ("secret tokens is missing", "create it in the job's namespace"),
        after=say_secret_is_missing,
        mend=lambda job: job.patch({"head": {"podTemplate": None}}),
    ),
    "priority": Obstacle(
        {"head": {"priorityClassName": "nobody-made-this"}},
        "PodsRefused",
        ("no PriorityClass with name nobody-made-this was found",),
        mend=lambda job: job.patch({"head": {"priorityClassName": None}}),
    ),
    "pod": Obstacle(
        {"evaluators": pools(nodeSelector={"zone": "a b"})},
        "PodsRefused",
        ("spec.nodeSelector", "a valid label must be"),
        mend=lambda job: job.patch({"evaluators": pools()}),
    ),
}


@pytest.fixture(scope="module")
def held_up(operated: Operated, request: pytest.FixtureRequest) -> Iterator[dict[str, Job]]:
    """For each obstacle a job that nobody helps; all at once, since each takes its time."""
    jobs: dict[str, Job] = {}
    spaces = [fresh_namespace(operated.cluster, f"never-{name}") for name in OBSTACLES]
    for name, space in zip(OBSTACLES, spaces, strict=True):
        jobs[name] = operated.job(space.__enter__())
    try:
        for name, obstacle in OBSTACLES.items():
            begin(jobs[name], obstacle, provisioningDeadline=DEADLINE)
        yield jobs
    finally:
        for space in spaces:
            space.__exit__(None, None, None)


def begin(job: Job, obstacle: Obstacle, **spec: Any) -> None:
    """Applies a job behind an obstacle."""
    if obstacle.before:
        obstacle.before(job)
    text = json.dumps({**obstacle.spec, **spec}).replace("{namespace}", job.namespace)
    job.apply(script=SLOW, **json.loads(text))
    if obstacle.after:
        obstacle.after(job)


def waits(job: Job, obstacle: Obstacle) -> None:
    """Waits until the job says why it waits, and checks what it says."""
    job.comes(
        lambda s: any(c["type"] == "Provisioned" and c["reason"] == obstacle.reason for c in s.get("conditions", [])),
        obstacle.reason,
    )
    provisioned = job.condition("Provisioned")
    assert provisioned["status"] == "False"
    for word in obstacle.words:
        assert word in provisioned["message"]


@pytest.mark.parametrize("name", OBSTACLES)
def test_a_job_says_what_it_waits_for_and_fails_when_its_time_is_over(held_up: dict[str, Job], name: str) -> None:
    job, obstacle = held_up[name], OBSTACLES[name]
    status = job.reaches("Failed", deadline_s=90)
    failed = job.condition("Failed")
    assert failed["reason"] == "ProvisioningDeadlineExceeded"
    assert DEADLINE in failed["message"]
    assert obstacle.reason in failed["message"]
    for word in obstacle.words:
        assert word in failed["message"]
    assert status["attempt"] == 1
    for reason in (obstacle.reason, "ProvisioningDeadlineExceeded"):
        assert job.told(reason)
    job.gone("rayjobs")
    job.gone("pods")


@pytest.mark.parametrize("name", OBSTACLES)
def test_a_job_goes_on_when_the_obstacle_is_gone(job: Job, name: str) -> None:
    obstacle = OBSTACLES[name]
    begin(job, obstacle)
    waits(job, obstacle)
    assert job.status["phase"] == "Provisioning"
    assert obstacle.mend
    obstacle.mend(job)
    status = job.reaches("Running")
    assert status.get("restarts", 0) == 0
    assert job.condition("Provisioned")["reason"] == "PodsReady"


def test_a_job_that_waits_can_be_suspended_and_deleted(job: Job) -> None:
    job.apply(script=SLOW, learner=NO_NODE)
    waits(job, OBSTACLES["nodes"])
    job.patch({"suspend": True})
    job.reaches("Suspended")
    job.gone("pods")
    job.patch({"suspend": False})
    waits(job, OBSTACLES["nodes"])
    job.kubectl("delete", "rlj", job.name, "--timeout=20s")
    job.gone("pods")


# queues --------------------

QUEUE = "kueue.x-k8s.io/queue-name"


def apply_queued(job: Job, **spec: Any) -> None:
    """A job that Kueue is to admit, with a pool that could be autoscaled."""
    job.apply(script=SLOW, suspend=True, evaluators=pools(maxReplicas=4), **spec)
    job.kubectl("label", "rlj", job.name, f"{QUEUE}=team-a", "kueue.x-k8s.io/priority-class=high")
    job.patch({"suspend": False})
    job.comes(lambda s: any(c["reason"] == "Queued" for c in s["conditions"]), "Queued")


def set_suspend(job: Job, value: bool, attempt: int = 1) -> None:
    """What Kueue does to admit a RayJob, and to take its pods away again."""
    patch = json.dumps({"spec": {"suspend": value}})
    job.kubectl("patch", "rayjob", f"{job.name}-{attempt}", "--type=merge", "-p", patch)


def is_looked_at(job: Job, times: int = 2) -> None:
    """Has the operator look at the job a few times."""
    for number in range(times):
        job.patch({"ttlAfterFailed": f"{number}d"})
        generation = job.get()["metadata"]["generation"]
        job.comes(lambda s, wanted=generation: s["observedGeneration"] == wanted, "a look at the changed job")


def test_a_queued_job_waits_until_the_queue_admits_it(job: Job) -> None:
    apply_queued(job, provisioningDeadline=DEADLINE)
    assert job.status["phase"] == "Pending"
    assert "team-a" in job.condition("Provisioned")["message"]
    ray_job = job.get("rayjob", f"{job.name}-1")
    assert ray_job["spec"]["suspend"] is True
    assert ray_job["metadata"]["labels"][QUEUE] == "team-a"
    assert ray_job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    # A queue has to know the size of what it admits.
    assert not ray_job["spec"]["rayClusterSpec"].get("enableInTreeAutoscaling")
    is_looked_at(job)
    assert job.get("rayjob", f"{job.name}-1")["spec"]["suspend"] is True
    assert not job.list("pods")

    set_suspend(job, False)
    assert job.reaches("Running")["attempt"] == 1
    assert job.condition("Provisioned")["reason"] == "PodsReady"


def test_a_queue_may_take_pods_back_and_give_others_later(job: Job) -> None:
    apply_queued(job)
    set_suspend(job, False)
    status = job.comes(lambda s: (s.get("checkpoint") or {}).get("timesteps"), "a checkpoint")
    saved = status["checkpoint"]["timesteps"]
    set_suspend(job, True)
    job.comes(lambda s: s["phase"] == "Pending" and s["conditions"], "waiting again")
    assert job.condition("Provisioned")["reason"] == "Queued"
    assert job.condition("Training")["status"] == "False"
    job.gone("pods")
    is_looked_at(job)
    assert job.get("rayjob", f"{job.name}-1")["spec"]["suspend"] is True

    set_suspend(job, False)
    status = job.comes(lambda s: s["phase"] == "Running" and s["training"]["timesteps"] > saved, "training again")
    assert status["attempt"] == 1
    assert status.get("restarts", 0) == 0
    assert status.get("preemptions", 0) == 0


def test_time_in_a_queue_is_no_time_of_provisioning(held_up: dict[str, Job], job: Job) -> None:
    apply_queued(job, provisioningDeadline=DEADLINE)
    # Those that began before it have failed by now, or will soon.
    for other in held_up.values():
        other.reaches("Failed", deadline_s=90)
    began = job.condition("Provisioned")["lastTransitionTime"]
    eventually(
        lambda: _seconds_between(began, _now(job)) > 32, deadline_s=60, what="more than the deadline in the queue"
    )
    assert job.status["phase"] == "Pending"
    set_suspend(job, False)
    job.reaches("Running")


def _now(job: Job) -> str:
    """The API server's clock, as it stamps objects."""
    made = job.kubectl("create", "configmap", "now", "--dry-run=server", "-o", "json")
    return str(json.loads(made)["metadata"]["creationTimestamp"])


def _seconds_between(first: str, second: str) -> float:
    return (to_seconds(second) or 0.0) - (to_seconds(first) or 0.0)
