"""Nodes, pods and evaluators in a cluster: tables of what is wanted where."""

import pytest

from rlcore.api import PoolLimits
from rlcore.driver.control import Control
from rlcore.driver.demand import JUDGE_EVERY_S, Demand, evaluator_bundles
from rlcore.driver.elasticity import (
    EvaluatorNode,
    evaluator_nodes,
    fewest_evaluators,
    learner_nodes,
    most_pods,
    wanted_evaluators,
)
from rlcore.driver.plan import Machine, fragment_length, make_plan
from rlcore.metrics.result import IterationResult
from tests.jobs import make_job


def ray_node(node: str, *, alive: bool = True, **resources: float) -> dict:
    return {
        "NodeID": node,
        "Alive": alive,
        "NodeManagerHostname": f"pod-{node}",
        "NodeManagerAddress": "192.0.2.1",
        "Resources": {name.replace("_", "-"): amount for name, amount in resources.items()},
    }


def pool(name: str, low: int, high: int, *, cpu: str = "1", preemptible: bool = False) -> dict:
    resources = {"cpu": cpu, "memory": "1Gi"}
    return {
        "name": name, "minReplicas": low, "maxReplicas": high, "preemptible": preemptible, "resources": resources
    }  # fmt: skip


def spec_of(*pools: dict, **evaluators):
    return make_job(evaluators={"envsPerEvaluator": 4, "pools": list(pools), **evaluators}).spec


TWO_POOLS = (pool("base", 1, 4), pool("spot", 2, 8, cpu="4", preemptible=True))


def test_evaluator_nodes_are_those_alive_with_their_pool():
    nodes = [
        ray_node("b", CPU=4, evaluator=4, pool_spot=4),
        ray_node("a", CPU=0.5, evaluator=1, pool_spot=1),
        ray_node("head", head=1),
        ray_node("gone", alive=False, CPU=1, evaluator=1, pool_spot=1),
        ray_node("l", CPU=8, GPU=2, learner=1),
        ray_node("c", CPU=2, evaluator=2),
    ]
    found = evaluator_nodes(nodes)
    assert [(n.node, n.pool, n.slots, n.cores_each, n.pod) for n in found] == [
        ("c", "", 2, 1.0, "pod-c"),
        ("a", "spot", 1, 0.5, "pod-a"),
        ("b", "spot", 4, 1.0, "pod-b"),
    ]
    assert [(n.node, n.cores, n.gpus) for n in learner_nodes(nodes)] == [("l", 8, 2)]


@pytest.mark.parametrize(
    ("pools", "control", "fewest"),
    [
        (TWO_POOLS, Control(), 1 + 2 * 4),
        (TWO_POOLS, Control(pools={"spot": PoolLimits(0, 8)}), 1),
        ((pool("spot", 0, 8),), Control(), 1),
    ],
)
def test_a_job_waits_for_the_minimums_and_for_one_evaluator_at_least(pools, control, fewest):
    assert fewest_evaluators(spec_of(*pools), control) == fewest


@pytest.mark.parametrize(
    ("control", "pods"),
    [
        (Control(), {"base": 4, "spot": 8}),
        (Control(pools={"spot": PoolLimits(0, 3)}), {"base": 4, "spot": 3}),
        (Control(replicas=3), {"base": 1, "spot": 2}),
        (Control(replicas=6), {"base": 1, "spot": 5}),
        (Control(replicas=11), {"base": 3, "spot": 8}),
        (Control(replicas=20), {"base": 4, "spot": 16}),
        (Control(replicas=0), {"base": 1, "spot": 2}),
        (Control(replicas=5, pools={"base": PoolLimits(0, 4), "spot": PoolLimits(0, 3)}), {"base": 2, "spot": 3}),
    ],
)
def test_how_many_pods_of_a_pool_may_hold_evaluators(control, pods):
    assert most_pods(spec_of(*TWO_POOLS), control) == pods


def nodes_of(pool_name: str, *names: str, slots: int = 2) -> list[EvaluatorNode]:
    return [EvaluatorNode(name, pool_name, slots, slots) for name in names]


