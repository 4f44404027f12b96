"""ShardedParameterServer: the same maths as one server, staleness, and shards and evaluators that are lost."""

import numpy as np
import pytest

from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.optimizers import ShardedParameterServerOptimizer
from rlcore.optimizers.parameter_shard import ParameterShard, spans_of
from rlcore.sample_batch import DEFAULT_POLICY
from tests.jobs import pools

CONFIG = {"trainBatchSize": 160, "fragmentLength": 10, "updatesPerIteration": 12, "parameterShards": 3}


@pytest.fixture
def start(start_optimizer):
    def _start(evaluators=2, optimizer="ShardedParameterServer", config=None, **spec):
        config = CONFIG | (config or {})
        return start_optimizer(
            algorithm="A3C", optimizer=optimizer, evaluators=pools(evaluators), config=config, **spec
        )

    return _start


def weights(optimizer):
    return optimizer.learner.get_weights()[DEFAULT_POLICY]


def test_slices_cover_everything_once():
    spans = spans_of({"a": 10, "b": 2}, 3)
    for policy_id, size in (("a", 10), ("b", 2)):
        covered = [i for span in spans for i in range(*span[policy_id])]
        assert covered == list(range(size))


def test_a_shard_takes_fresh_gradients_and_drops_old_ones():
    state = {"version": 5, "weights": {"p": np.array([1.0, -1.0], np.float32)}, "adam": None}
    shard = ParameterShard(state, epsilon=1e-8, max_staleness=2)
    gradient = {"p": np.array([0.5, -3.0], np.float32)}
    assert shard.push(gradient, {"p": 0.1}, version=3)
    # Adam's first step is the learning rate against the sign.
    np.testing.assert_allclose(shard.pull()[0]["p"], [0.9, -0.9], atol=1e-6)
    assert not shard.push(gradient, {"p": 0.1}, version=3)
    assert shard.pull_version() == 6
    twin = ParameterShard(shard.get_state(), epsilon=1e-8, max_staleness=2)
    for each in (shard, twin):
        assert each.push(gradient, {"p": 0.1}, version=6)
    np.testing.assert_array_equal(shard.pull()[0]["p"], twin.pull()[0]["p"])


def test_with_one_evaluator_it_is_async_gradients_to_the_last_digits(start):
    sharded, central = start(evaluators=1), start(evaluators=1, optimizer="AsyncGradients")
    assert isinstance(sharded, ShardedParameterServerOptimizer)
    for _ in range(2):
        sharded.step()
        central.step()
    assert sharded.timesteps_sampled == central.timesteps_sampled
    np.testing.assert_allclose(weights(sharded), weights(central), atol=1e-6)
    assert sharded.learner.get_version() == central.learner.get_version() == 24


def test_a_restored_optimizer_goes_on_exactly(start):
    one, two = start(), start()
    one.step()
    two.restore(one.save())
    states = one.foreach_evaluator(PolicyEvaluator.save)
    two.evaluators.foreach_with_index(lambda evaluator, state: evaluator.restore(state, salt=1), states)
    one.step()
    two.step()
    np.testing.assert_array_equal(weights(one), weights(two))
    assert one.stats() == two.stats()


def test_a_step_counts_and_trains(start):
    optimizer = start()
    optimizer.step()
    progress = optimizer.collect_metrics()
    assert progress.counts["gradients_applied"] == 12
    assert progress.timesteps_sampled == progress.timesteps_trained > 12 * 30
    assert progress.learner[DEFAULT_POLICY]["gradient_norm"] > 0


def test_over_ray_lost_shards_and_evaluators_are_replaced(start, local_ray):
    import ray

    optimizer = start(use_ray=True)
    optimizer.step()
    before = weights(optimizer)
    ray.kill(optimizer._shards[1])
    for _ in range(20):
        optimizer.step()
        if optimizer.counters["shards_lost"]:
            break
    assert optimizer.counters["shards_lost"] == 1
    ray.kill(optimizer.evaluators._actors[0])
    for _ in range(20):
        optimizer.step()
        if optimizer.evaluators_lost:
            break
    optimizer.step()
    assert optimizer.evaluators_lost == 1
    assert not np.array_equal(before, weights(optimizer))
    assert optimizer.counters["gradients_applied"] >= 36
    staleness = optimizer.counters["staleness_total"] / optimizer.counters["gradients_applied"]
    assert staleness <= 8
    # What was learned is in the learner, and goes on without Ray.
    twin = start()
    twin.restore(optimizer.save())
    np.testing.assert_array_equal(weights(twin), weights(optimizer))
    twin.step()
