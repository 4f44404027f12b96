"""Policy optimizers and the learner: what a step does, in one process and over Ray."""

import numpy as np
import pytest

from rlcore import optimizers
from rlcore.algorithms import ALGORITHMS
from rlcore.api import ALGORITHMS as DECLARED
from rlcore.driver.build import build, probe_spaces
from rlcore.driver.plan import Machine, make_plan
from rlcore.errors import EnvironmentFailure, NonFiniteError, UserError
from rlcore.evaluation.evaluator_set import RemoteEvaluators
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.optimizers import LocalMultiGPUOptimizer, OptimizerConfig, SyncSamplesOptimizer
from rlcore.optimizers.learner import Learner
from rlcore.optimizers.remote_learner import RemoteLearner
from rlcore.policy.advantages import normalized_advantages
from rlcore.sample_batch import DEFAULT_POLICY, SampleBatch
from tests.jobs import make_evaluator_config, make_job, policy_version, pools, slow_second

MACHINE = Machine(cores=4, gpus=0)


@pytest.fixture
def start():
    """Builds a job's optimizer; all of them are stopped at the end."""
    running = []

    def _start(*, use_ray: bool = False, **spec):
        job = make_job(**spec)
        parts = build(job.spec, make_plan(job.spec, MACHINE), seed=0, use_ray=use_ray)
        running.append(parts.optimizer)
        return parts.optimizer

    yield _start
    for optimizer in running:
        optimizer.stop()


def weights(optimizer) -> np.ndarray:
    return optimizer.learner.get_weights()[DEFAULT_POLICY]


EIGHT = {
    "PolicyOptimizer", "SyncSamplesOptimizer", "SyncReplayOptimizer", "SyncBatchReplayOptimizer",
    "LocalMultiGPUOptimizer", "AsyncGradientsOptimizer", "AsyncSamplesOptimizer", "AsyncReplayOptimizer",
}  # fmt: skip
"""The paper's, by the names of its library."""
OTHERS = {
    "AllreduceOptimizer", "ShardedParameterServerOptimizer",  # the paper's two other step methods
    "EvolutionOptimizer", "OfflineSamplesOptimizer",
    "OptimizerConfig", "AsyncGradientsConfig", "AsyncSamplesConfig", "EvolutionConfig", "OfflineConfig", "ReplayConfig",
    "Progress",
}  # fmt: skip


def test_the_papers_strategies_are_exported_and_nothing_by_accident():
    assert set(optimizers.__all__) == EIGHT | OTHERS
    for name in EIGHT | OTHERS:
        assert getattr(optimizers, name).__name__ == name
    registered = {strategy.__name__ for strategy in optimizers.OPTIMIZERS.values()}
    assert registered == {name for name in EIGHT | OTHERS if name.endswith("Optimizer")} - {"PolicyOptimizer"}


def test_the_api_declares_what_is_built():
    assert set(DECLARED) == set(ALGORITHMS)
    assert {name for info in DECLARED.values() for name in info.optimizers} == set(optimizers.OPTIMIZERS)


@pytest.mark.parametrize("name", ["LocalMultiGPU", "Allreduce"])
def test_a_batch_is_cut_into_the_minibatches_that_a_user_counts_though_resets_are_no_timesteps(start, name):
    optimizer = start(optimizer=name, config={"trainBatchSize": 512, "minibatchSize": 128, "numEpochs": 2})
    optimizer.step()
    assert optimizer.timesteps_trained < 512  # some rows did reset
    assert optimizer.learner.policies[DEFAULT_POLICY].adam.get_state()["steps"] == 2 * 4


