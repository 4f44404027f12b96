"""Algorithms on replay learn: the example manifests, on fixed seeds, in one process."""

import pytest

from tests.jobs import make_job, pools
from tests.learning.gate import assert_two_of_three, load_example, trials

pytestmark = pytest.mark.timeout(1500)


def as_document(name: str, **spec) -> dict:
    return make_job(name, **spec).model_dump(mode="json", by_alias=True, exclude_unset=True)


@pytest.mark.parametrize("optimizer", ["SyncReplay", "AsyncReplay"])
def test_dqn_reaches_450_on_cartpole_in_150_000_timesteps_under_either_optimizer(tmp_path, optimizer):
    stop = {"timesteps": 150_000, "episodeReward": 450}
    document = load_example("cartpole-dqn.yaml", stop=stop, optimizer=optimizer)
    assert_two_of_three(trials(document, tmp_path))


def test_apex_reaches_400_on_cartpole_in_150_000_timesteps_although_most_slots_explore(tmp_path):
    # The mean is over all slots, and a few of them take a random action every third step for good.
    document = load_example("cartpole-apex.yaml", stop={"timesteps": 150_000, "episodeReward": 400})
    assert_two_of_three(trials(document, tmp_path))


@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac"])
def test_pendulum_reaches_minus_250_in_40_000_timesteps(tmp_path, algorithm):
    # The window of 100 episodes is 20,000 timesteps long: the policy is that good by about 15,000.
    document = load_example(f"pendulum-{algorithm}.yaml", stop={"timesteps": 40_000, "episodeReward": -250})
    assert_two_of_three(trials(document, tmp_path))


def test_apex_ddpg_learns_pendulum(tmp_path):
    document = as_document(
        "apex-ddpg",
        algorithm="ApexDDPG",
        environment={"id": "Pendulum-v1"},
        config={
            "learningRate": 1e-3, "trainBatchSize": 128, "trainRatio": 48, "fragmentLength": 16, "gamma": 0.98,
            "targetUpdateRate": 0.01, "replayCapacity": 100_000,
        },
        stop={"timesteps": 40_000, "episodeReward": -400},
        evaluators=pools(0, envs=8),
    )  # fmt: skip
    assert_two_of_three(trials(document, tmp_path))


def test_dqn_never_takes_a_masked_action_and_learns_the_best_allowed_one(tmp_path):
    # The environment raises for a forbidden action, and no failure is tolerated.
    document = as_document(
        "masked",
        algorithm="DQN",
        environment={"id": "tests.jobs:MaskedEnv", "maxFailures": 0},
        config={"gamma": 0.0, "learningRate": 2e-3, "epsilonTimesteps": 5000, "epsilonFinal": 0.0},
        stop={"timesteps": 40_000, "episodeReward": 9.5},
        evaluators=pools(0, envs=16),
    )
    assert_two_of_three(trials(document, tmp_path))


def test_a_recurrent_dqn_remembers_a_bit(tmp_path):
    document = as_document(
        "memory",
        algorithm="DQN",
        optimizer="SyncBatchReplay",
        environment={"id": "tests.jobs:MemoryEnv"},
        model={"hiddens": [32], "lstmSize": 32},
        config={
            "gamma": 0.99, "learningRate": 2e-3, "fragmentLength": 16, "maxSequenceLength": 16, "trainBatchSize": 256,
            "trainRatio": 8, "epsilonTimesteps": 10_000, "epsilonFinal": 0.0, "targetUpdateInterval": 100,
        },
        stop={"timesteps": 60_000, "episodeReward": 0.9},
        evaluators=pools(0, envs=16),
    )  # fmt: skip
    assert_two_of_three(trials(document, tmp_path))


def test_sac_with_discrete_actions_learns_cartpole(tmp_path):
    document = as_document(
        "sac-discrete",
        algorithm="SAC",
        config={"learningRate": 1e-3, "trainBatchSize": 128, "trainRatio": 16, "fragmentLength": 8},
        model={"hiddens": [64, 64]},
        stop={"timesteps": 40_000, "episodeReward": 150},
        evaluators=pools(0, envs=8),
    )
    assert_two_of_three(trials(document, tmp_path))
