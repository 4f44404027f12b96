"""AsyncSamples: bounded queues, broadcasts, replay, aggregation, restore, a learner elsewhere, lost evaluators."""

import numpy as np
import pytest

from rlcore.driver.build import probe_spaces
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.optimizers.aggregation import AggregationTree, Aggregator, aggregators_needed
from rlcore.optimizers.async_samples import AsyncSamplesOptimizer
from rlcore.optimizers.remote_learner import RemoteLearner
from rlcore.optimizers.sample_replay import SampleReplay
from rlcore.sample_batch import DEFAULT_POLICY, MultiAgentBatch, SampleBatch
from tests.jobs import make_evaluator_config, policy_version, pools, slow_second

CONFIG = {"trainBatchSize": 150, "fragmentLength": 10, "updatesPerIteration": 4}


@pytest.fixture
def start(start_optimizer):
    def _start(evaluators=2, algorithm="IMPALA", config=None, **spec):
        config = CONFIG | ({"minibatchSize": 75} if algorithm == "APPO" else {}) | (config or {})
        return start_optimizer(algorithm=algorithm, evaluators=pools(evaluators), config=config, **spec)

    return _start


def weights(optimizer):
    return optimizer.learner.get_weights()[DEFAULT_POLICY]


@pytest.mark.parametrize("algorithm", ["IMPALA", "APPO"])
def test_a_step_is_so_many_train_batches(start, algorithm):
    optimizer = start(algorithm=algorithm)
    assert isinstance(optimizer, AsyncSamplesOptimizer)
    before = weights(optimizer)
    optimizer.step()
    progress = optimizer.collect_metrics()
    assert optimizer.learner.get_version() == optimizer.counters["train_batches"] == 4
    assert not np.array_equal(before, weights(optimizer))
    assert progress.timesteps_sampled == progress.timesteps_trained >= 4 * 150
    assert {"sample", "load", "sgd"} <= set(progress.times_s)
    assert progress.learner[DEFAULT_POLICY]["mean_rho"] <= 1.0


def test_a_train_batch_of_two_fragments_is_two_samples_though_resets_are_no_timesteps(start):
    optimizer = start(config={"trainBatchSize": 80})  # samples of 10 steps in 4 environments
    optimizer.step()
    optimizer.step()
    assert optimizer.counters["train_batches"] == 8
    assert optimizer._turn == 16
    assert optimizer.timesteps_sampled < 16 * 40  # some rows did reset


def test_in_one_process_evaluators_take_turns_and_nothing_is_left_over(start):
    optimizer = start(evaluators=3)
    for _ in range(3):
        optimizer.step()
    assert not optimizer._waiting
    assert not any(optimizer.evaluators.pending(index) for index in optimizer.evaluators.indices)
    # 3 steps of 4 batches of 4 samples (of 40 timesteps, less the rows that only reset)
    assert optimizer._turn >= 48
    assert optimizer._turn % 3 == 0 or optimizer._turn > 48


def test_evaluators_get_new_weights_every_so_many_updates(start):
    optimizer = start(config={"broadcastInterval": 3})
    optimizer.step()
    assert optimizer.stats()["weight_syncs"] == 2  # the first ones, and those after the third update
    assert optimizer._latest.version == 3
    assert set(optimizer.foreach_evaluator(policy_version)) <= {0, 3}
    assert optimizer.collect_metrics().staleness >= 2


@pytest.mark.parametrize("config", [{}, {"broadcastInterval": 3, "replaySlots": 5, "replayProportion": 0.5}])
def test_a_restored_optimizer_goes_on_exactly(start, config):
    one, two = start(config=config), start(config=config)
    one.step()
    two.restore(one.save())
    states = one.foreach_evaluator(PolicyEvaluator.save)
    two.evaluators.foreach_with_index(lambda evaluator, state: evaluator.restore(state, salt=1), states)
    for _ in range(2):
        one.step()
        two.step()
    np.testing.assert_array_equal(weights(one), weights(two))
    assert one.stats() == two.stats()


def test_a_checkpoint_holds_arrays_and_json_only(start, tmp_path):
    from rlcore.checkpoint import CheckpointStore

    optimizer = start(config={"replaySlots": 3, "replayProportion": 1.0})
    optimizer.step()
    store = CheckpointStore(str(tmp_path), identity={})
    store.save(optimizer.save(), timesteps=1, iteration=1)
    _, state = store.latest()
    twin = start(config={"replaySlots": 3, "replayProportion": 1.0})
    twin.restore(state)
    twin.step()
    assert len(twin.replay) == 3


def test_bootstrap_rows_need_no_gradient_step_of_their_own(start):
    """One update is one step of Adam, whatever number of rows the sequences have."""
    optimizer = start(config={"trainBatchSize": 40, "fragmentLength": 1})
    optimizer.step()
    assert optimizer.learner.policies[DEFAULT_POLICY].adam.get_state()["steps"] == 4


def test_replay_mixes_old_samples_in():
    replay = SampleReplay(slots=3, proportion=0.5, seed=0)
    assert replay.mix(["a", "b"]) == ["a", "b"]
    mixed = replay.mix(["c", "d"])
    assert mixed[:2] == ["c", "d"]
    assert mixed[2] in {"a", "b"}
    assert sorted(replay._kept) == ["b", "c", "d"]  # the oldest made room
    assert len(replay.mix(["e"])) == 1
    assert len(replay.mix(["f"])) == 2  # a half and a half
    assert SampleReplay(slots=0, proportion=0.0, seed=0).mix(["a"]) == ["a"]


