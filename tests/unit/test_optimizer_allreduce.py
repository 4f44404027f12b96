"""Allreduce: members stay equal and make the gradient of the whole; a lost one holds nobody up for long."""

import time

import numpy as np
import pytest

from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.optimizers import AllreduceOptimizer
from rlcore.optimizers.allreduce_group import sgd
from rlcore.sample_batch import DEFAULT_POLICY, MultiAgentBatch
from tests.jobs import make_evaluator_config, pools, weights_of

CONFIG = {"trainBatchSize": 256, "minibatchSize": 64, "numEpochs": 2}


@pytest.fixture
def start(start_optimizer):
    def _start(evaluators=2, config=None, **spec):
        return start_optimizer(
            optimizer="Allreduce", evaluators=pools(evaluators), config=CONFIG | (config or {}), **spec
        )

    return _start


def weights(optimizer):
    return optimizer.learner.get_weights()[DEFAULT_POLICY]


def test_members_stay_equal_and_the_learner_has_what_they_have(start):
    optimizer = start(evaluators=3)
    assert isinstance(optimizer, AllreduceOptimizer)
    for _ in range(2):
        optimizer.step()
    for member in optimizer.foreach_evaluator(weights_of):
        np.testing.assert_array_equal(member, weights(optimizer))
    progress = optimizer.collect_metrics()
    assert optimizer.learner.get_version() == 2
    assert progress.timesteps_sampled == progress.timesteps_trained > 2 * 230
    assert progress.learner[DEFAULT_POLICY]["epochs"] == 2
    assert optimizer.learner.policies[DEFAULT_POLICY].adam.get_state()["steps"] == 2 * 2 * 4


def test_the_sum_of_the_parts_is_the_gradient_of_the_whole():
    config = make_evaluator_config(config={**CONFIG, "normalizeAdvantages": False})
    evaluator, whole = PolicyEvaluator(config), PolicyEvaluator(config)
    batch = evaluator.sample()
    rows = batch.policy_batches[DEFAULT_POLICY]
    parts = [rows.take(slice(0, 50)), rows.take(slice(50, None))]
    members = []
    for part in parts:
        member = PolicyEvaluator(config)
        members.append(member)
        member.running = sgd(
            member.policies, MultiAgentBatch({DEFAULT_POLICY: part}, part.count), np.random.default_rng(0), 3, 1
        )
    total = sum(next(member.running) for member in members)
    for _ in range(2):
        total = sum(member.running.send(total.copy()) for member in members)
    for member in members:
        with pytest.raises(StopIteration):
            member.running.send(total.copy())
    for _ in range(3):
        gradient, _ = whole.policies[DEFAULT_POLICY].gradients(rows)
        whole.policies[DEFAULT_POLICY].apply_gradients(gradient)
    np.testing.assert_array_equal(weights_of(members[0]), weights_of(members[1]))
    np.testing.assert_allclose(weights_of(members[0]), weights_of(whole), atol=1e-6)
    for each in (evaluator, whole, *members):
        each.close()


def test_a_member_with_too_few_rows_or_none_keeps_step():
    config = make_evaluator_config(config=CONFIG)
    rich, poor, none = (PolicyEvaluator(config) for _ in range(3))
    batch = rich.sample()
    rows = batch.policy_batches[DEFAULT_POLICY]
    shares = [batch, MultiAgentBatch({DEFAULT_POLICY: rows.take(slice(0, 2))}, 2), MultiAgentBatch({}, 0)]
    running = [
        sgd(e.policies, share, np.random.default_rng(0), 2, 4)
        for e, share in zip((rich, poor, none), shares, strict=True)
    ]
    parts = [next(each) for each in running]
    updates, ended = 0, []
    while not ended:
        total, updates = sum(parts), updates + 1
        parts = []
        for each in running:
            try:
                parts.append(each.send(total.copy()))
            except StopIteration as end:
                ended.append(end.value)
    assert updates == 8
    assert len(ended) == 3
    np.testing.assert_array_equal(weights_of(rich), weights_of(none))
    np.testing.assert_array_equal(weights_of(rich), weights_of(poor))
    for each in (rich, poor, none):
        each.close()


@pytest.mark.parametrize(
    "spec",
    [{}, {"model": {"hiddens": [8], "lstmSize": 4}}, {"config": {"klTarget": 1e-9, "learningRate": 1e-2}}],
    ids=["plain", "lstm", "ends early"],
)
def test_a_restored_optimizer_goes_on_exactly(start, spec):
    one, two = start(**spec), start(**spec)
    one.step()
    two.restore(one.save())
    states = one.foreach_evaluator(PolicyEvaluator.save)
    two.evaluators.foreach_with_index(lambda evaluator, state: evaluator.restore(state, salt=1), states)
    one.step()
    two.step()
    np.testing.assert_array_equal(weights(one), weights(two))
    assert one.timesteps_sampled == two.timesteps_sampled


def test_over_ray_gloo_makes_the_sums_that_one_process_makes(start, local_ray):
    here, there = start(), start(use_ray=True)
    for _ in range(2):
        here.step()
        there.step()
    np.testing.assert_allclose(weights(here), weights(there), atol=1e-6)
    for member in there.foreach_evaluator(weights_of):
        np.testing.assert_array_equal(member, weights(there))


def test_a_lost_member_is_replaced_and_the_group_built_again(start, local_ray):
    import ray

    optimizer = start(use_ray=True, evaluators=3)
    optimizer.sum_deadline_s = 10.0
    optimizer.step()
    ray.kill(optimizer.evaluators._actors[1])
    started = time.monotonic()
    optimizer.step()
    assert time.monotonic() - started < 60
    assert optimizer.evaluators_lost == 1
    assert optimizer.counters["groups_built"] == 2
    optimizer.step()
    for member in optimizer.foreach_evaluator(weights_of):
        np.testing.assert_array_equal(member, weights(optimizer))
    assert optimizer.learner.get_version() == 3
