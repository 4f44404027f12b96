"""Live changes of pools: growth at once, shrinking after a drain; spot pools without nodes are made up for."""

from __future__ import annotations

from typing import Any

import pytest
from rljob_operator import actions, names
from rljob_operator.draft import Decision
from rljob_operator.settings import Settings

from tests.unit.operator_objects import (
    BASE,
    SPOT,
    at,
    condition_of,
    decided,
    pod,
    raw_job,
    ray_cluster,
    ray_job,
    report,
    unscheduled,
)
from tests.unit.operator_world import World

IMPATIENT = Settings.model_validate({"times": {"spotUnavailableSeconds": 20, "spotRetrySeconds": 60}})
FIXED = Settings.model_validate({"autoscaler": {"enabled": False}})


def sizes(world: World) -> dict[str, tuple[int, int, int]]:
    (cluster,) = world.ray_clusters.values()
    groups = cluster["spec"]["workerGroupSpecs"]
    return {g["groupName"]: (g["replicas"], g["minReplicas"], g["maxReplicas"]) for g in groups}


def test_pools_grow_and_shrink_while_training_goes_on():
    world = World(raw_job(stop={"timesteps": 500_000}), settings=FIXED).run_to("Running").run(3)
    assert sizes(world) == {"spot": (2, 2, 2), "base": (1, 1, 1), "learner": (1, 1, 1)}
    world.edit(evaluators={"pools": [{**SPOT, "minReplicas": 4}, BASE]})
    world.run(5)
    assert sizes(world)["spot"] == (4, 4, 4)
    assert world.status["evaluators"]["target"] == world.status["evaluators"]["ready"] == 5
    before = world.pods_of(names.EVALUATOR, "spot")
    world.edit(evaluators={"pools": [{**SPOT, "minReplicas": 1}, BASE]})
    world.run(10)
    assert sizes(world)["spot"] == (1, 1, 1)
    assert world.pods_of(names.EVALUATOR, "spot") == before[:1], "those go that the driver drained"
    (cluster,) = world.ray_clusters.values()
    assert cluster["spec"]["workerGroupSpecs"][0]["scaleStrategy"] == {"workersToDelete": []}
    assert world.created == ["pong-1"]
    assert world.reasons() == []
    assert len(world.told("PoolsResized")) == 2
    assert world.told("EvaluatorLost") == []


def test_kubectl_scale_is_spread_over_the_pools_and_can_be_taken_back():
    world = World(raw_job(stop={"timesteps": 500_000})).run_to("Running").run(3)
    pools = [SPOT, BASE]
    world.edit(evaluators={"pools": pools, "replicas": 6})
    world.run(10)
    assert sizes(world) == {"spot": (5, 5, 5), "base": (1, 1, 1), "learner": (1, 1, 1)}
    assert world.status["evaluators"]["replicas"] == 6
    world.edit(evaluators={"pools": pools, "replicas": None})
    world.run(10)
    assert sizes(world)["spot"] == (5, 2, 8), "the autoscaler decides again, from where it is"
    assert world.reasons() == []


# draining --------------------


def running(raw: dict[str, Any], replicas: int = 4, **fields: Any) -> Decision:
    """A job whose spot pool has pods e0, e1, ..."""
    raw["status"] = {
        "phase": "Running",
        "attempt": 1,
        "attempts": [{"number": 1, "startedAt": at(0)}],
        "startedAt": at(0),
        "rayJob": "pong-1",
        "observedGeneration": 1,
        **raw["status"],
    }
    made = ray_job(raw, settings=fields.get("settings", FIXED), jobDeploymentStatus="Running")
    cluster = ray_cluster(made)
    spot = cluster["spec"]["workerGroupSpecs"][0]
    spot |= {"replicas": replicas, "minReplicas": replicas, "maxReplicas": replicas, **fields.pop("group", {})}
    pods = [pod("head"), *(pod("evaluator", f"e{i}", pool="spot") for i in range(replicas))]
    return decided(raw, **{"ray_job": made, "ray_cluster": cluster, "pods": pods, "settings": FIXED, **fields})


