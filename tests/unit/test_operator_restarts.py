"""What becomes of a job whose driver, head, pods or RayJob are lost: what is free, what counts, what ends it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from rljob_operator import actions, names
from rljob_operator.draft import Decision
from rljob_operator.timestamps import to_seconds

from tests.unit.operator_driver import Script
from tests.unit.operator_objects import (
    at,
    checkpoint,
    condition_of,
    decided,
    final,
    lost,
    pod,
    raw_job,
    ray_cluster,
    ray_job,
    report,
)
from tests.unit.operator_world import World


def open_status(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "phase": "Running",
        "attempt": number,
        "attempts": [{"number": number, "startedAt": at(0)}],
        "startedAt": at(0),
        "rayJob": f"pong-{number}",
        **fields,
    }


def ended_ray_job(raw: dict[str, Any], message: str = "", reason: str = "AppFailed", **status: Any) -> dict[str, Any]:
    more = {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": reason, "message": message, **status}
    return ray_job(raw, raw["status"]["attempt"], **more)


def running(raw: dict[str, Any], **fields: Any) -> Decision:
    made = ray_job(raw, raw["status"]["attempt"], jobDeploymentStatus="Running", jobStatus="RUNNING")
    return decided(raw, **{"ray_job": made, "ray_cluster": ray_cluster(made), "pods": [pod("head")], **fields})


# application failures --------------------


def test_an_application_failure_counts_backs_off_and_goes_on_from_the_checkpoint():
    world = World(raw_job(), script=Script(failures=1)).run_to("Recovering")
    failed_s = world.now_s
    assert world.reasons() == ["ApplicationFailed"]
    assert world.status["restarts"] == 1
    assert world.status["lastFailure"]["message"] == "NaN in the loss"
    assert world.status["lastFailure"]["exitCode"] == 3
    world.run(60, lambda world: len(world.created) == 2)
    assert world.now_s - failed_s == pytest.approx(10, abs=1)
    world.run_to("Succeeded")
    assert world.phases == ["Provisioning", "Running", "Recovering", "Running", "Succeeded"]
    assert world.created == ["pong-1", "pong-2"]


def test_back_off_doubles_up_to_its_maximum():
    policy = {"maxRestarts": 5, "backoff": "10s", "maxBackoff": "35s"}
    world = World(raw_job(restartPolicy=policy), script=Script(failures=99)).run_to("Failed", 3000)
    attempts = world.status["attempts"]
    assert len(world.created) == 6
    waits = [_seconds(b["startedAt"]) - _seconds(a["endedAt"]) for a, b in itertools.pairwise(attempts)]
    assert waits == pytest.approx([10, 20, 35, 35, 35], abs=1.5)


def _seconds(text: str) -> float:
    found = to_seconds(text)
    assert found is not None
    return found


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_job_fails_when_its_restarts_are_used_up(restarts):
    script = Script(failures=restarts + 1)
    world = (
        World(raw_job(restartPolicy={"maxRestarts": restarts, "backoff": "1s"}), script=script).run_to("Failed").run(5)
    )
    assert len(world.created) == restarts + 1
    failed = condition_of(world.status, "Failed")
    assert (failed["status"], failed["reason"]) == ("True", "ApplicationFailed")
    assert failed["message"].startswith("NaN in the loss")
    assert condition_of(world.status, "Complete")["status"] == "False"
    assert (world.ray_jobs, world.pods) == ({}, {})


@pytest.mark.parametrize(("exit_code", "reason"), [(2, "ConfigInvalid"), (42, "PermanentExitCode")])
def test_what_no_restart_can_mend_fails_the_job_at_once(exit_code, reason):
    world = World(
        raw_job(restartPolicy={"permanentExitCodes": [42]}), script=Script(failures=1, exit_code=exit_code)
    ).run_to("Failed")
    assert world.reasons() == [reason]
    assert len(world.created) == 1


def test_the_last_lines_of_the_log_are_in_the_status():
    raw = raw_job(status=open_status())
    log = "Job entrypoint command failed with exit code 3, logs:\n" + "\n".join(f"line {i}" for i in range(5000))
    decision = decided(raw, ray_job=ended_ray_job(raw, log))
    failure = decision.status["lastFailure"]
    assert failure["message"] == "line 4999"
    assert len(failure["logTail"]) == 8000
    assert failure["logTail"].endswith("line 4999")


def test_how_a_driver_ended_outlives_the_operator_that_read_it():
    """The operator wrote it down, told the driver so, and was killed before the RayJob ended."""
    raw = raw_job(status=open_status())
    said = final("Failed", 3, "OutOfMemory", "CUDA out of memory")
    raw["status"] = running(raw, report=report("Failed", final=said)).status
    assert raw["status"]["attempts"][0]["reason"] == raw["status"]["lastFailure"]["class"] == "OutOfMemory"
    decision = decided(raw, ray_job=ended_ray_job(raw, "Job entrypoint command failed with exit code 3, logs:\n"))
    assert decision.status["attempts"][0]["reason"] == "OutOfMemory"
    assert decision.status["lastFailure"]["message"].startswith("CUDA out of memory; raise the memory")


def test_the_word_of_a_driver_whose_head_was_lost_is_forgotten_when_the_next_one_trains():
    raw = raw_job(status=open_status())
    raw["status"] = running(raw, report=report("Failed", final=final("Failed", 3, "OutOfMemory", "no memory"))).status
    raw["status"] = running(raw, report=report("Running")).status
    decision = decided(raw, ray_job=ended_ray_job(raw, "Job entrypoint command failed with exit code 1, logs:\nbug"))
    assert decision.status["attempts"][0]["reason"] == "ApplicationFailed"


# free restarts --------------------


def test_a_deleted_ray_job_is_made_again_for_free_as_long_as_checkpoints_advance():
    world = World(raw_job(stop={"timesteps": 300_000}, restartPolicy={"maxRestarts": 0}))
    for attempt in (1, 2, 3):
        world.run(60, lambda world: world.status.get("phase") == "Running").run(25)
        world.delete_ray_job(f"pong-{attempt}")
        world.run(5)
    world.run_to("Succeeded")
    assert world.reasons() == ["RayJobDeleted"] * 3 + ["Succeeded"]
    assert world.status["restarts"] == 0


def test_without_a_new_checkpoint_a_free_restart_counts():
    world = World(raw_job(), script=Script(checkpoint_every_s=1000))
    for attempt in (1, 2):
        world.run(60, lambda world: world.status.get("phase") == "Running")
        world.delete_ray_job(f"pong-{attempt}")
        world.run(5)
    assert [attempt["counted"] for attempt in world.status["attempts"][:2]] == [False, True]
    assert "no checkpoint was written since the last restart" in world.status["lastFailure"]["message"]


def test_what_follows_a_suspension_is_not_held_up_to_its_checkpoint():
    first = {"number": 1, "startedAt": at(0), "endedAt": at(50), "reason": "Suspended", "timesteps": 5000}
    second = {"number": 2, "startedAt": at(60)}
    raw = raw_job(
        status=open_status(2, attempts=[first, second], checkpoint={"timesteps": 5000, "time": at(50)}),
        restartPolicy={"maxRestarts": 0},
    )
    decision = decided(raw, after=70)
    assert decision.status["attempts"][1]["reason"] == "RayJobDeleted"
    assert decision.status["attempts"][1]["counted"] is False


def test_the_newest_checkpoint_is_the_drivers_not_the_one_last_written_into_the_status():
    """Numbers are written once a minute; what counts is what is known."""
    first = {"number": 1, "startedAt": at(0), "endedAt": at(50), "reason": "Stalled", "timesteps": 5000}
    raw = raw_job(status=open_status(2, attempts=[first, {"number": 2, "startedAt": at(60)}]))
    decision = decided(raw, after=99, report=report(attempt=2, checkpoint=checkpoint(9000, when=95)))
    assert decision.status["attempts"][1]["counted"] is False
    assert decision.status["attempts"][1]["timesteps"] == 9000


# heads --------------------


@pytest.mark.parametrize("how", [{"disrupted": True}, {"oom": True}, {}])
def test_a_lost_head_comes_back_inside_the_same_attempt(how):
    world = World(raw_job()).run_to("Running").run(12)
    world.lose_pod(**how)
    world.run_to("Recovering").run_to("Succeeded")
    assert world.created == ["pong-1"]
    assert world.phases == ["Provisioning", "Running", "Recovering", "Running", "Succeeded"]
    assert world.status.get("preemptions", 0) == int("disrupted" in how)
    assert world.status.get("restarts", 0) == 0
    assert len(world.told("HeadLost")) == 1


def test_a_head_lost_twice_without_a_checkpoint_in_between_ends_the_attempt():
    world = World(raw_job(), script=Script(checkpoint_every_s=1000)).run_to("Running")
    world.lose_pod(oom=True)
    world.run_to("Recovering").run_to("Running")
    world.lose_pod(oom=True)
    world.run_to("Recovering").run(3)
    assert world.reasons() == ["OutOfMemory"]
    assert world.status["restarts"] == 1
    failure = world.status["lastFailure"]
    assert "2 times without a new checkpoint" in failure["message"]
    assert "raise the memory" in failure["message"]
    assert failure["exitCode"] == 137
    assert not world.ray_jobs


def test_heads_that_die_before_the_driver_was_ever_submitted_end_the_attempt_too():
    """KubeRay alone would make new ones for ever."""
    raw = raw_job(status=open_status())
    made = ray_job(raw, jobDeploymentStatus="Initializing")
    losses = [lost("Crashed", uid=uid, when=5, exit_code=1, message="bad image") for uid in ("a", "b")]
    decision = decided(raw, after=10, ray_job=made, lost=losses)
    assert decision.status["attempts"][0]["reason"] == "HeadCrashed"
    assert decision.status["lastFailure"]["pod"] == "b"


@pytest.mark.parametrize(
    ("losses", "written_at", "ends"),
    [
        ([("OutOfMemory", 10), ("OutOfMemory", 20)], None, True),
        ([("OutOfMemory", 10), ("Crashed", 20)], None, True),
        ([("OutOfMemory", 10), ("OutOfMemory", 20)], 5, True),
        ([("OutOfMemory", 10), ("OutOfMemory", 20)], 15, False),
        ([("OutOfMemory", 10), ("Preempted", 20)], None, False),
        ([("Preempted", 10), ("Evicted", 20), ("NodeLost", 30), ("Deleted", 40)], None, False),
        ([("OutOfMemory", -20), ("OutOfMemory", 20)], None, False),
    ],
    ids=[
        "twice",
        "two kinds",
        "a checkpoint before",
        "a checkpoint between",
        "preempted once",
        "disruptions only",
        "an earlier attempt's",
    ],
)
def test_heads_lost_without_progress(losses, written_at, ends):
    written = [
        {"uid": f"u{when}", "pod": f"p{when}", "role": "head", "class": kind, "time": at(when)} for kind, when in losses
    ]
    status = open_status(losses=written)
    if written_at is not None:
        status["checkpoint"] = {"timesteps": 10, "time": at(written_at)}
    decision = running(raw_job(status=status), after=50, report=report(when=50))
    assert bool(decision.status["attempts"][0].get("endedAt")) is ends


def test_head_losses_are_remembered_however_many_evaluators_are_lost_meanwhile():
    raw = raw_job(status=open_status())
    raw["status"] = running(raw, after=2, lost=[lost("OutOfMemory", uid="h1", when=1)]).status
    many = [lost("Preempted", "evaluator", f"e{i}", when=2) for i in range(300)]
    raw["status"] = running(raw, after=3, lost=[lost("OutOfMemory", uid="h1", when=1), *many]).status
    assert raw["status"]["preemptions"] == 300
    losses = [lost("OutOfMemory", uid="h1", when=1), *many, lost("OutOfMemory", uid="h2", when=4)]
    decision = running(raw, after=5, lost=losses)
    assert decision.status["attempts"][0]["reason"] == "OutOfMemory"
    assert decision.status["preemptions"] == 300


def test_a_head_that_does_not_come_back_ends_the_attempt():
    raw = raw_job(status=open_status(conditions=[_condition("Training", "False", at(-900), "NotStarted")]))
    first = running(raw, after=1, pods=[])
    assert first.status["phase"] == "Recovering", "since now, whatever the conditions were before"
    raw["status"] = first.status
    assert running(raw, after=300, pods=[]).status["phase"] == "Recovering"
    over = running(raw, after=302, pods=[])
    assert over.status["attempts"][0]["reason"] == "HeadLost"
    assert over.status["attempts"][0]["counted"] is False
    blamed = running(raw, after=302, pods=[], lost=[lost("OutOfMemory", when=1, exit_code=137)])
    assert blamed.status["attempts"][0]["reason"] == "OutOfMemory"
    assert blamed.status["attempts"][0]["counted"] is True


def _condition(kind: str, status: str, since: str, reason: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": since}


def test_the_head_of_a_dead_node_is_force_deleted_but_not_at_once():
    raw = raw_job(status=open_status())
    gone = pod("head", deleted_at=0, grace_s=10, conditions=[_disruption("DeletionByTaintManager")])
    assert not _forced(running(raw, after=39, pods=[gone]))
    assert _forced(running(raw, after=41, pods=[gone])) == [actions.ForceDeletePod("head", "uid-head")]
    alive = pod("head", deleted_at=0, grace_s=10)
    assert not _forced(running(raw, after=400, pods=[alive])), "its node answers: it will end by itself"


def _disruption(reason: str) -> dict[str, Any]:
    return {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m"}


def _forced(decision: Decision) -> list[actions.Action]:
    return [action for action in decision.actions if isinstance(action, actions.ForceDeletePod)]


# losses --------------------


def test_each_lost_pod_is_counted_once():
    world = World(raw_job(stop={"timesteps": 400_000})).run_to("Running")
    for pool in ("spot", "base"):
        world.lose_pod(world.pods_of(names.EVALUATOR, pool)[0], disrupted=True)
        world.run(5)
        world.start_operator()
        world.run(5)
    assert world.status["preemptions"] == 2
    assert len(world.told("EvaluatorLost")) == 2


def test_pods_lost_together_are_one_event():
    raw = raw_job(status=open_status())
    many = [lost("Preempted", "evaluator", f"e{i}") for i in range(5)] + [lost("NodeLost", "learner", "l")]
    events = [event for event in running(raw, lost=many).events if event.reason.endswith("Lost")]
    assert [(event.kind, event.reason, event.message) for event in events] == [
        ("Normal", "EvaluatorLost", "pods e0, e1, e2 and 2 more: Preempted: it was lost"),
        ("Warning", "LearnerLost", "pod l: NodeLost: it was lost"),
    ]


@pytest.mark.parametrize(
    ("changes", "loss"),
    [
        ({}, lost("Deleted", "evaluator")),
        ({}, lost("Preempted", "evaluator", attempt=9)),
        ({"stoppingAt": at(5), "reason": "Suspended"}, lost("Preempted", "evaluator")),
        ({"reason": "Succeeded"}, lost("Preempted", "head")),
        ({"endedAt": at(5), "reason": "Stalled"}, lost("Preempted", "head")),
    ],
    ids=["a pool became smaller", "an earlier attempt's", "given back", "after success", "after the end"],
)
def test_pods_that_go_as_they_should_are_not_lost(changes, loss):
    raw = raw_job(status=open_status(attempts=[{"number": 1, "startedAt": at(0), **changes}]))
    status = running(raw, after=6, lost=[loss]).status
    assert "preemptions" not in status
    assert "losses" not in status


# stalls and ends of all attempts --------------------


@pytest.mark.parametrize(
    ("phase", "still", "stalled"),
    [("Running", 121, True), ("Starting", 121, True), ("Running", 119, False), ("Recovering", 999, False)],
)
def test_a_driver_that_trains_nothing_for_too_long_is_restarted(phase, still, stalled):
    raw = raw_job(status=open_status(), stallTimeout="2m")
    decision = running(raw, report=report(phase, still=still))
    assert (decision.status["attempts"][0].get("reason") == "Stalled") is stalled
    if stalled:
        assert decision.status["restarts"] == 1


def test_a_stalled_job_without_a_limit_is_left_alone():
    decision = running(raw_job(status=open_status(), stallTimeout=None), report=report(still=1e6))
    assert decision.status["phase"] == "Running"


def test_attempts_run_to_999():
    ended = {"number": 999, "startedAt": at(0), "endedAt": at(1), "reason": "HeadLost"}
    decision = decided(raw_job(status={"attempt": 999, "attempts": [ended]}), after=500)
    assert decision.status["phase"] == "Failed"
    assert condition_of(decision.status, "Failed")["reason"] == "AttemptsExhausted"


def test_the_last_ten_attempts_are_kept():
    attempts = [
        {"number": n, "startedAt": at(n), "endedAt": at(n), "reason": "HeadLost", "timesteps": n} for n in range(1, 11)
    ]
    decision = decided(raw_job(status={"attempt": 10, "attempts": attempts}), after=500)
    assert [attempt["number"] for attempt in decision.status["attempts"]] == list(range(2, 12))


def test_the_next_attempt_waits_for_the_last_ray_job_to_be_gone_but_not_for_ever():
    ended = {"number": 1, "startedAt": at(0), "endedAt": at(10), "reason": "HeadLost"}
    raw = raw_job(status={"attempt": 1, "attempts": [ended]})
    old = ray_job(raw)
    waiting = decided(raw, after=20, ray_job=old)
    assert waiting.actions == (actions.DeleteRayJob("pong-1", "uid-pong-1"),)
    assert waiting.status["attempt"] == 1
    old["metadata"]["deletionTimestamp"] = at(10)
    assert decided(raw, after=129, ray_job=old).actions == ()
    assert decided(raw, after=131, ray_job=old).status["attempt"] == 2


def test_ray_jobs_of_earlier_attempts_are_deleted_whenever_they_are_seen():
    raw = raw_job(status=open_status(2))
    decision = decided(raw, ray_job=ray_job(raw, 2), old_ray_jobs=[ray_job(raw, 1)])
    assert actions.DeleteRayJob("pong-1", "uid-pong-1") in decision.actions


# a person helps --------------------


def test_a_failed_job_goes_on_when_a_person_says_so():
    world = World(raw_job(restartPolicy={"maxRestarts": 0}), script=Script(failures=1)).run_to("Failed").run(60)
    world.annotate(names.ANNOTATION_RESTART, "now")
    world.run_to("Succeeded")
    assert condition_of(world.status, "Failed") == {}
    assert world.created == ["pong-1", "pong-2"]
    assert world.status["restarts"] == 0


def test_a_restart_after_the_active_deadline_begins_a_new_one():
    world = World(raw_job(activeDeadline="20s"), script=Script(timesteps_per_s=100)).run_to("Failed").run(60)
    world.annotate(names.ANNOTATION_RESTART, "1")
    failed = len(world.told("ActiveDeadlineExceeded"))
    world.run(10)
    assert world.status["phase"] != "Failed"
    world.run_to("Failed", 60).run(60)
    assert len(world.told("ActiveDeadlineExceeded")) == failed + 1, "one value of the annotation is one restart"
