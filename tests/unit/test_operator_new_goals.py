"""A job that has succeeded goes on when its goal is raised, and pools become ranges with an autoscaler."""

from __future__ import annotations

import pytest
from rljob_operator import names
from rljob_operator.settings import Settings

from tests.unit.operator_objects import BASE, decided, raw_job, ray_cluster, ray_job, report
from tests.unit.operator_world import World

FIXED_POOL = {**BASE, "minReplicas": 2, "maxReplicas": 2}
RANGE = {**BASE, "minReplicas": 2, "maxReplicas": 5}


def test_a_raised_goal_begins_a_complete_job_again_from_its_checkpoint() -> None:
    world = World(raw_job(stop={"timesteps": 30_000})).run_to("Succeeded").run(10)
    world.edit(stop={"timesteps": 60_000})
    world.run(3)
    assert world.told("NewGoal")
    world.run_to("Succeeded").run(5)
    assert world.created == ["pong-1", "pong-2"]
    assert world.status["training"]["timesteps"] == 60_000
    assert world.status["restarts"] == 0
    assert [attempt["reason"] for attempt in world.status["attempts"]] == ["Succeeded", "Succeeded"]


@pytest.mark.parametrize("stop", [{"timesteps": 20_000}, {"timesteps": 30_000, "wallClock": "5h"}])
def test_a_goal_that_is_reached_already_costs_no_pods(stop: dict[str, object]) -> None:
    world = World(raw_job(stop={"timesteps": 30_000})).run_to("Succeeded").run(10)
    world.edit(stop=stop)
    world.run(10)
    assert world.created == ["pong-1"]
    assert world.status["phase"] == "Succeeded"


def test_another_change_of_a_complete_job_begins_nothing() -> None:
    world = World(raw_job(stop={"timesteps": 30_000})).run_to("Succeeded").run(10)
    world.edit(ttlAfterFinished="3h")
    world.run(10)
    assert world.created == ["pong-1"]


def test_fixed_pools_that_become_ranges_get_an_autoscaler_with_new_pods() -> None:
    world = World(raw_job(evaluators={"pools": [FIXED_POOL]}, stop={"timesteps": 500_000})).run_to("Running").run(3)
    assert not world.ray_jobs["pong-1"]["spec"]["rayClusterSpec"].get("enableInTreeAutoscaling")
    world.edit(evaluators={"pools": [RANGE]})
    world.run(60)
    assert world.created == ["pong-1", "pong-2"]
    assert world.ray_jobs["pong-2"]["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"]
    assert world.reasons()[0] == "SpecChanged"
    assert world.status.get("restarts", 0) == 0


def test_an_operator_that_learns_to_autoscale_leaves_running_jobs_alone() -> None:
    without = Settings.model_validate({"autoscaler": {"enabled": False}})
    raw = raw_job(evaluators={"pools": [RANGE]})
    raw["status"] = {"attempt": 1, "attempts": [{"number": 1, "startedAt": "2026-01-01T00:00:00Z"}]}
    made = ray_job(raw, settings=without, jobDeploymentStatus="Running")
    assert made["metadata"]["annotations"][names.ANNOTATION_RANGES] == "true"
    decision = decided(raw, ray_job=made, ray_cluster=ray_cluster(made), report=report())
    assert decision.status["attempts"][-1].get("stoppingAt") is None


def test_with_version_1_the_longest_idle_time_out_is_for_all_pools() -> None:
    settings = Settings.model_validate({"autoscaler": {"version": "v1"}})
    pools = [{**RANGE, "name": "a", "idleTimeout": "30s"}, {**RANGE, "name": "b", "idleTimeout": "2m"}]
    spec = ray_job(raw_job(evaluators={"pools": pools}), settings=settings)["spec"]["rayClusterSpec"]
    assert spec["autoscalerOptions"]["idleTimeoutSeconds"] == 120
    assert not [group for group in spec["workerGroupSpecs"] if "idleTimeoutSeconds" in group]