def drained(*names_of_pods: str) -> list[dict[str, Any]]:
    return [{"pod": f"e{i}", "pool": "spot", "evaluators": int(f"e{i}" not in names_of_pods)} for i in range(4)]


def patched(decision: Decision) -> dict[str, Any]:
    """What becomes of the spot pool."""
    patches = [action for action in decision.actions if isinstance(action, actions.PatchRayCluster)]
    changes = [operation for action in patches for operation in action.patch if operation["op"] == "add"]
    return {o["path"].rpartition("/")[2]: o["value"] for o in changes if "/workerGroupSpecs/0/" in o["path"]}


SHRUNK = {"evaluators": {"pools": [SPOT, BASE]}}  # to two pods


def test_pods_go_when_the_driver_has_drained_them():
    decision = running(raw_job(**SHRUNK), report=report(evaluator_pods=drained("e1", "e3")))
    assert patched(decision) == {
        "replicas": 2,
        "minReplicas": 2,
        "maxReplicas": 2,
        "scaleStrategy": {"workersToDelete": ["e1", "e3"]},
    }


def test_pods_stay_while_the_driver_drains_them_and_go_all_the_same_after_a_while():
    raw = raw_job(**SHRUNK)
    waiting = running(raw, report=report(evaluator_pods=drained("e3")))
    assert patched(waiting) == {}
    assert actions.TouchPod("head") in waiting.actions
    assert waiting.status["evaluators"]["pools"][0]["drainingSince"] == at(0)
    assert waiting.requeue_s <= 1.0
    raw["status"] = waiting.status
    late = running(raw, after=61, report=report(evaluator_pods=drained("e3"), when=61))
    assert patched(late)["scaleStrategy"] == {"workersToDelete": ["e3"]}
    assert patched(late)["replicas"] == 2
    assert "drainingSince" not in late.status["evaluators"]["pools"][0]


@pytest.mark.parametrize("word", [None, report("Starting"), report("Paused")], ids=["none", "starting", "paused"])
def test_where_no_driver_drains_nobody_is_waited_for(word):
    assert patched(running(raw_job(**SHRUNK), report=word))["replicas"] == 2


def test_pods_that_are_gone_are_named_no_more():
    named = {"scaleStrategy": {"workersToDelete": ["gone"]}}
    assert patched(running(raw_job(**SHRUNK), 2, group=named)) == {"scaleStrategy": {"workersToDelete": []}}
    still = {"scaleStrategy": {"workersToDelete": ["e1"]}}
    assert patched(running(raw_job(**SHRUNK), 2, group=still)) == {}


def test_with_the_autoscaler_bounds_move_and_its_list_of_pods_is_left_alone():
    raw = raw_job(evaluators={"pools": [{**SPOT, "maxReplicas": 3}, BASE]})
    named = {"minReplicas": 2, "maxReplicas": 8, "scaleStrategy": {"workersToDelete": ["gone"]}}
    held = running(raw, settings=Settings(), group=named, report=report(evaluator_pods=drained()))
    assert patched(held) == {}
    over = running(raw, settings=Settings(), group=named, report=report(evaluator_pods=drained("e2")))
    assert patched(over) == {"maxReplicas": 3, "replicas": 3}


def test_a_cluster_that_is_being_deleted_is_left_alone():
    raw = raw_job(**SHRUNK)
    made = ray_job(raw, jobDeploymentStatus="Running")
    cluster = ray_cluster(made)
    cluster["metadata"]["deletionTimestamp"] = at(0)
    assert patched(running(raw, ray_cluster=cluster, ray_job=made)) == {}


