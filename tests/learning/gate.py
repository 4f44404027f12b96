"""The gate that learning tests pass through: the same manifest with seeds 0, 1, 2, until two have reached the goal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.api import RLJob, load_job
from rlcore.driver.run import RunOptions, run_job
from rlcore.metrics.result import IterationResult

EXAMPLES = Path(__file__).parents[2] / "examples"
SEEDS = (0, 1, 2)
NEEDED = 2


class Silent:
    """A display that shows nothing."""

    def message(self, text: str) -> None:
        pass

    def start(self) -> None:
        pass

    def update(self, result: IterationResult) -> None:
        pass

    def stop(self) -> None:
        pass


@dataclass(frozen=True)
class Trial:
    """One seed's run.

    Attributes:
        seed: of the run.
        passed: the goal was reached.
        timesteps: trained when it ended.
        first: mean reward of the first window of episodes, close to a random policy's.
        best: largest mean reward of a window of 100 episodes.
        metrics: its metrics.jsonl.
    """

    seed: int
    passed: bool
    timesteps: int
    first: float
    best: float
    metrics: Path


def load_example(name: str, **changes: Any) -> dict[str, Any]:
    """An example manifest as a document; keyword arguments replace fields of spec."""
    job = load_job(EXAMPLES / name)
    document: dict[str, Any] = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["spec"].update(changes)
    return document


def train(document: dict[str, Any], root: Path, *, seed: int, in_process: bool = True) -> Trial:
    """Runs a manifest with one seed to its end."""
    name = f"{document['metadata']['name']}-{seed}"
    spec = {**document["spec"], "seed": seed, "evaluation": {"every": 0}}
    job = RLJob.model_validate({**document, "metadata": {"name": name}, "spec": spec})
    report = run_job(job, RunOptions(root=root, in_process=in_process), Silent())
    assert report.completion is not None
    lines = [json.loads(line) for line in report.directory.metrics.read_text().splitlines()]
    means = [line["episode_reward_mean"] for line in lines if line["episode_reward_mean"] is not None]
    goal = spec["stop"].get("episodeReward")
    passed = goal is not None and report.completion["episode_reward_mean"] >= goal
    return Trial(seed, passed, report.completion["timesteps"], means[0], max(means), report.directory.metrics)


def trials(document: dict[str, Any], root: Path, *, in_process: bool = True) -> Iterator[Trial]:
    """Seeds one after the other."""
    for seed in SEEDS:
        yield train(document, root, seed=seed, in_process=in_process)


def assert_two_of_three(runs: Iterator[Trial]) -> list[Trial]:
    """Passes as soon as two seeds have; fails as soon as two have not."""
    done: list[Trial] = []
    for trial in runs:
        done.append(trial)
        print(f"seed {trial.seed}: passed={trial.passed} best={trial.best:.1f} timesteps={trial.timesteps:,}")
        if sum(t.passed for t in done) >= NEEDED:
            return done
        if sum(not t.passed for t in done) > len(SEEDS) - NEEDED:
            break
    raise AssertionError(f"fewer than {NEEDED} of {len(SEEDS)} seeds reached the goal: {done}")
