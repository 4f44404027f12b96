"""The replay optimizers with real evaluators, in one process and over Ray."""

import os
import signal

import numpy as np
import pytest

from rlcore.driver.build import build
from rlcore.driver.plan import Machine, make_plan
from rlcore.errors import UnsupportedError, UserError
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.optimizers import AsyncReplayOptimizer, SyncBatchReplayOptimizer, SyncReplayOptimizer
from rlcore.optimizers.replay_shards import LocalShards, RemoteShards
from rlcore.sample_batch import DEFAULT_POLICY
from tests.jobs import make_job, policy_version, pools, process_id

MACHINE = Machine(cores=4, gpus=0)
SMALL = {
    "trainBatchSize": 16, "trainRatio": 2, "learningStarts": 64, "iterationTimesteps": 128, "replayCapacity": 500,
    "fragmentLength": 8,
}  # fmt: skip


@pytest.fixture
def start():
    """Builds a job's optimizer; all of them are stopped at the end."""
    running = []

    def _start(*, use_ray: bool = False, seed: int = 0, config=None, **spec):
        fields = {"algorithm": "DQN", "model": {"hiddens": [16]}, "evaluators": pools(2), **spec}
        job = make_job(config={**SMALL, **(config or {})}, **fields)
        parts = build(job.spec, make_plan(job.spec, MACHINE), seed=seed, use_ray=use_ray)
        running.append(parts.optimizer)
        return parts.optimizer

    yield _start
    for optimizer in running:
        optimizer.stop()


def weights(optimizer) -> np.ndarray:
    return optimizer.learner.get_weights()[DEFAULT_POLICY]


def test_names_are_those_of_the_paper(start):
    kinds = {
        "SyncReplay": SyncReplayOptimizer,
        "AsyncReplay": AsyncReplayOptimizer,
        "SyncBatchReplay": SyncBatchReplayOptimizer,
    }
    for name, kind in kinds.items():
        assert isinstance(start(optimizer=name), kind)


@pytest.mark.parametrize("name", ["SyncReplay", "AsyncReplay", "SyncBatchReplay"])
@pytest.mark.parametrize("prioritized", [False, True])
def test_a_step_samples_trains_in_proportion_and_counts(start, name, prioritized):
    optimizer = start(optimizer=name, config={"prioritized": prioritized, "nStep": 3})
    before = weights(optimizer).copy()
    optimizer.step()
    optimizer.step()
    progress = optimizer.collect_metrics()
    assert not np.array_equal(before, weights(optimizer))
    sampled = progress.timesteps_sampled
    assert 256 <= sampled <= 400
    # Nothing is trained on before 64 transitions are there; then two for each one sampled.
    assert 2 * (sampled - 64 - 64) - 16 <= progress.timesteps_trained <= 2 * sampled
    assert {"sample", "load", "sgd", "broadcast"} <= set(progress.times_s)
    # Two evaluators of four environments hold back two steps for three-step returns.
    assert sampled - 2 * 4 * 2 <= progress.counts["replay_timesteps"] <= sampled
    assert progress.counts["replay_bytes"] > 0
    assert progress.learner[DEFAULT_POLICY]["mean_td_error"] > 0
    assert optimizer.collect_metrics().timesteps_sampled == 0


@pytest.mark.parametrize("name", ["SyncReplay", "AsyncReplay", "SyncBatchReplay"])
def test_samples_without_a_transition_yet_do_no_harm(start, name):
    optimizer = start(optimizer=name, config={"fragmentLength": 1, "nStep": 4})
    before = weights(optimizer).copy()
    optimizer.step()
    assert not np.array_equal(before, weights(optimizer))


@pytest.mark.parametrize("name", ["SyncReplay", "AsyncReplay", "SyncBatchReplay"])
def test_draws_follow_the_seed_of_the_job(start, name):
    assert start(optimizer=name, seed=5).config.seed == 5


