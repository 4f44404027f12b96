"""AsyncGradients: staleness, its bound, what is dropped, restore, and evaluators that are lost."""

import numpy as np
import pytest

from rlcore.driver.build import probe_spaces
from rlcore.errors import NonFiniteError
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.evaluation.sample_info import Gradients
from rlcore.optimizers.async_gradients import AsyncGradientsOptimizer
from rlcore.optimizers.remote_learner import RemoteLearner
from rlcore.sample_batch import DEFAULT_POLICY
from tests.jobs import make_evaluator_config, policy_version, pools, slow_second

CONFIG = {"trainBatchSize": 160, "fragmentLength": 10, "updatesPerIteration": 12}


@pytest.fixture
def start(start_optimizer):
    def _start(evaluators=3, config=None, **spec):
        spec = {"algorithm": "A3C", "evaluators": pools(evaluators), "config": CONFIG | (config or {}), **spec}
        return start_optimizer(**spec)

    return _start


def weights(optimizer):
    return optimizer.learner.get_weights()[DEFAULT_POLICY]


def test_a_step_applies_so_many_gradients_each_at_once(start):
    optimizer = start()
    assert isinstance(optimizer, AsyncGradientsOptimizer)
    before = weights(optimizer)
    optimizer.step()
    progress = optimizer.collect_metrics()
    assert optimizer.learner.get_version() == optimizer.counters["gradients_applied"] == 12
    assert not np.array_equal(before, weights(optimizer))
    assert progress.timesteps_sampled == progress.timesteps_trained
    assert 12 * 30 < progress.timesteps_sampled <= 12 * 40
    assert {"sample", "grad", "apply", "broadcast"} <= set(progress.times_s)
    assert {"policy_loss", "value_loss", "entropy", "gradient_norm"} <= set(progress.learner[DEFAULT_POLICY])


def test_a_gradient_is_as_late_as_the_others_are_many(start):
    optimizer = start(evaluators=3)
    optimizer.step()
    assert optimizer.collect_metrics().staleness == 2
    # The first three are 0, 1 and 2 updates late, all others 2.
    assert optimizer.counters["staleness_total"] == 0 + 1 + 9 * 2 + 2


def test_one_evaluator_is_never_late_and_makes_plain_sgd(start):
    optimizer, twin = start(evaluators=1), start(evaluators=1)
    optimizer.step()
    assert optimizer.collect_metrics().staleness == 0
    learner, evaluator = twin.learner, twin.evaluators._evaluators[0]
    twin.broadcast()
    sampled = 0
    for _ in range(12):
        gradients, info = evaluator.gradients_with_info()
        sampled += info.timesteps
        update = learner.apply_gradients(gradients, sampled)
        evaluator.set_global_state(update.weights, update.report.version, sampled, {})
    np.testing.assert_array_equal(weights(optimizer), weights(twin))


def test_gradients_beyond_the_bound_are_dropped_and_counted(start):
    optimizer = start(evaluators=3, config={"maxStaleness": 1})
    optimizer.step()
    progress = optimizer.collect_metrics()
    assert optimizer.counters["gradients_applied"] == 12
    assert optimizer.counters["stale_gradients"] > 0
    assert progress.counts["discarded_timesteps"] > 0
    assert progress.timesteps_trained < progress.timesteps_sampled
    assert optimizer.counters["staleness_total"] <= 12
    assert start(evaluators=3).max_staleness == 12


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


def test_a_gradient_that_is_not_finite_stops_with_a_hint(start):
    learner = start().learner
    gradient = np.full_like(learner.get_weights()[DEFAULT_POLICY], np.nan)
    with pytest.raises(NonFiniteError, match=r"gradient_norm(.|\n)*learningRate"):
        learner.apply_gradients(Gradients({DEFAULT_POLICY: gradient}, {DEFAULT_POLICY: {}}, 1), 0)


def test_filters_are_merged_and_given_back(start):
    optimizer = start(config={"observationFilter": "meanStd"})
    optimizer.step()
    assert optimizer.filters[DEFAULT_POLICY].get_state()["count"] == optimizer.timesteps_sampled


def test_over_ray_nobody_waits_for_a_slow_one_and_a_lost_one_is_replaced(start, local_ray):
    import ray

    optimizer = start(evaluators=2, use_ray=True)
    optimizer.step()
    optimizer.foreach_evaluator_with_index(slow_second)
    optimizer.step()  # the quick one alone could make all of it
    # Two steps of twelve; each applies one more where the gradients of both arrive together for its last.
    assert 24 <= optimizer.counters["gradients_applied"] <= 26
    ray.kill(optimizer.evaluators._actors[1])
    for _ in range(40):
        optimizer.step()
        if optimizer.evaluators_lost:
            break
    assert optimizer.evaluators_lost == 1
    optimizer.step()
    assert optimizer.learner.get_version() == optimizer.counters["gradients_applied"]
    assert min(optimizer.foreach_evaluator(policy_version)) > 24


def test_a_learner_elsewhere_applies_references(start, local_ray):
    optimizer = start(evaluators=2, use_ray=True)
    config = make_evaluator_config(algorithm="A3C", config=CONFIG)
    optimizer.learner = RemoteLearner(config, probe_spaces(config), ["cpu"], {"num_cpus": 0})
    optimizer.step()
    assert optimizer.learner.get_version() == 12
    assert optimizer.collect_metrics().timesteps_trained > 0
