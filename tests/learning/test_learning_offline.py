"""BC and MARWIL learn CartPole from records, on fixed seeds."""

import numpy as np
import pytest

from rlcore.api import RLJob
from rlcore.driver.play import open_player, record_checkpoint
from rlcore.driver.run import RunOptions, run_job
from rlcore.offline.records import RecordWriter, read_info
from rlcore.offline.transitions import transitions_of
from rlcore.sample_batch import DEFAULT_POLICY
from tests.learning.gate import SEEDS, Silent, load_example, train

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def expert(tmp_path_factory):
    """The run directory of a policy that earns 475."""
    root = tmp_path_factory.mktemp("expert")
    document = load_example("cartpole-ppo.yaml")
    return train(document, root, seed=0).metrics.parent


@pytest.fixture(scope="module")
def mixed(expert, tmp_path_factory):
    """Records of which one timestep in five is the expert's; the others are of a policy that prefers what it avoids."""
    folder = tmp_path_factory.mktemp("mixed") / "records"
    record_checkpoint(expert, folder, timesteps=5_000, seed=0)
    player = open_player(expert, seed=1, environments=16)
    policy = player.evaluator.policies[DEFAULT_POLICY]
    for parameter in policy.model.policy_head.parameters():
        parameter.data.neg_()
    fragment = player.evaluator.run(20_000 // 16, explore=True)[DEFAULT_POLICY]
    player.evaluator.close()
    RecordWriter(folder, read_info(folder), append=True).write(transitions_of(fragment), [])
    return folder


def offline(algorithm: str, records, **config) -> dict:
    """A manifest that learns from records."""
    document = load_example("cartpole-marwil.yaml", algorithm=algorithm)
    document["spec"]["config"] = {"input": str(records), "trainBatchSize": 4096, "minibatchSize": 256, **config}
    document["metadata"]["name"] = f"offline-{algorithm.lower()}"
    return document


def evaluated(document: dict, root, seed: int) -> float:
    """Mean reward of the deterministic policy at the end."""
    spec = {**document["spec"], "seed": seed, "evaluation": {"every": 1000, "episodes": 50}}
    spec["stop"] = {"timesteps": 300_000}
    job = RLJob.model_validate(
        {**document, "metadata": {"name": f"{document['metadata']['name']}-{seed}"}, "spec": spec}
    )
    report = run_job(job, RunOptions(root=root, in_process=True), Silent())
    return report.completion["evaluation"]["episode_reward_mean"]


def test_bc_reaches_400_from_a_trained_policys_records(expert, tmp_path):
    record_checkpoint(expert, tmp_path / "records", timesteps=20_000, seed=0)
    rewards = []
    for seed in SEEDS:
        rewards.append(evaluated(offline("BC", tmp_path / "records"), tmp_path, seed))
        print(f"seed {seed}: {rewards[-1]:.1f}")
    assert sum(reward >= 400 for reward in rewards) >= 2


def test_marwil_is_better_than_bc_on_records_of_mixed_quality(mixed, tmp_path):
    """If there were no difference, three runs of one would lie above all three of the other with probability 1/20."""
    rewards = {
        algorithm: [evaluated(offline(algorithm, mixed, **config), tmp_path, seed) for seed in SEEDS]
        for algorithm, config in (("BC", {}), ("MARWIL", {"beta": 2.0}))
    }
    print({algorithm: np.round(found, 1).tolist() for algorithm, found in rewards.items()})
    assert min(rewards["MARWIL"]) > max(rewards["BC"])
