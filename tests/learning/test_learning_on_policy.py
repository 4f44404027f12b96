"""PG, A2C, A3C, IMPALA and APPO learn, and so does each under every optimizer that it allows; PPO under Allreduce."""

import numpy as np
import pytest

from tests.jobs import make_job, pools
from tests.learning.gate import SEEDS, assert_two_of_three, load_example, train, trials

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


# The same algorithm under each of its optimizers: the same goal in the same number of timesteps, on every seed that
# passes; the default optimizers are covered above and in test_learning_ppo.py.
@pytest.mark.parametrize(
    ("example", "optimizer", "changes"),
    [
        ("cartpole-ppo.yaml", "Allreduce", {}),
        ("cartpole-ppo.yaml", "SyncSamples", {"numEpochs": 10, "trainBatchSize": 512, "learningRate": 2e-3}),
        ("cartpole-a3c.yaml", "ShardedParameterServer", {}),
        ("cartpole-a3c.yaml", "SyncSamples", {"trainBatchSize": 320}),
        ("cartpole-impala.yaml", "SyncSamples", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_optimizer_reaches_the_same(tmp_path, example, optimizer, changes):
    document = load_example(example, stop=CARTPOLE, optimizer=optimizer)
    document["spec"]["config"] |= changes
    assert_two_of_three(trials(document, tmp_path))


@pytest.mark.parametrize(
    ("example", "optimizers"),
    [
        ("cartpole-a3c.yaml", ["AsyncGradients", "ShardedParameterServer"]),
        ("cartpole-ppo.yaml", ["LocalMultiGPU", "Allreduce"]),
        ("cartpole-impala.yaml", ["AsyncSamples", "SyncSamples"]),
    ],
    ids=["a3c", "ppo", "impala"],
)
def test_optimizers_differ_by_less_than_seeds_do(tmp_path, example, optimizers):
    """Best window of episodes after 100,000 timesteps, three seeds each: the means differ by less than the spread."""
    best = {}
    for optimizer in optimizers:
        document = load_example(example, stop={"timesteps": 100_000}, optimizer=optimizer)
        if optimizer == "AsyncSamples":
            # In one process evaluators would always have the newest weights, and both do the very same.
            document["spec"]["config"]["broadcastInterval"] = 4
        best[optimizer] = [train(document, tmp_path / optimizer, seed=seed).best for seed in SEEDS]
    print(best)
    one, other = (np.array(best[optimizer]) for optimizer in optimizers)
    # Two standard deviations of the difference of two means of three.
    spread = 2 * np.sqrt((one.var(ddof=1) + other.var(ddof=1)) / len(SEEDS))
    assert abs(one.mean() - other.mean()) <= max(spread, 50.0)


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
