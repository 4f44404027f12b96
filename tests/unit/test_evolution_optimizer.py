"""ES and ARS as optimizers: whole episodes side by side, equal numbers here and over Ray, exact resumes, losses."""

import dataclasses

import numpy as np
import pytest

from rlcore.algorithms.evolution import descent
from rlcore.driver.build import build
from rlcore.driver.plan import Machine, make_plan
from rlcore.errors import UnsupportedError, UserError
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.evaluation.whole_episodes import play_whole_episodes
from rlcore.optimizers.perturbed import NOISE_INDICES, PerturbedEpisodes, SharedNoise
from rlcore.policy.crowd import InTurnCrowd, MLPCrowd
from rlcore.sample_batch import DEFAULT_POLICY, RETURNS
from tests.jobs import leave_the_process, make_evaluator_config, make_job, pools

SMALL = {"numDirections": 8, "noiseTableSize": 100_000}


@pytest.fixture
def start():
    """Builds a job's optimizer; all of them are stopped at the end."""
    running = []

    def _start(*, use_ray: bool = False, **spec):
        job = make_job(
            **{"algorithm": "ES", "config": SMALL, "evaluators": pools(2), "model": {"hiddens": [8]}, **spec}
        )
        parts = build(job.spec, make_plan(job.spec, Machine(cores=4, gpus=0)), seed=0, use_ray=use_ray)
        running.append(parts.optimizer)
        return parts.optimizer

    yield _start
    for optimizer in running:
        optimizer.stop()


@pytest.fixture
def evaluator():
    """Makes evaluators of ES jobs; all of them are closed at the end."""
    running = []

    def make(**spec):
        config = make_evaluator_config(**{"algorithm": "ES", "config": SMALL, "model": {"hiddens": [8]}, **spec})
        running.append(PolicyEvaluator(dataclasses.replace(config, worker_index=1)))
        return running[-1]

    yield make
    for one in running:
        one.close()


def weights(optimizer) -> np.ndarray:
    return optimizer.learner.get_weights()[DEFAULT_POLICY]


# crowds -----------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_every_slot_acts_by_its_own_parameters(evaluator, activation):
    policy = evaluator(model={"hiddens": [8, 5], "activation": activation}).policies[DEFAULT_POLICY]
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3, policy.flat.vector.numel())).astype(np.float32)
    observations = rng.normal(size=(3, 4)).astype(np.float32)
    crowd, in_turn = MLPCrowd(3, policy.flat, activation), InTurnCrowd(3, policy.model, policy.flat)
    alone = []
    for slot, vector in enumerate(vectors):
        crowd.place(slot, vector)
        in_turn.place(slot, vector)
        policy.set_weights(vector, 0)
        alone.append(policy.model(policy.flat.vector.new_tensor(observations[slot : slot + 1])).detach().numpy()[0])
    np.testing.assert_allclose(crowd(observations), alone, atol=1e-5)
    np.testing.assert_allclose(in_turn(observations), alone, atol=1e-5)


def test_a_convolutional_network_plays_too(evaluator):
    one = evaluator(environment={"id": "tests.jobs:ImageEnv"}, model={"hiddens": [8]})
    policy = one.policies[DEFAULT_POLICY]
    assert isinstance(policy.spread(4), InTurnCrowd)
    returns, timesteps = play_whole_episodes(one, DEFAULT_POLICY, lambda number: policy.get_weights(), 5)
    np.testing.assert_array_equal(returns, np.full(5, 5.0))
    assert timesteps == 25


# whole episodes ---------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 4, 11])
def test_each_vector_plays_one_whole_episode_whatever_the_number_of_slots(evaluator, count):
    one = evaluator(environment={"id": "tests.jobs:CountingEnv", "kwargs": {"length": 7}})
    centre = one.policies[DEFAULT_POLICY].get_weights()
    returns, timesteps = play_whole_episodes(one, DEFAULT_POLICY, lambda number: centre, count)
    np.testing.assert_array_equal(returns, np.full(count, 7.0))
    assert timesteps == 7 * count


def test_returns_belong_to_the_vectors_that_earned_them(evaluator):
    # The episode pays 1 for action 1 and is as long as it is: a vector's bias decides what it earns.
    one = evaluator(environment={"id": "tests.jobs:PaidActionEnv"}, model={"hiddens": []})
    policy = one.policies[DEFAULT_POLICY]
    chosen = [0, 1, 1, 0, 1, 0, 0]

    def vector(number):
        parameters = np.zeros(policy.flat.vector.numel(), np.float32)
        parameters[-2:] = (1, -1) if chosen[number] == 0 else (-1, 1)
        return parameters

    returns, _ = play_whole_episodes(one, DEFAULT_POLICY, vector, len(chosen))
    np.testing.assert_array_equal(returns, [6.0 * action for action in chosen])


def test_an_episode_that_the_environment_cut_off_is_played_again(evaluator):
    one = evaluator(environment={"id": "tests.jobs:FailsOnceEnv", "maxFailures": 10, "vectorization": "sync"})
    centre = one.policies[DEFAULT_POLICY].get_weights()
    returns, _ = play_whole_episodes(one, DEFAULT_POLICY, lambda number: centre, 6)
    np.testing.assert_array_equal(returns, np.full(6, 5.0))