def test_replayed_samples_fill_their_part_of_a_train_batch(start):
    optimizer = start(config={"replaySlots": 8, "replayProportion": 1.0})
    optimizer.step()
    optimizer.collect_metrics()
    optimizer.step()
    progress = optimizer.collect_metrics()
    assert progress.counts["replayed_samples"] > 0
    assert progress.timesteps_trained >= 4 * 150 * 0.9
    assert progress.timesteps_sampled <= 0.7 * progress.timesteps_trained


@pytest.mark.parametrize(
    ("configured", "evaluators", "each", "leaves"),
    [(0, 64, 64, 0), (0, 65, 64, 2), (0, 200, 64, 4), (3, 8, 64, 3), (3, 1000, 64, 16), (0, 4, 2, 2), (0, 2, 2, 0)],
)
def test_there_is_an_aggregator_for_each_so_many_evaluators(configured, evaluators, each, leaves):
    assert aggregators_needed(configured, evaluators, each) == leaves


def batch_of(*numbers):
    return MultiAgentBatch({DEFAULT_POLICY: SampleBatch({"x": np.array(numbers, np.float32)})}, len(numbers))


def test_an_aggregator_joins_in_order():
    joined = Aggregator().join(batch_of(1, 2), batch_of(3))
    np.testing.assert_array_equal(joined.policy_batches[DEFAULT_POLICY]["x"], [1, 2, 3])
    assert joined.count == 3


# over Ray ---------------------------------------------------------------------


def test_a_tree_joins_in_order_and_outlives_its_actors(local_ray):
    import ray

    tree = AggregationTree(3)
    try:
        references = [ray.put(batch_of(i)) for i in range(7)]
        for _ in range(2):
            joined = ray.get(tree.join(references), timeout=60)
            np.testing.assert_array_equal(joined.policy_batches[DEFAULT_POLICY]["x"], range(7))
            ray.kill(tree._leaves[1], no_restart=False)
            ray.kill(tree._root, no_restart=False)
        joined = ray.get(tree.join(references[:2]), timeout=60)
        np.testing.assert_array_equal(joined.policy_batches[DEFAULT_POLICY]["x"], range(2))
    finally:
        tree.stop()


def test_queues_are_bounded_and_a_slow_one_is_not_waited_for(start, local_ray):
    optimizer = start(use_ray=True, config={"learnerQueueSize": 1, "samplesInFlight": 3, "updatesPerIteration": 10})
    optimizer.step()
    optimizer.foreach_evaluator_with_index(slow_second)
    for _ in range(3):
        optimizer.step()
        assert all(optimizer.evaluators.pending(index) <= 3 for index in optimizer.evaluators.indices)
        # A full queue, and what was in flight when it became full.
        assert optimizer._waiting_timesteps <= 150 + 2 * 3 * 40
    assert optimizer.counters["train_batches"] == 40
    assert optimizer.collect_metrics().staleness < 40


def test_a_lost_evaluator_is_replaced_without_stopping(start, local_ray):
    import ray

    optimizer = start(use_ray=True)
    optimizer.step()
    ray.kill(optimizer.evaluators._actors[1])
    for _ in range(40):
        optimizer.step()
        if optimizer.evaluators_lost:
            break
    assert optimizer.evaluators_lost == 1
    for _ in range(40):
        optimizer.step()
        versions = optimizer.foreach_evaluator(policy_version)
        if min(versions) > 4:
            break
    assert min(versions) > 4
    state = optimizer.save()
    assert state["learner"]["version"] == optimizer.learner.get_version()


@pytest.mark.parametrize("aggregators", [0, 2])
def test_a_learner_elsewhere_is_given_a_bounded_number_of_updates(start, local_ray, aggregators):
    settings = {"updatesInFlight": 2, "numAggregators": aggregators, "replaySlots": 4, "replayProportion": 0.5}
    optimizer = start(use_ray=True, config=settings)
    config = make_evaluator_config(algorithm="IMPALA", config=CONFIG)
    optimizer.learner = RemoteLearner(config, probe_spaces(config), ["cpu"], {"num_cpus": 0})
    most = []
    submit = optimizer.learner.submit
    optimizer.learner.submit = lambda *args, **kwargs: (
        submit(*args, **kwargs), most.append(optimizer.learner.updates_in_flight),
    )  # fmt: skip
    for _ in range(3):
        optimizer.step()
    assert max(most) <= 2
    saved = optimizer.save()
    assert optimizer.learner.updates_in_flight == 0
    assert saved["learner"]["version"] == optimizer.counters["train_batches"] >= 12
    assert isinstance(saved["latest"]["weights"][DEFAULT_POLICY], np.ndarray)
    assert len(saved["replay"]["samples"]) == 4
    progress = optimizer.collect_metrics()
    assert progress.timesteps_trained > progress.timesteps_sampled > 0
    # What was saved goes on, here and there.
    optimizer.restore(saved)
    optimizer.step()
    twin = start(config=settings)
    twin.restore(saved)
    twin.step()
    assert twin.learner.get_version() == saved["learner"]["version"] + 4


def test_samples_of_an_actor_that_is_lost_are_left_out(local_ray):
    import ray

    config = make_evaluator_config(algorithm="IMPALA", config=CONFIG)
    learner = RemoteLearner(config, probe_spaces(config), ["cpu"], {"num_cpus": 0})
    try:
        evaluator = PolicyEvaluator(config)
        kept = ray.put(evaluator.sample())
        evaluator.close()
        gone = ray.remote(num_cpus=0)(Aggregator).remote()
        ray.kill(gone)
        lost = gone.join.remote(kept)
        learner.submit([lost, kept], num_epochs=1, minibatch_size=10_000, timesteps=0, want_weights=True)
        ((report, weights),) = learner.finished(wait=True)
        assert 0 < report.timesteps <= 40
        assert report.version == 1
        assert ray.get(weights)[DEFAULT_POLICY].dtype == np.float32
    finally:
        learner.stop()
