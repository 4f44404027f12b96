"""Evaluators that come and go with their nodes: a real Ray, on which the nodes are names that the test makes up."""

import time
from collections.abc import Callable

import numpy as np
import pytest

from rlcore.driver.build import build
from rlcore.driver.plan import Machine, make_plan
from rlcore.errors import EnvironmentFailure, NoEvaluatorsError, UserError
from rlcore.evaluation import elastic_evaluators
from rlcore.evaluation.elastic_evaluators import ElasticEvaluators
from rlcore.evaluation.evaluator_set import GlobalState
from rlcore.sample_batch import DEFAULT_POLICY
from tests.jobs import make_evaluator_config, make_job, policy_version, pools

DEADLINE_S = 120.0
FRAGMENT = 16


class Cluster:
    """Nodes, and evaluators that follow them."""

    def __init__(self, **spec) -> None:
        self.wanted: dict[str, int] = {}
        self.on_starved: Callable[[], None] = lambda: None
        config = {"trainBatchSize": 512, "fragmentLength": FRAGMENT}
        evaluator_config = make_evaluator_config(**{"config": config, "evaluators": pools(1), **spec})
        self.options = {"deadly": {"num_cpus": 0, "runtime_env": {"env_vars": {"DEADLY": "1"}}}}
        self.evaluators = ElasticEvaluators(
            evaluator_config, lambda node: self.options.get(node, {"num_cpus": 0}), self.meanwhile
        )

    def meanwhile(self, starved: bool) -> None:
        self.evaluators.follow(self.wanted)
        if starved:
            self.on_starved()

    def begin(self, **wanted: int) -> ElasticEvaluators:
        self.wanted = wanted
        self.evaluators.begin(wanted)
        return self.evaluators

    def change(self, **wanted: int) -> None:
        self.wanted = wanted
        self.evaluators.follow(wanted)

    def wait_until(self, condition: Callable[[], object]) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end_s
            time.sleep(0.02)
            self.evaluators.follow(self.wanted)


@pytest.fixture
def cluster(local_ray):
    made = []

    def make(**spec) -> Cluster:
        made.append(Cluster(**spec))
        return made[-1]

    yield make
    for each in made:
        each.evaluators.stop()


def count(samples) -> dict[int, int]:
    indices = [sample.index for sample in samples]
    return {index: indices.count(index) for index in indices}


def test_a_new_nodes_evaluators_join_with_the_newest_weights_and_training_never_waits(cluster):
    made = cluster()
    evaluators = made.begin(a=1)
    weights = evaluators.foreach(lambda evaluator: evaluator.get_weights())[0]
    evaluators.set_global_state(GlobalState(weights, 7, 100, {}))
    made.change(a=1, b=1)
    assert evaluators.indices == [0]  # it is not up yet, and nobody waited for it
    assert count(evaluators.collect([0, 0])) == {0: 2}
    made.wait_until(lambda: evaluators.indices == [0, 1])
    assert evaluators.foreach(policy_version) == [7, 7]
    assert count(evaluators.collect([0, 1])) == {0: 1, 1: 1}
    evaluators.set_fragment_length(2 * FRAGMENT)
    one, two = evaluators.collect([0, 1])
    assert one.info.timesteps > 1.5 * FRAGMENT * 4
    assert two.info.timesteps > 1.5 * FRAGMENT * 4


def test_what_a_lost_node_owed_comes_from_the_others(cluster):
    made = cluster()
    evaluators = made.begin(a=1, b=1)
    for index in (0, 0, 1, 1):
        evaluators.request(index)
    made.change(a=1)
    samples = []
    while len(samples) < 4:
        samples += evaluators.wait_any(DEADLINE_S)
    assert count(samples) == {0: 4}
    assert evaluators.losses == 1
    assert evaluators.holding(leaving=True) == {"a": 1}


def test_an_evaluator_that_dies_is_replaced_in_the_background(cluster):
    import ray

    made = cluster()
    evaluators = made.begin(a=2)
    ray.kill(evaluators._actors[1])
    end_s = time.monotonic() + DEADLINE_S
    while not evaluators.losses:
        assert time.monotonic() < end_s
        assert len(evaluators.collect([0, 0, 1, 1])) == 4
    made.wait_until(lambda: evaluators.indices == [0, 1])
    assert count(evaluators.collect([0, 1])) == {0: 1, 1: 1}


