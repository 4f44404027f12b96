"""What is true of every decision, whatever KubeRay, pods, drivers and people do."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rljob_operator import actions, names
from rljob_operator.decide import decide
from rljob_operator.draft import merge_patch

from tests.unit.operator_driver import Script
from tests.unit.operator_objects import (
    BASE,
    SETTINGS,
    SPOT,
    at,
    checkpoint,
    final,
    lost,
    observe,
    pod,
    raw_job,
    ray_cluster,
    ray_job,
    report,
    unscheduled,
)
from tests.unit.operator_shell import status_validator
from tests.unit.operator_world import World

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STORIES = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT = st.text(max_size=300)
MOMENT = st.integers(-2000, 2000).map(at)


def partial(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


STATES = [
    *("", "Initializing", "Running", "Complete", "Failed", "ValidationFailed"),
    *("Suspending", "Suspended", "Retrying", "Waiting", "SomethingNew"),
]
RAY_JOB_STATUS = partial(
    {
        "jobDeploymentStatus": st.sampled_from(STATES),
        "jobStatus": st.sampled_from(["", "PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]),
        "reason": st.sampled_from(["AppFailed", "JobStatusCheckTimeoutExceeded", "ValidationFailed"]) | TEXT,
        "message": TEXT | st.integers(-300, 300).map(lambda code: f"failed with exit code {code}, logs:\nline"),
        "rayClusterName": st.just("pong-1-abcde"),
        "dashboardURL": st.text(max_size=100),
        "startTime": MOMENT,
    }
)
POD_CONDITION = st.builds(
    lambda kind, status, reason, message, since: {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    },
    st.sampled_from(["Ready", "PodScheduled", "DisruptionTarget", "Initialized"]),
    st.sampled_from(["True", "False", "Unknown"]),
    st.sampled_from(["NodeNotReady", "PreemptionByScheduler", "DeletionByTaintManager", "Unschedulable"]) | TEXT,
    TEXT,
    MOMENT,
)
CONTAINER = partial(
    {
        "name": st.sampled_from(["ray-head", "ray-worker", "autoscaler"]),
        "state": partial(
            {
                "terminated": partial(
                    {"exitCode": st.integers(0, 255), "reason": st.sampled_from(["OOMKilled", "Error", "Completed"])}
                    | {"finishedAt": MOMENT, "message": TEXT}
                ),
                "waiting": partial({"reason": st.sampled_from(["ErrImagePull", "Creating"]), "message": TEXT}),
            }
        ),
    }
)
POD_STATUS = partial(
    {
        "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
        "conditions": st.lists(POD_CONDITION, max_size=3) | st.none(),
        "containerStatuses": st.lists(CONTAINER, max_size=2) | st.none(),
        "reason": st.sampled_from(["Evicted", "NodeLost"]) | TEXT,
        "message": TEXT,
    }
)


@st.composite
def a_pod(draw: st.DrawFn) -> dict[str, Any]:
    role = draw(st.sampled_from(["head", "learner", "evaluator"]))
    made = pod(
        role,
        draw(st.sampled_from(["a", "b", "c", "head"])),
        pool=draw(st.sampled_from(["spot", "base"])) if role == "evaluator" else "",
        attempt=draw(st.sampled_from([1, 1, 1, 7])),
        deleted_at=draw(st.none() | st.integers(-500, 500)),
        conditions=draw(st.just([]) | st.just([unscheduled(since=-400)])),
    )
    return {**made, "status": draw(POD_STATUS)} if draw(st.booleans()) else made


A_LOSS = st.builds(
    lost,
    st.sampled_from(["Preempted", "OutOfMemory", "Crashed", "Deleted", "NodeLost"]),
    st.sampled_from(["head", "evaluator", "learner"]),
    st.sampled_from(list("abcdefgh")),
    attempt=st.sampled_from([1, 1, 7]),
    when=st.integers(-600, 0),
)
A_REPORT = st.builds(
    report,
    st.sampled_from(["Starting", "Running", "Paused", "Recovering", "Stopping", "Succeeded", "Failed"]),
    head=st.sampled_from(["uid-head", "uid-a", "uid-b"]),
    when=st.sampled_from([0, -30, -90]),
    still=st.sampled_from([0, 3000]),
    checkpoint=st.builds(
        checkpoint, st.integers(0, 10**6), when=st.integers(-900, 0), request=st.sampled_from([None, f"stop-1-{at(0)}"])
    ),
    final=st.none()
    | st.builds(final, st.sampled_from(["Succeeded", "Failed"]), st.sampled_from([0, 2, 3, 70]), TEXT, TEXT),
)
AN_ATTEMPT = partial(
    {
        "stoppingAt": MOMENT,
        "endedAt": MOMENT,
        "reason": st.sampled_from(["", "Suspended", "Succeeded", "Stalled", "OutOfMemory"]),
        "counted": st.booleans(),
        "timesteps": st.integers(0, 10**6),
    }
)
A_CONDITION = st.tuples(
    st.sampled_from(["Valid", "Provisioned", "Training", "Suspended", "Complete", "Failed", "Paused"]),
    st.sampled_from(["True", "False", "Unknown"]),
    st.sampled_from(["HeadLost", "Reason"]),
)
STATUS = partial(
    {
        "phase": st.sampled_from(["Pending", "Running", "Recovering", "Unknown"]),
        "attempts": AN_ATTEMPT.map(lambda fields: [{"number": 1, "startedAt": at(-900), **fields}]),
        "rayJob": st.just("pong-1"),
        "startedAt": st.just(at(-900)),
        "finishedAt": MOMENT,
        "restarts": st.integers(0, 4),
        "checkpoint": partial({"timesteps": st.integers(0, 10**6), "time": MOMENT}),
        "losses": st.lists(st.sampled_from("abcdefgh"), max_size=3, unique=True).map(
            lambda uids: [{"uid": f"uid-{u}", "role": "head", "class": "OutOfMemory", "time": at(-60)} for u in uids]
        ),
        "conditions": st.lists(A_CONDITION, max_size=4, unique_by=lambda found: found[0]).map(
            lambda found: [
                {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at(-700)}
                for kind, status, reason in found
            ]
        ),
        "evaluators": st.just({"pools": [{"name": "spot", "movedAt": at(-100)}]}),
        "lastFailure": st.just({"class": "OutOfMemory", "message": "m", "exitCode": 3}),
    }
)
SPEC = partial(
    {
        "suspend": st.booleans(),
        "activeDeadline": st.sampled_from(["1m", "1d"]),
        "provisioningDeadline": st.sampled_from(["30s", "1d"]),
        "ttlAfterFinished": st.just("1m"),
        "restartPolicy": st.just({"maxRestarts": 2, "permanentExitCodes": [42]}),
        "budget": st.just({"pricePerHour": {"head": 1.0}, "maximumCost": 0.5}),
        "image": st.just("changed:1"),
        "evaluators": st.just({"pools": [SPOT, BASE], "replicas": 1}),
    }
)


@st.composite
def a_world(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """An RLJob, and what else is observed."""
    original = raw_job()
    raw = raw_job(status=draw(STATUS), **draw(SPEC))
    if "attempts" in raw["status"]:
        raw["status"]["attempt"] = 1
    else:
        raw["status"] = {}  # nothing has begun
    if draw(st.booleans()):
        raw["metadata"]["annotations"] = draw(
            st.dictionaries(
                st.sampled_from([names.ANNOTATION_RESTART, names.ANNOTATION_CHECKPOINT, names.ANNOTATION_PAUSED]),
                st.sampled_from(["true", "now"]),
            )
        )
    fields: dict[str, Any] = {
        "pods": draw(st.lists(a_pod(), max_size=4, unique_by=lambda found: found["metadata"]["name"])),
        "lost": draw(st.lists(A_LOSS, max_size=5, unique_by=lambda loss: loss.uid)) if raw["status"] else [],
        "kuberay": draw(st.sampled_from([True, True, True, False])),
        "rejected": draw(st.sampled_from(["", "", "", "no such field"])),
        "forbidden": draw(st.sampled_from(["", "", "", "exceeded quota: jobs", "a webhook says no"])),
        "accepted": draw(st.booleans()),
        "problem": draw(st.sampled_from(["", "", "", "spec.stop: nothing stops it"])),
        "ray_jobs": {},
    }
    if raw["status"].get("attempt") and draw(st.booleans()):
        found = ray_job(original)
        found["status"] = draw(RAY_JOB_STATUS)
        if draw(st.booleans()):
            found["metadata"]["deletionTimestamp"] = at(-5)
        fields["ray_jobs"] = {"pong-1": found}
        if found["status"].get("rayClusterName"):
            fields["ray_cluster"] = ray_cluster(found)
    fields["report"] = draw(st.none() | A_REPORT) if raw["status"] else None
    return raw, fields


def observed_of(raw: dict[str, Any], fields: dict[str, Any]) -> Any:
    """As the shell does it: which RayJob is the present one follows from the status."""
    rest, attempt = dict(fields), raw["status"].get("attempt")
    ray_jobs = dict(rest.pop("ray_jobs"))
    rest["ray_job"] = ray_jobs.pop(f"pong-{attempt}", None)
    rest["old_ray_jobs"] = tuple(ray_jobs.values())
    if rest["ray_job"] is None:
        rest["ray_cluster"] = None
    if rest["report"] is not None and rest["report"].attempt != attempt:
        rest["report"] = None
    problem = rest.pop("problem")
    return dataclasses.replace(observe(raw, **rest), problem=problem)


@QUICK
@given(a_world())
def test_every_decision(world):
    raw, fields = world
    before = copy.deepcopy(raw)
    decision = decide(observed_of(raw, fields), SETTINGS)
    assert raw == before, "observations are left as they are"
    status_validator().validate(decision.status)
    assert decision.requeue_s > 0
    created = [action for action in decision.actions if isinstance(action, actions.CreateRayJob)]
    assert len(created) <= 1
    assert len(decision.actions) == len({repr(action) for action in decision.actions}), "each action once"
    finished = [c for c in raw["status"].get("conditions", []) if (c["type"], c["status"]) == ("Complete", "True")]
    if finished:
        assert not created
    if created:
        assert decision.status["attempts"][-1].get("endedAt") is None
        assert created[0].manifest["metadata"]["name"] == f"pong-{decision.status['attempt']}"
    if decision.status.get("phase") == "Failed" and raw["metadata"]["annotations"].get(names.ANNOTATION_RESTART):
        return  # a wish that nothing answered yet is answered by beginning again
    again = decide(observed_of({**raw, "status": decision.status}, fields), SETTINGS)
    assert again.events == ()
    assert merge_patch(decision.status, again.status) == {}


# stories --------------------


DEEDS = st.sampled_from(
    [
        *("suspend", "resume", "restart", "checkpoint", "image", "scale", "delete-ray-job"),
        *("lose-head", "preempt-head", "lose-evaluator", "no-spot", "spot"),
        *("kill-operator", "kill-driver", "kuberay-away", "kuberay-back", "unreachable"),
    ]
)


def do(world: World, deed: str, number: int) -> None:
    """Something happens."""
    match deed:
        case "suspend" | "resume":
            world.edit(suspend=deed == "suspend")
        case "restart" | "checkpoint":
            world.annotate(f"rlcore.io/{deed}", str(number))
        case "image":
            world.edit(image=f"image:{number}")
        case "scale":
            world.edit(evaluators={"pools": [SPOT, BASE], "replicas": number % 9})
        case "lose-head" | "preempt-head" if world.pods_of("head"):
            world.lose_pod(oom=deed == "lose-head", disrupted=deed == "preempt-head")
        case "lose-evaluator" if world.pods_of("evaluator"):
            world.lose_pod(world.pods_of("evaluator")[0], disrupted=True)
        case "delete-ray-job":
            for name in list(world.ray_jobs):
                world.delete_ray_job(name)
        case "kill-operator" if world.operator is not None:
            world.operator, world.back_s = None, world.now_s + 5
        case "kill-driver":
            for driver in world.drivers.values():
                driver.exit_code = 1
        case "no-spot" | "spot":
            world.no_nodes = {"spot"} if deed == "no-spot" else set()
        case "kuberay-away" | "kuberay-back":
            world.kuberay = deed == "kuberay-back"
        case "unreachable":
            world.script.reachable = not world.script.reachable


@STORIES
@given(st.lists(st.tuples(st.integers(0, 40), DEEDS), max_size=12), st.booleans())
def test_whatever_happens_a_job_comes_to_an_end_in_order(story, answers):
    """Checked at every step: see operator_shell.py and World.run."""
    raw = raw_job(stop={"timesteps": 40_000}, restartPolicy={"maxRestarts": 2, "backoff": "1s"})
    world = World(raw, script=Script(answers=answers))
    for number, (seconds, deed) in enumerate(story):
        world.run(seconds)
        do(world, deed, number)
    world.run(3)
    world.script.reachable = world.kuberay = True
    world.no_nodes.clear()
    world.edit(suspend=False)
    world.run(1500, lambda world: world.status.get("phase") in ("Succeeded", "Failed"))
    assert world.status["phase"] in ("Succeeded", "Failed"), world.phases
    world.run(10)
    assert (world.ray_jobs, world.pods) == ({}, {})
    assert (world.status["phase"] == "Succeeded") == (world.storage.complete and "Failed" not in world.phases)
