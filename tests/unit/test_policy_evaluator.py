"""PolicyEvaluator: fragments and episodes, filters, several policies, failures, state."""

import numpy as np
import pytest

from rlcore.env.normalize import MeanStdFilter
from rlcore.errors import EnvironmentFailure, NonFiniteError, UserError
from rlcore.evaluation.policy_evaluator import PolicyEvaluator, evaluator_for
from rlcore.policy.advantages import generalized_advantages
from rlcore.sample_batch import DEFAULT_POLICY, MultiAgentBatch
from tests.jobs import make_evaluator_config, pools


@pytest.fixture
def make():
    made: list[PolicyEvaluator] = []

    def build(worker_index: int = 0, **spec) -> PolicyEvaluator:
        made.append(PolicyEvaluator(evaluator_for(make_evaluator_config(**spec), worker_index)))
        return made[-1]

    yield build
    for evaluator in made:
        evaluator.close()


def counting(length: int = 5, limit: int = 1000, **environment):
    return {"id": "tests.jobs:CountingEnv", "kwargs": {"length": length, "limit": limit}, **environment}


def default(batch: MultiAgentBatch):
    return batch.policy_batches[DEFAULT_POLICY]


def test_a_fragment_has_steps_times_environments_less_resets(make):
    evaluator = make(
        environment=counting(length=5), config={"fragmentLength": 12, "trainBatchSize": 48, "minibatchSize": 8}
    )
    batch = evaluator.sample()
    # every slot: 5 transitions, a reset, 5 transitions, a reset
    assert batch.count == default(batch).count == 4 * 10
    assert default(batch)["observations"].dtype == np.float32
    assert batch.policy_version == 0


def test_advantages_are_computed_on_the_fragment_before_it_is_flattened(make):
    config = {"fragmentLength": 20, "trainBatchSize": 80, "minibatchSize": 8, "gamma": 0.9, "gaeLambda": 0.8}
    evaluator = make(environment=counting(length=7), config=config)
    observations = np.array([[t % 8] for t in range(21)], np.float32)
    policy = evaluator.policies[DEFAULT_POLICY]
    values = policy.values(observations, [])[:, None]
    valid = (np.arange(20) % 8 != 7)[:, None]
    expected = generalized_advantages(
        np.ones((20, 1), np.float32), values, np.arange(20)[:, None] % 8 == 6, np.zeros((20, 1), bool), valid,
        gamma=0.9, gae_lambda=0.8,
    )  # fmt: skip
    got = default(evaluator.sample())["advantages"].reshape(-1, 4)
    np.testing.assert_allclose(got[:, 0], expected[valid], atol=1e-5)


@pytest.mark.parametrize(("environment", "future"), [(counting(length=3), 0.0), (counting(length=10**6, limit=3), 1.0)])
def test_a_truncated_episode_is_bootstrapped_and_a_terminated_one_is_not(make, environment, future):
    evaluator = make(
        environment=environment,
        config={"fragmentLength": 3, "trainBatchSize": 12, "minibatchSize": 4, "gaeLambda": 0.0, "gamma": 0.5},
    )
    batch = default(evaluator.sample())
    value_of_last = float(evaluator.policies[DEFAULT_POLICY].values(np.array([[3.0]], np.float32), [])[0])
    targets = batch["value_targets"].reshape(3, 4)[2]
    np.testing.assert_allclose(targets, 1.0 + 0.5 * future * value_of_last, atol=1e-5)


def test_complete_episodes_are_whole_and_at_least_as_many_as_asked_for(make):
    config = {"fragmentLength": 10, "trainBatchSize": 40, "minibatchSize": 8, "batchMode": "completeEpisodes"}
    evaluator = make(environment=counting(length=7), config=config)
    for _ in range(2):
        whole, info = evaluator.sample_with_info()
        batch = default(whole)
        # only episodes that are in the batch are reported
        assert sum(e.length for e in info.episodes[DEFAULT_POLICY]) == info.timesteps
        assert batch.count >= 40
        assert batch.count % 7 == 0
        times, counts = np.unique(batch["observations"][:, 0], return_counts=True)
        assert times.tolist() == [0, 1, 2, 3, 4, 5, 6]
        assert len(set(counts)) == 1


def test_an_environment_without_end_is_an_error_in_episode_mode(make, monkeypatch):
    monkeypatch.setattr("rlcore.evaluation.policy_evaluator.ENDLESS_STEPS", 100)
    config = {"fragmentLength": 10, "trainBatchSize": 40, "minibatchSize": 8, "batchMode": "completeEpisodes"}
    evaluator = make(environment=counting(length=10**9, limit=10**9), config=config)
    with pytest.raises(UserError, match=r"did not end an episode.*\n.*maxEpisodeSteps"):
        evaluator.sample()