@pytest.mark.parametrize("name", ["LocalMultiGPU", "SyncSamples"])
def test_a_step_samples_trains_and_counts(start, name):
    optimizer = start(optimizer=name)
    assert isinstance(optimizer, {"LocalMultiGPU": LocalMultiGPUOptimizer, "SyncSamples": SyncSamplesOptimizer}[name])
    before = weights(optimizer).copy()
    optimizer.step()
    progress = optimizer.collect_metrics()
    assert not np.array_equal(before, weights(optimizer))
    assert 450 <= progress.timesteps_sampled == progress.timesteps_trained <= 512
    assert {"sample", "load", "sgd", "broadcast"} <= set(progress.times_s)
    assert progress.learner[DEFAULT_POLICY]["epochs"] == 2
    assert optimizer.stats()["weight_syncs"] == 1
    assert optimizer.collect_metrics().timesteps_sampled == 0


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"optimizer": "SyncSamples"},
        {"environment": {"id": "Pendulum-v1"}, "config": {"trainBatchSize": 512, "observationFilter": "meanStd"}},
        {"model": {"hiddens": [8], "lstmSize": 4}},
        {"config": {"trainBatchSize": 512, "fragmentLength": 10}},
    ],
    ids=["multi_gpu", "sync_samples", "filter", "recurrent", "short fragments"],
)
def test_two_runs_with_one_seed_are_equal_to_the_last_bit(start, spec):
    one, two = (start(evaluators=pools(2), **spec) for _ in range(2))
    for _ in range(3):
        one.step()
        two.step()
    np.testing.assert_array_equal(weights(one), weights(two))
    assert one.timesteps_sampled == two.timesteps_sampled


def test_over_ray_the_numbers_are_the_same_as_in_one_process(start, local_ray):
    spec = {"evaluators": pools(2), "config": {"trainBatchSize": 512, "observationFilter": "meanStd"}}
    here, there, again = start(**spec), start(use_ray=True, **spec), start(use_ray=True, **spec)
    for _ in range(3):
        for optimizer in (here, there, again):
            optimizer.step()
    np.testing.assert_array_equal(weights(there), weights(again))
    np.testing.assert_array_equal(weights(here), weights(there))


def test_a_restored_optimizer_goes_on_exactly(start):
    spec = {"evaluators": pools(2), "config": {"trainBatchSize": 512, "observationFilter": "meanStd"}}
    one, two = start(**spec), start(**spec)
    one.step()
    two.restore(one.save())
    states = one.foreach_evaluator(PolicyEvaluator.save)
    two.broadcast()
    two.evaluators.foreach_with_index(lambda e, state: e.restore(state, salt=1), states)
    two.weight_syncs -= 1
    one.step()
    two.step()
    np.testing.assert_array_equal(weights(one), weights(two))
    assert one.stats() == two.stats()


def test_several_policies_learn_each_from_its_own_batch(start):
    optimizer = start(
        environment={"id": "tests.jobs:TwoAgents"},
        multiAgent={"policies": {"same": {}, "other": {}}, "mapping": "tests.jobs:own_policy"},
        config={"trainBatchSize": 1024, "minibatchSize": 128, "numEpochs": 4, "learningRate": 5e-3, "gamma": 0.0},
        evaluators=pools(0, envs=8),
    )
    for _ in range(12):
        optimizer.step()
        progress = optimizer.collect_metrics()
    assert set(progress.learner) == {"same", "other"}
    # each agent earns at most 10 an episode, and 5 by chance
    assert np.mean([e.episode_return for e in progress.episodes]) > 9


# towers -----------------------------------------------------------------------


def make_learner(devices, **config):
    evaluator_config = make_evaluator_config(config={"trainBatchSize": 512, "minibatchSize": 128, **config})
    spaces = probe_spaces(evaluator_config)
    policies = {p: evaluator_config.build_policy(p, spaces[p]) for p in spaces}
    evaluator = PolicyEvaluator(evaluator_config)
    batch = evaluator.sample()
    evaluator.close()
    return Learner(policies, devices=devices, seed=0), batch