@pytest.mark.parametrize(
    ("most", "holding", "wanted"),
    [
        ({"spot": 8}, {}, {"a": 2, "b": 2, "c": 2}),
        ({}, {}, {"a": 2, "b": 2, "c": 2}),
        ({"spot": 2}, {"a": 2, "b": 2, "c": 2}, {"a": 2, "b": 2, "c": 0}),
        ({"spot": 2}, {"a": 2, "b": 0, "c": 2}, {"a": 2, "b": 0, "c": 2}),
        ({"spot": 1}, {"a": 1, "b": 2}, {"a": 0, "b": 2, "c": 0}),
        ({"spot": 0}, {"a": 2}, {"a": 0, "b": 0, "c": 0}),
    ],
    ids=["room", "no limit", "drain one", "drain the empty one", "keep the fullest", "drain all"],
)
def test_whole_pods_are_drained_those_with_fewest_evaluators_first(most, holding, wanted):
    assert wanted_evaluators(nodes_of("spot", "a", "b", "c"), most, holding) == wanted


def test_a_pools_limit_is_its_own():
    nodes = [*nodes_of("base", "a"), *nodes_of("spot", "b", "c")]
    assert wanted_evaluators(nodes, {"base": 1, "spot": 1}, {}) == {"a": 2, "b": 2, "c": 0}


def test_an_elastic_job_starts_with_the_evaluators_that_are_there():
    spec = spec_of(*TWO_POOLS)
    machine = Machine(cores=1, gpus=0, cluster_evaluators=3, cluster_learner_gpus=0, elastic=True)
    plan = make_plan(spec, machine)
    assert plan.evaluators == 3
    assert plan.remote_learner


def test_fragments_fill_a_train_batch_whatever_the_number_of_evaluators():
    spec = spec_of(*TWO_POOLS)
    assert [fragment_length(spec, count) for count in (1, 2, 3, 200)] == [128, 64, 43, 1]


# what is asked of the autoscaler --------------------------------------------------


@pytest.mark.parametrize(
    ("control", "target", "asked"),
    [
        (Control(), 0, {"base": 1, "spot": 8}),
        (Control(), 12, {"base": 1, "spot": 11}),
        (Control(), 34, {"base": 2, "spot": 32}),
        (Control(), 1000, {"base": 4, "spot": 32}),
        (Control(pools={"spot": PoolLimits(0, 1), "base": PoolLimits(0, 2)}), 0, {"spot": 1}),
        (Control(pools={"spot": PoolLimits(0, 1), "base": PoolLimits(0, 2)}), 9, {"base": 2, "spot": 4}),
    ],
)
def test_minimums_are_asked_for_then_preemptible_pools_then_the_others(control, target, asked):
    bundles = evaluator_bundles(spec_of(*TWO_POOLS), control, target)
    assert all(bundle["evaluator"] == 1 for bundle in bundles)
    pools = [name.removeprefix("pool-") for bundle in bundles for name in bundle if name.startswith("pool-")]
    assert {name: pools.count(name) for name in pools} == asked


def iteration(sample_s: float, learn_s: float) -> IterationResult:
    return IterationResult(
        iteration=1, timesteps=10, timesteps_this_iteration=10, episodes=0, timesteps_per_s=1.0,
        sample_time_s=sample_s, learn_time_s=learn_s, wait_time_s=0.0, elapsed_s=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sample_s", "evaluators", "control", "asked"),
    [
        (0.9, 3, Control(), [1, 3, 6]),
        (0.5, 3, Control(), [1, 3]),
        (0.9, 7, Control(), [1, 7, 8]),
        (0.9, 3, Control(replicas=2), []),
    ],
    ids=["sampling-bound", "learning-bound", "at its limit", "a number was given"],
)
def test_more_is_asked_for_while_training_waits_for_samples(sample_s, evaluators, control, asked):
    now_s, requests = 0.0, []
    demand = Demand(spec_of(pool("spot", 0, 8)), requests.append, clock=lambda: now_s)
    demand.update(control, 0)
    for _ in range(3):
        demand.observe(iteration(sample_s, 1 - sample_s))
        demand.update(control, evaluators)
        now_s += JUDGE_EVERY_S / 2
    assert [len(bundles) for bundles in requests] == asked


def test_what_has_not_come_yet_is_not_asked_for_again():
    now_s, requests = 0.0, []
    demand = Demand(spec_of(pool("spot", 0, 100)), requests.append, clock=lambda: now_s)
    for _ in range(5):
        demand.observe(iteration(0.9, 0.1))
        demand.update(Control(), 3)
        now_s += JUDGE_EVERY_S
    assert [len(bundles) for bundles in requests] == [3, 6]
