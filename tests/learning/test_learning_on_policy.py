"""PG, A2C, A3C, IMPALA and APPO learn; under their other optimizers see test_learning_equivalence.py."""

import pytest

from tests.jobs import make_job, pools
from tests.learning.gate import assert_two_of_three, load_example, trials

pytestmark = pytest.mark.timeout(1500)

CARTPOLE = {"timesteps": 500_000, "episodeReward": 475}


def as_document(name: str, **spec) -> dict:
    return make_job(name, **spec).model_dump(mode="json", by_alias=True, exclude_unset=True)


@pytest.mark.parametrize("algorithm", ["pg", "a2c", "a3c", "impala", "appo"])
def test_cartpole_reaches_475_in_500_000_timesteps(tmp_path, algorithm):
    assert_two_of_three(trials(load_example(f"cartpole-{algorithm}.yaml", stop=CARTPOLE), tmp_path))


def test_impala_learns_from_old_policies_too(tmp_path):
    """Evaluators get new weights after 8 updates only, and every third sample is a replayed one."""
    document = load_example("cartpole-impala.yaml", stop=CARTPOLE)
    document["spec"]["config"] |= {"broadcastInterval": 8, "replaySlots": 20, "replayProportion": 0.5}
    assert_two_of_three(trials(document, tmp_path))


def test_appo_learns_continuous_actions(tmp_path):
    document = as_document(
        "pendulum-appo",
        algorithm="APPO",
        environment={"id": "Pendulum-v1"},
        model={"hiddens": [64, 64]},
        config={
            "learningRate": 3e-3, "gamma": 0.9, "rewardScale": 0.1, "fragmentLength": 50, "numEpochs": 8,
            "trainBatchSize": 800, "minibatchSize": 200,
        },
        stop={"timesteps": 250_000, "episodeReward": -300},
        evaluators=pools(1, envs=16),
    )  # fmt: skip
    assert_two_of_three(trials(document, tmp_path))


@pytest.mark.parametrize("memory", [True, False], ids=["lstm", "feed-forward"])
def test_impala_remembers_a_bit_with_an_lstm_and_never_without(tmp_path, memory):
    document = as_document(
        "memory-impala",
        algorithm="IMPALA",
        environment={"id": "tests.jobs:MemoryEnv"},
        model={"hiddens": [32], **({"lstmSize": 32} if memory else {})},
        config={
            "trainBatchSize": 320, "fragmentLength": 20, "learningRate": 3e-3, "gamma": 1.0, "maxSequenceLength": 20,
            "entropyCoefficient": 0.01,
        },
        stop={"timesteps": 150_000, "episodeReward": 0.9},
        evaluators=pools(0, envs=16),
    )  # fmt: skip
    if memory:
        assert_two_of_three(trials(document, tmp_path))
    else:
        assert next(trials(document, tmp_path)).best < 0.5


@pytest.mark.parametrize("algorithm", ["A2C", "IMPALA"])
def test_masked_actions_are_never_taken_and_the_best_allowed_one_is_learned(tmp_path, algorithm):
    # The environment raises for a forbidden action, and no failure is tolerated.
    document = as_document(
        "masked",
        algorithm=algorithm,
        environment={"id": "tests.jobs:MaskedEnv", "maxFailures": 0},
        config={"trainBatchSize": 320, "fragmentLength": 20, "learningRate": 5e-3, "gamma": 0.0},
        stop={"timesteps": 150_000, "episodeReward": 9.5},
        evaluators=pools(0, envs=16),
    )
    assert_two_of_three(trials(document, tmp_path))