def test_a_drained_evaluators_last_samples_are_used(cluster):
    made = cluster()
    evaluators = made.begin(a=2)
    for index in (0, 1):
        evaluators.request(index)
    made.change(a=1)
    assert evaluators.indices == [0]
    assert evaluators.holding(leaving=True) == {"a": 2}
    samples = []
    while len(samples) < 2:
        samples += evaluators.wait_any(DEADLINE_S)
    assert count(samples) == {0: 1, 1: 1}
    made.wait_until(lambda: evaluators.holding(leaving=True) == {"a": 1})
    assert evaluators.losses == 0


def test_where_nobody_is_left_the_wait_lasts_until_somebody_comes_or_it_is_ended(cluster):
    def give_up() -> None:
        raise NoEvaluatorsError("ten minutes are over")

    made = cluster()
    evaluators = made.begin(a=1)
    evaluators.request(0)
    made.change()
    made.on_starved = give_up
    with pytest.raises(NoEvaluatorsError):
        evaluators.wait_any(DEADLINE_S)
    made.on_starved = lambda: made.wanted.update(b=1)
    assert count(evaluators.wait_any(DEADLINE_S)) == {0: 1}
    assert evaluators.holding(leaving=True) == {"b": 1}


def test_an_environment_that_kills_every_evaluator_is_an_error(cluster, monkeypatch):
    monkeypatch.setattr(elastic_evaluators, "CONSECUTIVE_LOSSES", 1)
    evaluators = cluster(environment={"id": "tests.jobs:DeadlyEnv"}).begin(a=1)
    with pytest.raises(UserError, match=r"evaluator 1 died \d times in a row"):
        evaluators.collect([0])


def test_nodes_that_come_and_go_are_none(cluster):
    made = cluster()
    evaluators = made.begin(a=1)
    for number in range(6):
        made.options[f"b{number}"] = {"num_cpus": 0, "resources": {"nowhere": 1}}
        made.change(**{"a": 1, f"b{number}": 1})
        evaluators._replace(1, RuntimeError("its connection broke"))
    assert count(evaluators.collect([0])) == {0: 1}


def test_a_node_where_evaluators_only_die_is_left_alone(cluster, caplog, monkeypatch):
    monkeypatch.setattr(elastic_evaluators, "CONSECUTIVE_LOSSES", 1)
    made = cluster(environment={"id": "tests.jobs:DeadlyWhereToldEnv"})
    evaluators = made.begin(a=1, deadly=1)
    end_s = time.monotonic() + DEADLINE_S
    while "is left alone" not in caplog.text:
        assert time.monotonic() < end_s
        evaluators.collect(evaluators.indices)
        evaluators.follow(made.wanted)
    evaluators.follow(made.wanted)
    assert evaluators.holding(leaving=True) == {"a": 1}


def test_a_missing_environment_is_said_at_once(cluster):
    made = cluster(environment={"id": "tests.jobs:Nothing"})
    with pytest.raises(EnvironmentFailure, match="no callable 'Nothing'") as caught:
        made.begin(a=1)
    assert caught.value.permanent


def test_a_start_that_takes_too_long_is_not_waited_for(cluster, monkeypatch):
    monkeypatch.setattr(elastic_evaluators, "START_DEADLINE_S", 0.0)
    with pytest.raises(UserError, match="no evaluator started"):
        cluster().begin(a=1)


def test_a_train_batch_is_filled_by_whoever_is_there(cluster):
    config = {"trainBatchSize": 512, "fragmentLength": FRAGMENT, "stragglerMitigation": True}
    job = make_job(config=config, evaluators=pools(2))
    made = cluster()
    plan = make_plan(job.spec, Machine(cores=2, gpus=0))
    parts = build(job.spec, plan, 0, use_ray=True, start_evaluators=lambda _: made.begin(a=1, b=1))
    optimizer = parts.optimizer
    optimizer.step()
    made.change(a=1)
    optimizer.step()
    progress = optimizer.collect_metrics()
    assert progress.counts["evaluators_lost"] == 1
    assert progress.timesteps_sampled > 2 * 450


def test_a_fixed_number_of_them_gives_the_numbers_of_one_process(cluster):
    config = {"trainBatchSize": 512, "observationFilter": "meanStd"}
    job = make_job(config=config, evaluators=pools(2))
    plan = make_plan(job.spec, Machine(cores=2, gpus=0))
    made = cluster(config=config, evaluators=pools(2))
    here = build(job.spec, plan, 0, use_ray=False).optimizer
    there = build(job.spec, plan, 0, use_ray=True, start_evaluators=lambda _: made.begin(a=1, b=1)).optimizer
    for _ in range(3):
        here.step()
        there.step()
        made.change(a=1, b=1)
    weights = [optimizer.learner.get_weights()[DEFAULT_POLICY] for optimizer in (here, there)]
    np.testing.assert_array_equal(*weights)
    here.evaluators.stop()