@pytest.mark.parametrize(
    "spec",
    [
        {"config": {"prioritized": True, "nStep": 3}},
        {"optimizer": "SyncBatchReplay", "model": {"hiddens": [8], "lstmSize": 4}, "config": {"maxSequenceLength": 8}},
        {"optimizer": "AsyncReplay", "config": {"prioritized": True, "replayShards": 2}},
        {"algorithm": "SAC", "environment": {"id": "Pendulum-v1"}},
        {"algorithm": "TD3", "environment": {"id": "Pendulum-v1"}},
        {"algorithm": "ApexDDPG", "environment": {"id": "Pendulum-v1"}},
    ],
    ids=["dqn", "recurrent", "async in one process", "sac", "td3", "apex ddpg"],
)
def test_two_runs_with_one_seed_are_equal_to_the_last_bit(start, spec):
    one, two, other = start(**spec), start(**spec), start(seed=5, **spec)
    for optimizer in (one, two, other):
        for _ in range(3):
            optimizer.step()
    np.testing.assert_array_equal(weights(one), weights(two))
    assert not np.array_equal(weights(one), weights(other))


@pytest.mark.parametrize(
    "spec",
    [
        {"config": {"prioritized": True, "nStep": 2}},
        {"optimizer": "SyncBatchReplay"},
        {"optimizer": "SyncBatchReplay", "model": {"hiddens": [8], "lstmSize": 4}},
        {"algorithm": "SAC", "environment": {"id": "Pendulum-v1"}, "config": {"randomTimesteps": 0}},
    ],
    ids=["dqn", "batches", "recurrent", "sac"],
)
def test_a_restored_optimizer_goes_on_exactly(start, spec):
    one, two = start(**spec), start(**spec)
    for _ in range(2):
        one.step()
    two.restore(one.save())
    states = one.foreach_evaluator(PolicyEvaluator.save)
    two.broadcast()
    two.evaluators.foreach_with_index(lambda e, state: e.restore(state, salt=1), states)
    two.weight_syncs -= 1
    for optimizer in (one, two):
        optimizer.step()
    np.testing.assert_array_equal(weights(one), weights(two))
    assert one.stats() == two.stats()


@pytest.mark.parametrize("name", ["SyncReplay", "AsyncReplay", "SyncBatchReplay"])
def test_without_saved_replay_learning_waits_until_there_is_enough_again(start, name):
    one, two = (start(optimizer=name, config={"replayCheckpointBytes": 0, "learningStarts": 100}) for _ in range(2))
    for _ in range(2):
        one.step()
    two.restore(one.save())
    sampled, trained = two.timesteps_sampled, two.timesteps_trained
    two.step()
    assert 0 <= two.timesteps_trained - trained <= 2 * (two.timesteps_sampled - sampled - 40)
    assert two.stats()["replay_timesteps"] <= 200


def test_async_replay_keeps_its_shards_over_a_restore(start):
    one, two = (start(optimizer="AsyncReplay", config={"replayShards": 2, "prioritized": True}) for _ in range(2))
    for _ in range(2):
        one.step()
    two.restore(one.save())
    assert isinstance(two.shards, LocalShards)
    assert two.shards.timesteps == one.shards.timesteps > 200


def test_several_policies_have_a_replay_each(start):
    optimizer = start(
        environment={"id": "tests.jobs:TwoAgents"},
        multiAgent={"policies": {"same": {}, "other": {}}, "mapping": "tests.jobs:own_policy"},
        config={
            "gamma": 0.0,
            "learningRate": 1e-2,
            "epsilonTimesteps": 500,
            "trainRatio": 8,
            "iterationTimesteps": 500,
        },
        evaluators=pools(0, envs=4),
    )
    for _ in range(4):
        optimizer.step()
        progress = optimizer.collect_metrics()
    assert set(optimizer.buffers) == set(progress.learner) == {"same", "other"}
    assert np.mean([e.episode_return for e in progress.episodes]) > 9