def test_two_towers_make_the_gradient_of_one():
    one, batch = make_learner(["cpu"])
    two, _ = make_learner(["cpu", "cpu"])
    even = batch.policy_batches[DEFAULT_POLICY].take(slice(0, batch.count // 2 * 2))
    batch.policy_batches[DEFAULT_POLICY] = even
    for learner in (one, two):
        # one minibatch of everything, so that the order of rows does not matter
        learner.update([batch], num_epochs=3, minibatch_size=100_000)
    np.testing.assert_allclose(one.get_weights()[DEFAULT_POLICY], two.get_weights()[DEFAULT_POLICY], atol=2e-6)
    towers = two._towers[DEFAULT_POLICY]
    np.testing.assert_array_equal(towers[0].get_weights(), towers[1].get_weights())


def test_two_towers_learn_from_minibatches_and_restore():
    learner, batch = make_learner(["cpu", "cpu"])
    twin, _ = make_learner(["cpu", "cpu"])
    learner.update([batch], num_epochs=2, minibatch_size=64)
    twin.set_state(learner.get_state())
    for each in (learner, twin):
        each.update([batch], num_epochs=2, minibatch_size=64)
    np.testing.assert_array_equal(learner.get_weights()[DEFAULT_POLICY], twin.get_weights()[DEFAULT_POLICY])
    assert learner.get_version() == twin.get_version() == 2


@pytest.mark.parametrize("devices", [["cpu"], ["cpu", "cpu"], ["cpu"] * 5])
@pytest.mark.parametrize("mode", ["truncate", "completeEpisodes"])
def test_sequences_train_whatever_the_sizes_are(devices, mode):
    config = {
        "trainBatchSize": 96,
        "minibatchSize": 8,
        "maxSequenceLength": 32,
        "fragmentLength": 24,
        "batchMode": mode,
    }
    evaluator_config = make_evaluator_config(config=config, model={"hiddens": [8], "lstmSize": 4})
    spaces = probe_spaces(evaluator_config)
    learner = Learner({p: evaluator_config.build_policy(p, spaces[p]) for p in spaces}, devices=devices, seed=0)
    evaluator = PolicyEvaluator(evaluator_config)
    for _ in range(4):
        learner.update([evaluator.sample()], num_epochs=2, minibatch_size=8)
    evaluator.close()
    towers = learner._towers[DEFAULT_POLICY]
    assert all(np.array_equal(towers[0].get_weights(), tower.get_weights()) for tower in towers)


def test_epochs_end_early_at_the_kl_target():
    learner, batch = make_learner(["cpu"], klTarget=1e-9, learningRate=1e-2)
    report = learner.update([batch], num_epochs=10, minibatch_size=64)
    assert report.stats[DEFAULT_POLICY]["epochs"] == 1
    learner, batch = make_learner(["cpu"], klTarget=1000.0)
    report = learner.update([batch], num_epochs=10, minibatch_size=64)
    assert report.stats[DEFAULT_POLICY]["epochs"] == 10


def test_advantages_are_normalized_over_real_timesteps_only():
    advantages = np.array([[1.0, 3.0], [99.0, 5.0]], np.float32)
    valid = np.array([[True, True], [False, True]])
    batch = SampleBatch({"advantages": advantages, "valid": valid}, time_major=True)
    assert np.allclose(normalized_advantages(batch)[valid], [-1.2247449, 0, 1.2247449])


def test_a_loss_that_is_not_finite_stops_with_a_hint():
    learner, batch = make_learner(["cpu"])
    batch.policy_batches[DEFAULT_POLICY]["value_targets"][:] = 1e30
    with pytest.raises(
        NonFiniteError, match=r"policy default gave values that are not finite: value_loss(.|\n)*learningRate"
    ):
        learner.update([batch], num_epochs=1, minibatch_size=64)


def test_the_learner_as_an_actor_makes_the_same_update(local_ray):
    here, batch = make_learner(["cpu"])
    config = make_evaluator_config(config={"trainBatchSize": 512, "minibatchSize": 128})
    there = RemoteLearner(config, probe_spaces(config), ["cpu"], {"num_cpus": 0, "resources": {"learner": 1}})
    try:
        there.load([batch])
        there.sgd(num_epochs=2, minibatch_size=64)
        here.update([batch], num_epochs=2, minibatch_size=64)
        np.testing.assert_array_equal(here.get_weights()[DEFAULT_POLICY], there.get_weights()[DEFAULT_POLICY])
        there.set_state(here.get_state())
        assert there.get_version() == 1
    finally:
        there.stop()


# stragglers and losses ------------------------------------------------------------


def test_stragglers_are_not_waited_for_and_their_work_is_kept_one_round(start, local_ray):
    optimizer = start(
        use_ray=True,
        evaluators=pools(2, envs=4),
        config={"trainBatchSize": 512, "minibatchSize": 128, "fragmentLength": 32, "stragglerMitigation": True},
    )
    optimizer.step()
    optimizer.foreach_evaluator_with_index(slow_second)
    optimizer.step()
    before = optimizer.timesteps_sampled
    optimizer.collect_metrics()
    for _ in range(40):
        optimizer.step()
        progress = optimizer.collect_metrics()
        if optimizer.counters["late_timesteps"] or optimizer.counters["discarded_timesteps"]:
            break
    assert optimizer.timesteps_sampled > before
    # The slow one's sample was taken with weights that are older by now: kept if by one version, else counted as lost.
    assert optimizer.counters["late_timesteps"] + optimizer.counters["discarded_timesteps"] > 0
    assert progress.staleness <= 1


def test_late_and_stale_samples_are_told_apart(start, local_ray):
    optimizer = start(use_ray=True, evaluators=pools(1), config={"trainBatchSize": 512, "stragglerMitigation": True})
    evaluators = optimizer.evaluators
    optimizer.broadcast()
    evaluators.request(0)
    (sample,) = evaluators.wait_any(60)
    for version, kept, late, discarded in ((0, True, 0, 0), (1, True, 1, 0), (2, False, 1, 1)):
        optimizer.version = version
        assert optimizer._keep(sample) is kept
        assert optimizer.counters["late_timesteps"] == late * sample.info.timesteps
        assert optimizer.counters["discarded_timesteps"] == discarded * sample.info.timesteps


def test_a_lost_evaluator_is_replaced_and_training_goes_on(start, local_ray):
    import ray

    optimizer = start(use_ray=True, evaluators=pools(2))
    assert isinstance(optimizer.evaluators, RemoteEvaluators)
    optimizer.step()
    ray.kill(optimizer.evaluators._actors[1])
    optimizer.step()
    progress = optimizer.collect_metrics()
    assert progress.counts["evaluators_lost"] == 1
    assert 900 <= progress.timesteps_sampled <= 1024
    versions = optimizer.foreach_evaluator(policy_version)
    assert versions == [1, 1]


def test_an_evaluator_that_died_is_no_obstacle_to_a_checkpoint(start, local_ray):
    import ray

    optimizer = start(use_ray=True, evaluators=pools(2))
    optimizer.step()
    ray.kill(optimizer.evaluators._actors[0])
    saved = optimizer.foreach_evaluator(PolicyEvaluator.save)
    assert saved[0] is None
    assert saved[1]["layout"]["environments"] == 4
    optimizer.step()
    assert optimizer.stats()["evaluators_lost"] == 1
    twin = start(evaluators=pools(2))
    twin.restore(optimizer.save())
    assert twin.stats()["evaluators_lost"] == 1


def test_an_evaluator_that_dies_again_and_again_is_an_error(start, local_ray):
    optimizer = start(use_ray=True, evaluators=pools(1), environment={"id": "tests.jobs:DeadlyEnv"})
    with pytest.raises(UserError, match=r"evaluator \d died .* times in a row"):
        optimizer.step()


def test_errors_of_actors_are_raised_as_they_were_raised_there(start, local_ray):
    environment = {"id": "tests.jobs:FailingEnv", "kwargs": {"length": 100}, "maxFailures": 0}
    optimizer = start(use_ray=True, evaluators=pools(1), environment=environment)
    with pytest.raises(EnvironmentFailure, match="the simulator crashed"):
        optimizer.step()


def test_fragments_are_dealt_out_in_turn(start):
    optimizer = start(evaluators=pools(3))
    optimizer.config = OptimizerConfig(train_batch_size=100, fragment_size=20)
    assert optimizer.round_robin() == [0, 1, 2, 0, 1]