def test_after_whole_episodes_the_policy_is_its_own_again(evaluator):
    one = evaluator()
    policy = one.policies[DEFAULT_POLICY]
    before = policy.get_weights()
    batch, info = PerturbedEpisodes(SharedNoise(100_000), 3, 0.05)(one)
    assert policy.crowd is None
    np.testing.assert_array_equal(policy.get_weights(), before)
    rows = batch.policy_batches[DEFAULT_POLICY]
    assert rows[RETURNS].shape == (3, 2)
    assert info.timesteps == batch.count == rows[RETURNS].sum()  # CartPole pays 1 a step
    assert sorted(e.episode_return for e in info.episodes[DEFAULT_POLICY]) == sorted(rows[RETURNS].reshape(-1))
    # indices and returns, whatever the number of parameters
    assert rows.size_bytes == 3 * (8 + 2 * 4)


# steps ------------------------------------------------------------------------


def test_a_step_tries_all_directions_and_moves_by_their_returns(start):
    optimizer = start()
    before = weights(optimizer)
    optimizer.step()
    progress = optimizer.collect_metrics()
    assert optimizer.counters["directions"] == 8
    assert len(progress.episodes) == 16
    assert progress.timesteps_sampled == progress.timesteps_trained == sum(e.length for e in progress.episodes)
    assert not np.array_equal(before, weights(optimizer))
    assert progress.learner[DEFAULT_POLICY]["return_max"] == max(e.episode_return for e in progress.episodes)


def test_more_directions_are_tried_until_the_batch_is_large_enough(start):
    optimizer = start(config={**SMALL, "numDirections": 2, "trainBatchSize": 1000})
    optimizer.step()
    assert optimizer.timesteps_sampled >= 1000
    assert optimizer.counters["directions"] > 2


@pytest.mark.parametrize("algorithm", ["ES", "ARS"])
def test_two_runs_with_one_seed_are_equal_to_the_last_bit(start, algorithm):
    config = {**SMALL, "observationFilter": "meanStd"}
    one, two = (start(algorithm=algorithm, config=config) for _ in range(2))
    for _ in range(3):
        one.step()
        two.step()
    np.testing.assert_array_equal(weights(one), weights(two))


def test_over_ray_the_numbers_are_the_same_as_in_one_process(start, local_ray):
    here, there = start(), start(use_ray=True)
    for _ in range(3):
        here.step()
        there.step()
    np.testing.assert_array_equal(weights(here), weights(there))
    # what came back: eight rows of 16 bytes a step
    assert there.counters["received_bytes"] == 3 * 8 * 16


def test_a_lost_evaluator_is_replaced_and_the_step_goes_on(start, local_ray):
    optimizer = start(use_ray=True)
    optimizer.step()
    optimizer.evaluators._actors[0].apply.remote(leave_the_process)
    optimizer.step()
    assert optimizer.evaluators_lost == 1
    assert optimizer.counters["directions"] >= 16


def test_a_tree_of_actors_joins_the_results_of_more_evaluators_than_one_can(start, local_ray):
    here, there = start(), start(use_ray=True, config={**SMALL, "evaluatorsPerAggregator": 1})
    for _ in range(2):
        here.step()
        there.step()
    assert there._tree.leaves == 2
    np.testing.assert_array_equal(weights(here), weights(there))


def test_a_restored_optimizer_goes_on_exactly(start):
    config = {**SMALL, "observationFilter": "meanStd"}
    one, two = start(config=config), start(config=config)
    one.step()
    two.restore(one.save())
    states = one.foreach_evaluator(PolicyEvaluator.save)
    two.broadcast()
    two.evaluators.foreach_with_index(lambda e, state: e.restore(state, salt=1), states)
    one.step()
    two.step()
    np.testing.assert_array_equal(weights(one), weights(two))


def test_the_descent_is_minus_the_weighted_directions(evaluator):
    noise = SharedNoise(100_000).array()
    one = evaluator()
    batch, _ = PerturbedEpisodes(SharedNoise(100_000), 4, 0.05)(one)
    rows = batch.policy_batches[DEFAULT_POLICY]
    gradient, stats = descent(rows, noise, 10, weigh=lambda returns: np.array([1.0, 0.0, -2.0, 0.0]))
    first, _, third, _ = rows[NOISE_INDICES]
    np.testing.assert_allclose(gradient, 2 * noise[third : third + 10] - noise[first : first + 10], rtol=1e-5)
    assert stats["directions_used"] == 2


# bad input --------------------------------------------------------------------


def test_a_recurrent_model_is_refused(start):
    with pytest.raises(UnsupportedError, match="lstmSize: 4"):
        start(model={"lstmSize": 4})


def test_several_policies_are_refused():
    with pytest.raises(ValueError, match=r"(?s)multiAgent.*ES"):
        make_job(
            algorithm="ES",
            config=SMALL,
            environment={"id": "tests.jobs:TwoAgents"},
            multiAgent={"policies": {"same": {}, "other": {}}, "mapping": "tests.jobs:own_policy"},
        )


def test_a_noise_table_that_is_too_small_is_refused(start):
    with pytest.raises(UserError, match="noiseTableSize: 1,000 numbers"):
        start(config={**SMALL, "noiseTableSize": 1000}, model={"hiddens": [64, 64]})


def test_a_discount_is_refused():
    with pytest.raises(ValueError, match=r"(?s)gamma.*0\.9 is not possible"):
        make_job(algorithm="ES", config={"gamma": 0.9})


def test_more_top_directions_than_directions_are_refused():
    with pytest.raises(ValueError, match=r"(?s)numTopDirections.*9 is more than numDirections 8"):
        make_job(algorithm="ARS", config={"numTopDirections": 9})
