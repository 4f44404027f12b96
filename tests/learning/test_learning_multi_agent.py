"""Several agents learn: shared and separate policies, self-play, MADDPG and QMIX; on fixed seeds, in one process."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.api import RLJob
from rlcore.checkpoint import CheckpointStore
from rlcore.driver.build import evaluator_config
from rlcore.driver.identity import identity
from rlcore.driver.plan import Machine, make_plan
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from tests.jobs import make_job, pools
from tests.learning.gate import SEEDS, Trial, assert_two_of_three, load_example, train, trials

pytestmark = pytest.mark.timeout(1500)

# simple_spread with three agents for 25 steps pays each of them this much when all act at random: the mean of 300
# episodes, with a standard error of 0.5 (0.5 with continuous actions, too).
RANDOM_SPREAD = -26.6


def as_document(name: str, **spec: Any) -> dict[str, Any]:
    return make_job(name, **spec).model_dump(mode="json", by_alias=True, exclude_unset=True)


@pytest.mark.parametrize("policies", [["pole"], ["pole_0", "pole_1"]], ids=["shared", "separate"])
def test_two_agents_balance_a_pole_each(tmp_path: Path, policies: list[str]) -> None:
    # Their episodes end one after the other: whoever falls first rests until the other has fallen too.
    document = as_document(
        "-".join(["poles", *policies]).replace("_", ""),
        environment={"id": "tests.multi_agent_envs:TwoCartPoles"},
        multiAgent={"policies": {name: {} for name in policies}},
        config={"trainBatchSize": 1024, "minibatchSize": 128, "numEpochs": 6, "learningRate": 1e-3, "gaeLambda": 0.9},
        stop={"timesteps": 200_000, "episodeReward": 450},
        evaluators=pools(0, envs=8),
    )
    assert_two_of_three(trials(document, tmp_path))


@pytest.mark.parametrize("algorithm", ["maddpg", "qmix"])
def test_simple_spread_is_played_clearly_better_than_at_random(tmp_path: Path, algorithm: str) -> None:
    """An improvement of more than seven standard errors in half a minute a seed; twice as good is the long test's."""
    document = load_example(f"simple-spread-{algorithm}.yaml", stop={"timesteps": 40_000, "episodeReward": -20.5})
    assert_two_of_three(trials(document, tmp_path))


def test_self_play_beats_random_play_and_its_own_past(tmp_path: Path) -> None:
    document = load_example("tictactoe-self-play.yaml", stop={"timesteps": 60_000})

    def judged() -> Iterator[Trial]:
        for seed in SEEDS:
            trial = train(document, tmp_path, seed=seed)
            final, snapshots, job = pool_of(document, tmp_path, seed)
            against_random = played(job, final, snapshots[0])
            against_past = played(job, final, snapshots[len(snapshots) // 3])
            print(f"seed {seed}: {against_random:.2f} against random play, {against_past:.2f} against its own past")
            # Wins less losses. Draws are 0, and with perfect play on both sides all are draws.
            yield dataclasses.replace(trial, passed=against_random >= 0.5 and against_past >= 0.3)

    assert_two_of_three(judged())


def pool_of(document: dict[str, Any], root: Path, seed: int) -> tuple[np.ndarray, list[np.ndarray], RLJob]:
    """The trained policy's parameters, its snapshots, oldest first, and the job."""
    name = f"{document['metadata']['name']}-{seed}"
    spec = {**document["spec"], "seed": seed}
    job = RLJob.model_validate({**document, "metadata": {"name": name}, "spec": spec})
    found = CheckpointStore(str(root / name / "checkpoints"), identity=identity(job)).latest()
    assert found is not None
    optimizer = found[1]["optimizer"]  # type: ignore[index]
    return optimizer["learner"]["policies"]["player_1"]["weights"], optimizer["self_play"]["weights"], job


def played(job: RLJob, policy: np.ndarray, opponent: np.ndarray, games: int = 400) -> float:
    """Mean reward of the first against the second, on both sides, as they act in training."""
    evaluator = PolicyEvaluator(evaluator_config(job.spec, make_plan(job.spec, Machine(cores=1, gpus=0)), seed=77))
    evaluator.set_weights({"player_1": policy, "player_2": opponent}, 0)
    rewards: list[float] = []
    while len(rewards) < games:
        rewards += [episode.episode_return for episode in evaluator.sample_with_info()[1].episodes["player_1"]]
    evaluator.close()
    return float(np.mean(rewards))