def test_the_driver_is_told_the_sizes_that_are_wanted_now():
    world = World(raw_job(evaluators={"pools": [SPOT, BASE], "replicas": 5}), no_nodes={"spot"}).run(30)
    assert world.control()["evaluators"] == {
        "replicas": 5,
        "pools": {"spot": {"minReplicas": 4, "maxReplicas": 4}, "base": {"minReplicas": 1, "maxReplicas": 1}},
    }
    world.run(200)
    assert world.control()["evaluators"]["pools"] == {
        "spot": {"minReplicas": 0, "maxReplicas": 4},
        "base": {"minReplicas": 4, "maxReplicas": 4},
    }


# spot --------------------


def test_the_minimum_of_a_spot_pool_without_nodes_moves_to_on_demand_nodes_and_back():
    world = World(raw_job(stop={"timesteps": 10**7}), settings=FIXED, no_nodes={"spot"})
    world.run(170)
    assert world.phases == ["Provisioning"]
    world.run_to("Running", 60)
    assert sizes(world) == {"spot": (0, 0, 2), "base": (3, 3, 3), "learner": (1, 1, 1)}
    assert world.status["evaluators"]["pools"][0]["movedAt"]
    (message,) = world.told("SpotUnavailable")
    assert "pool spot got no node for 18" in message
    world.no_nodes.clear()
    world.run(620)
    assert sizes(world) == {"spot": (2, 2, 2), "base": (1, 1, 1), "learner": (1, 1, 1)}
    assert "movedAt" not in world.status["evaluators"]["pools"][0]
    assert world.created == ["pong-1"]


def test_an_autoscaled_spot_pool_that_gets_no_nodes_keeps_no_job_from_starting_and_is_retried():
    world = World(raw_job(stop={"timesteps": 10**7}), settings=IMPATIENT, no_nodes={"spot"}).run_to("Running", 60)
    assert sizes(world) == {"spot": (0, 0, 8), "base": (3, 3, 4), "learner": (1, 1, 1)}
    world.run(80, lambda world: world.told("SpotRetried"))
    assert sizes(world)["spot"] == (2, 2, 8)
    world.run(35)
    assert condition_of(world.status, "SpotUnavailable")["status"] == "True"
    assert sizes(world) == {"spot": (2, 0, 8), "base": (3, 3, 4), "learner": (1, 1, 1)}
    world.run(300)
    assert len(world.told("SpotUnavailable")) == 2, "its pods keep waiting: moving back and forth would only stir"
    world.no_nodes.clear()
    world.run(70)
    assert sizes(world) == {"spot": (2, 2, 8), "base": (3, 1, 4), "learner": (1, 1, 1)}
    assert condition_of(world.status, "SpotUnavailable") == {}
    assert world.created == ["pong-1"]


@pytest.mark.parametrize(
    ("since", "pools", "moved"),
    [
        (-179, [SPOT, BASE], False),
        (-180, [SPOT, BASE], True),
        (-1e5, [SPOT, {**BASE, "preemptible": True}], False),
    ],
    ids=["not yet", "now", "nowhere to"],
)
def test_when_a_pool_moves(since, pools, moved):
    waiting = pod("evaluator", pool="spot", phase="Pending", conditions=[unscheduled(since=since)])
    raw = raw_job(evaluators={"pools": pools})
    decision = running(raw, settings=Settings(), pods=[pod("head"), waiting], report=report())
    assert ("movedAt" in decision.status["evaluators"]["pools"][0]) is moved


def test_a_new_attempt_begins_with_the_pools_that_have_nodes():
    pools = [{"name": "spot", "movedAt": at(0)}, {"name": "base"}]
    ended = {"number": 1, "startedAt": at(0), "endedAt": at(1), "reason": "HeadLost"}
    raw = raw_job(status={"attempt": 1, "attempts": [ended], "evaluators": {"pools": pools}})
    (created,) = [a for a in decided(raw, after=200).actions if isinstance(a, actions.CreateRayJob)]
    spot, base, _ = created.manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (spot["replicas"], base["replicas"]) == (0, 3)