def test_info_tells_the_driver_what_it_needs(make):
    evaluator = make(
        environment=counting(length=5), config={"fragmentLength": 12, "trainBatchSize": 48, "minibatchSize": 8}
    )
    _, info = evaluator.sample_with_info()
    assert info.timesteps == 40
    assert [e.episode_return for e in info.episodes[DEFAULT_POLICY]] == [5.0] * 8
    assert info.sample_time_s > 0
    assert info.size_bytes > 0
    _, info = evaluator.sample_with_info()
    assert len(info.episodes[DEFAULT_POLICY]) == 8


def test_batches_carry_the_version_that_sampled_them(make):
    evaluator = make()
    evaluator.set_global_state(evaluator.get_weights(), 7, 1000, {})
    assert evaluator.sample().policy_version == 7


def test_equal_seeds_give_equal_samples_and_workers_differ(make):
    one, two, other = make(worker_index=1), make(worker_index=1), make(worker_index=2)
    first, second, third = (default(e.sample()) for e in (one, two, other))
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    assert not np.array_equal(first["observations"], third["observations"])
    np.testing.assert_array_equal(one.get_weights()[DEFAULT_POLICY], other.get_weights()[DEFAULT_POLICY])


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"config": {"observationFilter": "meanStd", "trainBatchSize": 512}},
        {"model": {"hiddens": [8], "lstmSize": 4}},
        {"environment": {"id": "Pendulum-v1"}},
    ],
    ids=["plain", "filter", "recurrent", "pendulum"],
)
def test_a_restored_evaluator_samples_the_same_as_the_original(make, spec):
    one, two = make(**spec), make(**spec)
    one.sample()
    assert two.restore(one.save(), salt=1) == 0
    two.set_filters(one.get_filters())
    for _ in range(2):
        first, second = default(one.sample()), default(two.sample())
        for name in first:
            np.testing.assert_array_equal(first[name], second[name])


def test_an_environment_without_state_begins_anew_and_says_what_that_costs(make):
    spec = {
        "environment": counting(length=100),
        "config": {"fragmentLength": 12, "trainBatchSize": 48, "minibatchSize": 8},
    }
    one, two = make(**spec), make(**spec)
    one.sample()
    assert two.restore(one.save(), salt=1) == 4 * 12
    assert default(two.sample())["observations"][:4, 0].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "change", [{"evaluators": pools(0, envs=8)}, {"environment": counting(vectorization="sync", length=9)}]
)
def test_a_state_of_other_environments_begins_anew(make, change):
    spec = {
        "environment": counting(length=100),
        "config": {"fragmentLength": 12, "trainBatchSize": 48, "minibatchSize": 8},
    }
    one, two = make(**spec), make(**{**spec, **change})
    one.sample()
    assert two.restore(one.save(), salt=1) == 4 * 12
    assert default(two.sample())["observations"][0, 0] == 0


def test_beginning_anew_does_not_play_the_runs_beginning_again(make):
    one, two = make(), make()
    two.begin_anew(salt=12345)
    assert not np.array_equal(default(one.sample())["observations"], default(two.sample())["observations"])


def test_policies_that_begin_anew_do_not_share_their_noise(make):
    evaluator = make(
        environment={"id": "tests.jobs:TwoAgents"},
        multiAgent={"policies": {"same": {}, "other": {}}, "mapping": "tests.jobs:own_policy"},
    )
    evaluator.begin_anew(salt=7)
    noises = [policy.draw_noise(4, 4) for policy in evaluator.policies.values()]
    assert not np.array_equal(*noises)


def test_an_infinite_observation_never_reaches_the_filter(make):
    config = {"observationFilter": "meanStd", "fragmentLength": 30, "trainBatchSize": 120, "minibatchSize": 8}
    environment = {"id": "tests.jobs:PoisonedEnv", "kwargs": {"what": "infinity", "after": 20}}
    evaluator = make(environment=environment, config=config)
    with pytest.raises(NonFiniteError, match="gave a observation that is not finite"):
        evaluator.sample()
    assert evaluator.tracks[DEFAULT_POLICY].filter.take_delta()["count"][0] == 0


