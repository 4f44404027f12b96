"""PPO learns: the example manifests, on fixed seeds."""

import dataclasses
from collections.abc import Iterator

import pytest

from tests.jobs import make_job, pools
from tests.learning.gate import Trial, assert_two_of_three, load_example, trials

pytestmark = pytest.mark.timeout(1500)


def test_cartpole_reaches_475_in_200_000_timesteps(tmp_path):
    document = load_example("cartpole-ppo.yaml", stop={"timesteps": 200_000, "episodeReward": 475})
    assert_two_of_three(trials(document, tmp_path))


def test_pendulum_reaches_minus_300_in_400_000_timesteps(tmp_path):
    document = load_example("pendulum-ppo.yaml", stop={"timesteps": 400_000, "episodeReward": -300})
    assert_two_of_three(trials(document, tmp_path))


def test_minatar_breakout_with_a_cnn_triples_a_random_policys_reward_in_300_000_timesteps(tmp_path):
    # A new policy is uniform: its first episodes are what a random one earns (about 0.5; the margin is for luck).
    document = load_example("minatar-breakout-ppo.yaml", stop={"timesteps": 300_000, "episodeReward": 6})

    def judged() -> Iterator[Trial]:
        for trial in trials(document, tmp_path):
            yield dataclasses.replace(trial, passed=trial.best >= 3 * max(trial.first, 1.0))

    done = assert_two_of_three(judged())
    assert all(trial.first < 1.5 for trial in done), "the first episodes are not a random policy's"


def as_document(name: str, **spec) -> dict:
    return make_job(name, **spec).model_dump(mode="json", by_alias=True, exclude_unset=True)


@pytest.mark.parametrize("memory", [True, False], ids=["lstm", "feed-forward"])
def test_a_bit_to_remember_is_learned_with_an_lstm_and_never_without(tmp_path, memory):
    document = as_document(
        "memory",
        environment={"id": "tests.jobs:MemoryEnv"},
        model={"hiddens": [32], **({"lstmSize": 32} if memory else {})},
        config={
            "trainBatchSize": 2048, "minibatchSize": 256, "numEpochs": 8, "learningRate": 3e-3, "gamma": 1.0,
            "gaeLambda": 1.0, "maxSequenceLength": 16,
        },
        stop={"timesteps": 60_000, "episodeReward": 0.9},
        evaluators=pools(0, envs=16),
    )  # fmt: skip
    if memory:
        assert_two_of_three(trials(document, tmp_path))
    else:
        assert next(trials(document, tmp_path)).best < 0.5


def test_masked_actions_are_never_taken_and_the_best_allowed_one_is_learned(tmp_path):
    # The environment raises for a forbidden action, and no failure is tolerated.
    document = as_document(
        "masked",
        environment={"id": "tests.jobs:MaskedEnv", "maxFailures": 0},
        config={"trainBatchSize": 1024, "minibatchSize": 128, "numEpochs": 8, "learningRate": 3e-3, "gamma": 0.0},
        stop={"timesteps": 60_000, "episodeReward": 9.5},
        evaluators=pools(0, envs=16),
    )
    assert_two_of_three(trials(document, tmp_path))