@pytest.mark.parametrize("name", ["SyncReplay", "AsyncReplay"])
def test_replay_of_pong_is_thirty_times_smaller_than_stacked_transitions(start, name):
    config = {"fragmentLength": 32, "iterationTimesteps": 256, "replayCapacity": 10_000, "learningStarts": 250}
    environment = {"id": "ALE/Pong-v5", "wrappers": "atari"}
    optimizer = start(
        optimizer=name, environment=environment, evaluators=pools(0), config={**config, "trainRatio": 0.2}
    )
    for _ in range(2):
        optimizer.step()
    counts = optimizer.collect_metrics().counts
    assert counts["replay_timesteps"] >= 500
    assert counts["replay_bytes"] < counts["replay_timesteps"] * 2 * 4 * 84 * 84 / 30
    assert optimizer.timesteps_trained > 0


# over Ray ---------------------------------------------------------------------


def test_sync_replay_over_ray_gives_the_same_numbers_as_in_one_process(start, local_ray):
    here, there = start(), start(use_ray=True)
    for optimizer in (here, there):
        for _ in range(2):
            optimizer.step()
    np.testing.assert_array_equal(weights(here), weights(there))


def test_async_replay_over_ray_trains_and_measures(start, local_ray):
    optimizer = start(
        use_ray=True,
        algorithm="ApexDQN",
        config={"replayShards": 2, "iterationTimesteps": 1000, "maxWeightSyncDelay": 64},
    )
    assert isinstance(optimizer.shards, RemoteShards)
    for _ in range(3):
        optimizer.step()
    progress = optimizer.collect_metrics()
    counts = progress.counts
    assert counts["replay_timesteps"] == 500
    assert all(held.timesteps > 0 for held in optimizer.shards.held)
    assert optimizer.timesteps_trained == pytest.approx(2 * optimizer.timesteps_sampled, rel=0.25)
    assert counts["dropped_timesteps"] == counts["shards_lost"] == counts["evaluators_lost"] == 0
    assert 0 < progress.staleness < 400
    assert optimizer.weight_syncs > 10
    versions = optimizer.foreach_evaluator(policy_version)
    assert min(versions) > 0
    saved = optimizer.save()
    assert len(saved["shards"]) == 2


def test_a_lost_evaluator_and_a_lost_shard_are_replaced_without_stopping(start, local_ray):
    optimizer = start(
        use_ray=True, algorithm="ApexDQN", config={"replayShards": 2, "iterationTimesteps": 500, "replayCapacity": 4000}
    )
    for _ in range(2):
        optimizer.step()
    trained = optimizer.timesteps_trained
    os.kill(optimizer.foreach_evaluator(process_id)[1], signal.SIGKILL)
    import ray

    ray.kill(optimizer.shards._actors[0])
    for _ in range(4):
        optimizer.step()
    counts = optimizer.collect_metrics().counts
    assert counts["evaluators_lost"] == 1
    assert counts["shards_lost"] == 1
    assert counts["dropped_timesteps"] > 0
    assert optimizer.timesteps_trained > trained + 1000
    assert all(held.timesteps > 0 for held in optimizer.shards.held)


# what is refused --------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"environment": {"id": "Pendulum-v1"}}, "DQN supports Discrete"),
        ({"algorithm": "TD3"}, "TD3 supports Box"),
        ({"algorithm": "ApexDDPG"}, "ApexDDPG supports Box"),
        ({"model": {"lstmSize": 8}}, "SyncReplay replays transitions"),
        ({"algorithm": "SAC", "model": {"lstmSize": 8}}, "SAC has no recurrent form"),
        ({"model": {"custom": "tests.jobs:Anything"}}, "builds its networks itself"),
    ],
)
def test_what_cannot_be_trained_is_said_before_anything_starts(start, spec, says):
    with pytest.raises(UnsupportedError, match=says):
        start(**spec)


def test_a_replay_that_cannot_fit_is_said_before_anything_starts(start):
    with pytest.raises(UserError, match=r"replayCapacity: 9,000,000,000 transitions .* GiB are free") as refused:
        start(config={"replayCapacity": 9_000_000_000})
    assert "fit" in str(refused.value)


def test_a_replay_that_learning_would_never_begin_with_is_refused():
    with pytest.raises(ValueError, match="training would not begin"):
        make_job(algorithm="DQN", config={"replayCapacity": 100, "learningStarts": 101})