def test_filters_are_constant_while_sampling_and_learn_from_deltas(make):
    config = {"observationFilter": "meanStd", "fragmentLength": 10, "trainBatchSize": 40, "minibatchSize": 8}
    evaluator = make(environment=counting(length=100), config=config)
    batch, info = evaluator.sample_with_info()
    assert default(batch)["observations"].reshape(10, 4)[:, 0].tolist() == list(range(10))
    merged = MeanStdFilter((1,))
    merged.merge([info.filter_deltas[DEFAULT_POLICY]])
    assert merged.mean.tolist() == [4.5]
    evaluator.set_filters({DEFAULT_POLICY: merged.get_state()})
    filtered = default(evaluator.sample())["observations"].reshape(10, 4)[:, 0]
    np.testing.assert_allclose(filtered, np.clip((np.arange(10, 20) - 4.5) / np.std(np.arange(10)), -10, 10), rtol=1e-5)


def test_action_masks_reach_the_policy_and_the_batch(make):
    evaluator = make(environment={"id": "tests.jobs:MaskedEnv"}, config={"trainBatchSize": 512})
    for _ in range(3):
        batch = default(evaluator.sample())
        taken = batch["action_mask"][np.arange(batch.count), batch["actions"]]
        assert taken.all()
        assert (batch["action_mask"].sum(1) == 2).all()
    assert evaluator.failures_total == 0


@pytest.mark.parametrize(
    ("mapping", "counts"), [("own_policy", {"same": 80, "other": 80}), ("one_policy", {"shared": 160})]
)
def test_agents_are_mapped_to_policies(make, mapping, counts):
    evaluator = make(
        environment={"id": "tests.jobs:TwoAgents"},
        multiAgent={"policies": {name: {} for name in counts}, "mapping": f"tests.jobs:{mapping}"},
        config={"fragmentLength": 22, "trainBatchSize": 88, "minibatchSize": 8},
    )
    batch = evaluator.sample()
    assert batch.count == 4 * 20  # environment steps
    assert {policy: b.count for policy, b in batch.policy_batches.items()} == counts


def test_only_trained_policies_are_in_the_batch(make):
    evaluator = make(
        environment={"id": "tests.jobs:TwoAgents"},
        multiAgent={"policies": {"same": {}, "other": {}}, "mapping": "tests.jobs:own_policy", "train": ["other"]},
    )
    assert list(evaluator.sample().policy_batches) == ["other"]
    assert evaluator.foreach_trainable_policy(lambda policy, policy_id: policy_id) == ["other"]
    assert evaluator.foreach_policy(lambda policy, policy_id: policy_id) == ["same", "other"]


def test_a_mapping_to_no_policy_is_named():
    config = make_evaluator_config(
        environment={"id": "tests.jobs:TwoAgents"},
        multiAgent={"policies": {"same": {}}, "mapping": "tests.jobs:own_policy"},
    )
    with pytest.raises(UserError, match="maps agent 'other' to 'other', which is no policy"):
        PolicyEvaluator(config)


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_nan_is_found_and_placed(make, what):
    evaluator = make(environment={"id": "tests.jobs:PoisonedEnv", "kwargs": {"what": what, "after": 20}})
    with pytest.raises(
        NonFiniteError, match=rf"gave a {what} that is not finite: \[?nan\]? .*evaluator 0, slot 0, step (19|20)"
    ):
        evaluator.sample()


def test_failing_environments_are_replaced_up_to_a_limit(make):
    environment = {"id": "tests.jobs:FailingEnv", "kwargs": {"length": 100}, "maxFailures": 9}
    evaluator = make(environment=environment, config={"fragmentLength": 22, "trainBatchSize": 88, "minibatchSize": 8})
    batch, info = evaluator.sample_with_info()
    assert batch.count == 4 * 18
    assert len(info.failures) == 8
    assert "the simulator crashed" in str(info.failures[0])
    with pytest.raises(
        EnvironmentFailure, match=r"failed 16 times on evaluator 0, more than .*maxFailures 9; .*seed \d+"
    ):
        evaluator.sample()


def test_gradients_and_weights_work_on_an_evaluator(make):
    evaluator = make()
    batch = evaluator.sample()
    before = evaluator.get_weights()[DEFAULT_POLICY].copy()
    stats = evaluator.learn_on_batch(batch)[DEFAULT_POLICY]
    assert np.isfinite(list(stats.values())).all()
    assert not np.array_equal(before, evaluator.get_weights()[DEFAULT_POLICY])
    assert evaluator.for_policy(lambda policy: policy.version, DEFAULT_POLICY) == 0
    assert evaluator.apply(lambda e, x: x + 1, 2) == 3


def test_evaluation_takes_equally_many_episodes_of_each_slot_and_is_deterministic(make):
    evaluator = make()
    first, second = evaluator.evaluate(6, seed=1), evaluator.evaluate(6, seed=1)
    assert first == second
    assert [e.slot for e in first] == [0, 1, 2, 3, 0, 1]
    assert evaluator.evaluate(6, seed=2) != first
