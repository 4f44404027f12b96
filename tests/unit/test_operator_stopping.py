"""Orderly ends: suspension, restarts and new pods on request, budgets; and checkpoints that people ask for."""

from __future__ import annotations

from typing import Any

import pytest
from rljob_operator import actions, names
from rljob_operator.provision import LIVE_FIELDS, spec_hash

from tests.unit.operator_driver import Script
from tests.unit.operator_objects import (
    NOW_S,
    SPOT,
    at,
    condition_of,
    decided,
    final,
    job,
    pod,
    raw_job,
    ray_job,
    report,
    understood,
)
from tests.unit.operator_world import World


def test_a_suspended_job_writes_a_checkpoint_gives_its_pods_back_and_goes_on_from_there():
    world = World(raw_job(stop={"timesteps": 60_000}), script=Script(checkpoint_every_s=1000)).run_to("Running").run(5)
    world.edit(suspend=True)
    asked_s = world.now_s
    world.run_to("Suspended")
    assert world.now_s - asked_s < 10
    assert (world.ray_jobs, world.pods) == ({}, {})
    trained = world.storage.timesteps
    assert trained > 5000, "all that was trained is in the checkpoint"
    assert world.status["checkpoint"]["timesteps"] == trained
    assert condition_of(world.status, "Suspended")["status"] == "True"
    assert condition_of(world.status, "Provisioned")["status"] == "False"
    world.run(200)
    world.edit(suspend=False)
    world.run_to("Running")
    assert world.status["training"]["timesteps"] >= trained
    world.run_to("Succeeded")
    assert world.phases == ["Provisioning", "Running", "Suspended", "Provisioning", "Running", "Succeeded"]
    assert world.reasons() == ["Suspended", "Succeeded"]
    assert world.status.get("restarts", 0) == 0


def test_a_driver_that_does_not_answer_is_not_waited_for_for_ever():
    world = World(raw_job(stop={"timesteps": 10**9}), script=Script(answers=False)).run_to("Running").run(5)
    world.edit(suspend=True)
    asked_s = world.now_s
    world.run(30)
    assert world.ray_jobs, "it is being waited for"
    assert condition_of(world.status, "Suspended")["reason"] == "Checkpointing"
    world.run_to("Suspended")
    assert world.now_s - asked_s == pytest.approx(60, abs=3)


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({"report": report(when=10), "pods": [pod("head")]}, True),
        ({"report": report("Recovering", when=10), "pods": [pod("head")]}, True),
        ({"report": report("Starting", when=10), "pods": [pod("head")]}, False),
        ({"report": None, "pods": [pod("head")]}, False),
        ({"report": report(when=10), "pods": []}, False),
        ({"report": report(when=10), "pods": [pod("head", deleted_at=0)]}, False),
    ],
    ids=["trains", "recovers", "has nothing to save", "never answered", "head lost", "head going"],
)
def test_only_a_driver_that_can_save_is_waited_for(fields, waits):
    raw = _running_job(suspend=True)
    decision = decided(raw, after=10, ray_job=ray_job(raw, jobDeploymentStatus="Running"), **fields)
    deletes = [action for action in decision.actions if isinstance(action, actions.DeleteRayJob)]
    assert (not deletes) is waits
    assert decision.status["attempts"][0]["stoppingAt"] == at(10)


def _running_job(**spec: Any) -> dict[str, Any]:
    status = {
        "phase": "Running",
        "attempt": 1,
        "attempts": [{"number": 1, "startedAt": at(0)}],
        "startedAt": at(0),
        "rayJob": "pong-1",
    }
    return raw_job(status=status, **spec)


def test_a_job_that_is_born_suspended_waits():
    world = World(raw_job(suspend=True, stop={"timesteps": 10_000})).run(30)
    assert (world.phases, world.created) == (["Suspended"], [])
    world.edit(suspend=False)
    world.run_to("Succeeded")


def test_a_wish_that_is_taken_back_while_the_attempt_ends_begins_a_new_one():
    world = World(raw_job(), script=Script(answers=False)).run_to("Running").run(5)
    world.edit(suspend=True)
    world.run(10)
    world.edit(suspend=False)
    world.run_to("Succeeded")
    assert world.reasons() == ["Suspended", "Succeeded"]


def test_success_that_comes_while_the_job_is_being_suspended_is_success():
    world = World(raw_job(stop={"timesteps": 20_000}), script=Script(answers=False)).run_to("Running")
    world.run(60, lambda world: world.storage.complete)
    world.edit(suspend=True)
    world.run_to("Succeeded")
    assert "Suspended" not in world.phases
    assert world.created == ["pong-1"]


