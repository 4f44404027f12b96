"""ES, ARS, PPO-ES and population based training learn CartPole, on fixed seeds."""

import json
from pathlib import Path

import numpy as np
import pytest

from rlcore.api import RLJob
from rlcore.driver.run import RunOptions, run_job
from tests.learning.gate import Silent, assert_two_of_three, load_example, train, trials

pytestmark = pytest.mark.timeout(900)


def test_es_reaches_195_on_cartpole_in_500_000_timesteps(tmp_path):
    # The reward of perturbed policies, all of them: the noise-free one is better.
    document = load_example("cartpole-es.yaml", stop={"timesteps": 500_000, "episodeReward": 195})
    assert_two_of_three(trials(document, tmp_path))


def test_ars_reaches_475_on_cartpole_in_400_000_timesteps(tmp_path):
    document = load_example("cartpole-ars.yaml", stop={"timesteps": 400_000, "episodeReward": 475})
    assert_two_of_three(trials(document, tmp_path))


def test_ppo_es_reaches_475_on_cartpole_in_500_000_timesteps(tmp_path):
    document = load_example("cartpole-ppo-es.yaml", stop={"timesteps": 500_000, "episodeReward": 475})
    assert_two_of_three(trials(document, tmp_path))


def test_a_population_beats_its_worst_fixed_setting(tmp_path):
    """Four populations against four runs of the worst of their learning rates, at equal timesteps a trial.

    What is compared is the mean of all trials of a population, not its best one. If there were no difference, all four
    populations would lie above all four runs with probability 1/70.
    """
    worst, timesteps = 1e-5, 30_000
    population = {
        "size": 4,
        "interval": 5,
        "mutations": [{"parameter": "learningRate", "values": [worst, 1e-4, 1e-3, 5e-3]}],
    }
    document = load_example("cartpole-pbt.yaml", stop={"timesteps": timesteps}, population=population)
    alone = load_example("cartpole-pbt.yaml", stop={"timesteps": timesteps})
    del alone["spec"]["population"]
    alone["spec"]["config"]["learningRate"] = worst
    means, fixed = [], []
    for seed in range(4):
        means.append(population_mean(document, tmp_path, seed))
        metrics = train(alone, tmp_path / "fixed", seed=seed).metrics.read_text().splitlines()
        fixed.append(json.loads(metrics[-1])["episode_reward_mean"])
    print(f"populations {np.round(means, 1)}, worst fixed setting {np.round(fixed, 1)}")
    assert min(means) > max(fixed)


def population_mean(document: dict, root: Path, seed: int) -> float:
    """Mean of the last rewards of all trials."""
    spec = {**document["spec"], "seed": seed}
    job = RLJob.model_validate({**document, "metadata": {"name": f"population-{seed}"}, "spec": spec})
    report = run_job(job, RunOptions(root=root, in_process=True), Silent())
    members = json.loads((report.directory.path / "population.json").read_text())["members"]
    return float(np.mean([member["score"] for member in members]))