@pytest.mark.parametrize("said", [final(), None], ids=["said again", "only written down"])
def test_success_that_was_written_down_outlives_a_suspension(said):
    raw = _running_job(suspend=True)
    raw["status"]["attempts"][0]["reason"] = "Succeeded"
    made = ray_job(raw, jobDeploymentStatus="Running")
    told = report("Succeeded", final=said) if said else None
    decision = decided(raw, ray_job=made, pods=[pod("head")], report=told)
    assert decision.status["attempts"][0]["reason"] == "Succeeded"
    assert "stoppingAt" not in decision.status["attempts"][0]


def test_a_driver_that_fails_while_it_is_being_stopped_costs_nothing():
    raw = _running_job(suspend=True)
    raw["status"]["attempts"][0] |= {"stoppingAt": at(0), "reason": "Suspended"}
    made = ray_job(raw, jobDeploymentStatus="Failed", jobStatus="FAILED", reason="AppFailed", message="exit code 143")
    decision = decided(raw, ray_job=made)
    assert decision.status["phase"] == "Suspended"
    assert decision.status.get("restarts", 0) == 0


# new pods --------------------


def test_changed_pods_checkpoint_are_made_anew_and_resume():
    world = World(raw_job(stop={"timesteps": 60_000})).run_to("Running").run(5)
    world.edit(head={"resources": {"cpu": 4, "memory": "16Gi"}})
    world.run_to("Provisioning")
    trained = world.storage.timesteps
    world.run_to("Running")
    head = world.ray_jobs["pong-2"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert head["resources"]["limits"]["memory"] == "16Gi"
    assert world.status["training"]["timesteps"] >= trained
    assert world.reasons() == ["SpecChanged"]
    assert len(world.told("SpecChanged")) == 1


CHANGES: list[tuple[str, dict[str, Any], bool]] = [
    ("head", {"head": {"resources": {"cpu": 4}}}, True),
    ("image", {"image": "mine:2"}, True),
    ("learner", {"learner": {"gpus": 1}}, True),
    ("a pool's resources", {"evaluators": {"pools": [{**SPOT, "resources": {"cpu": 8}}]}}, True),
    ("another pool", {"evaluators": {"pools": [SPOT, {"name": "more", "maxReplicas": 1}]}}, True),
    ("the order of pools", {"evaluators": {"pools": [{"name": "base", "maxReplicas": 1}, SPOT]}}, True),
    ("pool sizes", {"evaluators": {"pools": [{**SPOT, "minReplicas": 0, "maxReplicas": 99}]}}, False),
    ("replicas", {"evaluators": {"pools": [SPOT], "replicas": 7}}, False),
    ("no replicas", {"evaluators": {"pools": [SPOT], "replicas": None}}, False),
    ("stop", {"stop": {"timesteps": 7}}, False),
    ("suspend", {"suspend": True}, False),
    ("budget", {"budget": {"pricePerHour": {"spot": 1}}}, False),
    ("restartPolicy", {"restartPolicy": {"maxRestarts": 9}}, False),
    ("deadlines", {"activeDeadline": "1d", "provisioningDeadline": "1h", "stallTimeout": "1h"}, False),
    ("times to live", {"ttlAfterFinished": "1h", "ttlAfterFailed": "1h"}, False),
]


@pytest.mark.parametrize(("changes", "anew"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_which_changes_need_new_pods(changes, anew):
    before = job(evaluators={"pools": [SPOT]})
    after = job(**{"evaluators": {"pools": [SPOT]}, **changes})
    assert (spec_hash(after) != spec_hash(before)) is anew


def test_kubectl_scale_needs_no_new_pods_even_where_the_manifest_says_nothing_of_evaluators():
    raw = raw_job()
    del raw["spec"]["evaluators"]
    before = spec_hash(understood(raw))
    raw["spec"]["evaluators"] = {"replicas": 3}
    assert spec_hash(understood(raw)) == before


def test_the_fields_that_apply_live_exist():
    assert set(type(job().spec).model_fields) >= LIVE_FIELDS


def test_a_restart_on_request_happens_once():
    world = World(raw_job(stop={"timesteps": 80_000})).run_to("Running").run(5)
    world.annotate(names.ANNOTATION_RESTART, "please")
    world.run_to("Succeeded")
    assert world.reasons() == ["RestartRequested", "Succeeded"]
    assert world.status.get("restarts", 0) == 0


@pytest.mark.parametrize("value", ["x" * 5000, "ü" * 5000], ids=["long", "long and not ASCII"])
@pytest.mark.parametrize("annotation", [names.ANNOTATION_RESTART, names.ANNOTATION_CHECKPOINT])
def test_requests_of_any_length_are_answered_once(annotation, value):
    world = World(raw_job(stop={"timesteps": 80_000})).run_to("Running").run(5)
    world.annotate(annotation, value)
    world.run(30)
    assert len([event for event in world.events if annotation in event.message]) == 1
    world.run_to("Succeeded")


def test_a_restart_that_was_asked_for_before_the_job_began_is_answered_by_its_beginning():
    world = World(raw_job(annotations={names.ANNOTATION_RESTART: "copied"}, stop={"timesteps": 10_000}))
    world.run_to("Succeeded")
    assert world.created == ["pong-1"]


# checkpoints --------------------


def test_a_checkpoint_on_request():
    world = World(raw_job(), script=Script(checkpoint_every_s=1000)).run_to("Running").run(5)
    assert world.storage.time_s is None
    world.annotate(names.ANNOTATION_CHECKPOINT, "before lunch")
    touched = len(world.touched)
    world.run(4)
    assert world.storage.time_s is not None
    assert len(world.touched) > touched, "the kubelet brings the ConfigMap at once"
    assert world.status["requests"]["checkpoint"] == "before lunch"
    world.run(10)
    assert world.control()["checkpointRequest"] is None
    asked = [message for message in world.told("CheckpointWritten") if "asked for" in message]
    assert len(asked) == 1


def test_a_learner_that_is_to_go_is_waited_for_until_its_weights_are_saved():
    world = World(raw_job(), script=Script(checkpoint_every_s=1000)).run_to("Running").run(5)
    (learner,) = world.pods_of(names.LEARNER)
    going = world.pods[learner]
    going["metadata"] |= {"deletionTimestamp": at(1000), "deletionGracePeriodSeconds": 30}
    world.tell("pods", going)
    world.run(1)
    token = f"learner-{going['metadata']['uid']}"
    assert world.control()["checkpointRequest"] == token
    world.run(4)
    assert world.drivers
    assert world.storage.time_s is not None
    assert world.control()["checkpointRequest"] is None


def test_a_checkpoint_that_is_asked_for_while_nothing_runs_is_written_when_something_does():
    world = World(raw_job(suspend=True), script=Script(checkpoint_every_s=1000)).run(5)
    world.annotate(names.ANNOTATION_CHECKPOINT, "1")
    world.run(20)
    world.edit(suspend=False)
    world.run_to("Running").run(5)
    assert world.status["requests"]["checkpoint"] == "1"


# budget --------------------


def test_a_job_that_has_cost_enough_is_checkpointed_and_suspended_and_goes_on_with_more():
    prices = {"head": 36.0, "spot": 18.0, "base": 18.0, "learner": 18.0}  # 0.03 a second with all pods
    budget = {"pricePerHour": prices, "maximumCost": 1.2}
    world = World(raw_job(stop={"timesteps": 80_000}, budget=budget)).run_to("Suspended")
    assert condition_of(world.status, "Suspended")["reason"] == "BudgetExhausted"
    assert "1.2 USD" in condition_of(world.status, "Suspended")["message"]
    assert world.status["cost"]["amount"] == pytest.approx(1.2, rel=0.15)
    assert world.storage.timesteps > 20_000
    world.run(100)
    assert world.status["cost"]["amount"] == pytest.approx(1.3, rel=0.1), "no pods, no cost"
    world.edit(budget={**budget, "maximumCost": 1000})
    world.run_to("Succeeded")
    assert world.reasons() == ["BudgetExhausted", "Succeeded"]


def test_cost_is_the_price_of_running_pods_over_time_however_often_it_is_looked_at():
    raw = _running_job(budget={"pricePerHour": {"head": 3600.0}})
    made = ray_job(raw, jobDeploymentStatus="Running")
    for moment in [0.0, *[1 + 0.1 * i for i in range(90)], 10.0]:
        raw["status"] = decided(raw, after=moment, ray_job=made, pods=[pod("head")]).status
    assert raw["status"]["cost"] == {
        "amount": pytest.approx(10.0),
        "perHour": 3600.0,
        "currency": "USD",
        "observedAt": at(10),
    }


def test_pods_that_wait_or_end_cost_nothing():
    raw = _running_job(budget={"pricePerHour": {"head": 1, "spot": 10}})
    pods = [
        pod("head"),
        pod("evaluator", "a", pool="spot"),
        pod("evaluator", "b", pool="spot", phase="Pending"),
        pod("evaluator", "c", pool="spot", phase="Failed"),
        pod("evaluator", "d", pool="base"),
    ]
    decision = decided(raw, ray_job=ray_job(raw, jobDeploymentStatus="Running"), pods=pods)
    assert decision.status["cost"]["perHour"] == 11


def test_the_shell_looks_again_when_the_budget_will_be_used_up():
    raw = _running_job(budget={"pricePerHour": {"head": 3600}, "maximumCost": 20}, stallTimeout=None)
    made = ray_job(raw, jobDeploymentStatus="Initializing")
    raw["status"] = decided(raw, ray_job=made, pods=[pod("head")]).status
    assert decided(raw, after=5, ray_job=made, pods=[pod("head")]).requeue_s == pytest.approx(15)
    assert int(NOW_S) == NOW_S
