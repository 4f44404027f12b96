"""One manifest under each optimizer that its algorithm allows: how far apart the learning curves end up.

A curve is judged by its area: the mean episode reward over all of training. It tells a learner that is twice as fast or
half as fast from a right one, which the reward at the end, near CartPole's 500, would not. The step sizes are below the
best ones for the same reason: there the speed of learning follows the number and the size of the steps.

    python -m tests.learning.equivalence --seeds 24      # the table of docs/results/README.md
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from rlcore.api.algorithms import ALGORITHMS
from tests.jobs import make_job, pools
from tests.learning.gate import train

RANDOM_REWARD = 22.0
"""What a random policy earns on CartPole-v1."""


@dataclass(frozen=True)
class Case:
    """A manifest on CartPole-v1, and the optimizers that train it.

    Attributes:
        algorithm: its name.
        timesteps: of one run.
        config: hyper-parameters, the same under every optimizer.
        optimizers: its names.
        hiddens: of the network.
        evaluators: see `tests.jobs.pools`.
    """

    algorithm: str
    timesteps: int
    config: dict[str, Any]
    optimizers: tuple[str, ...]
    hiddens: list[int] = field(default_factory=lambda: [32, 32])
    evaluators: dict[str, Any] = field(default_factory=lambda: pools(2, envs=16))


PPO = {"learningRate": 5e-4, "gamma": 0.99, "gaeLambda": 0.95, "trainBatchSize": 1024}
CASES = {
    # A batch that is one minibatch: SyncSamples knows no other.
    "PPO": Case("PPO", 60_000, PPO | {"minibatchSize": 1024, "numEpochs": 8}, ALGORITHMS["PPO"].optimizers),
    "PPO, minibatches": Case(
        "PPO",
        60_000,
        # Tiny rewards beside an entropy bonus: advantages that nobody scales are lost in it.
        PPO
        | {
            "minibatchSize": 256, "numEpochs": 4, "learningRate": 2.5e-4, "rewardScale": 0.002,
            "entropyCoefficient": 0.02,
        },
        ("LocalMultiGPU", "Allreduce"),
    ),
    # A train batch is one evaluator's sample, as a gradient is.
    "A3C": Case(
        "A3C",
        60_000,
        {"learningRate": 1e-3, "fragmentLength": 20, "trainBatchSize": 160, "updatesPerIteration": 20},
        ALGORITHMS["A3C"].optimizers,
        evaluators=pools(2, envs=8),
    ),
    # Every other batch is sampled by the policy before the newest: what SyncSamples never does, and V-trace corrects.
    "IMPALA": Case(
        "IMPALA",
        80_000,
        {
            "learningRate": 2e-3, "fragmentLength": 20, "trainBatchSize": 640, "updatesPerIteration": 5,
            "broadcastInterval": 2,
        },
        ALGORITHMS["IMPALA"].optimizers,
    ),
    # Not SyncBatchReplay, which draws whole samples: other data by intention, for recurrent policies.
    "DQN": Case(
        "DQN",
        25_000,
        {
            "learningRate": 1e-3, "trainBatchSize": 128, "trainRatio": 32, "fragmentLength": 8, "nStep": 3,
            "gamma": 0.97, "targetUpdateRate": 0.01, "epsilonTimesteps": 5000, "learningStarts": 500,
            "maxWeightSyncDelay": 64,
        },
        ("SyncReplay", "AsyncReplay"),
        hiddens=[64],
        evaluators=pools(1, envs=8),
    ),
}  # fmt: skip


def areas(case: Case, optimizer: str, seeds: Iterable[int], root: Path) -> np.ndarray:
    """Area under each seed's curve, in reward, [seeds]; in this process, without Ray."""
    spec = {
        "algorithm": case.algorithm,
        "optimizer": optimizer,
        "config": case.config,
        "model": {"hiddens": case.hiddens},
        "evaluators": case.evaluators,
        "stop": {"timesteps": case.timesteps},
    }
    document = make_job("equivalence", **spec).model_dump(mode="json", by_alias=True, exclude_unset=True)
    return np.array([_area(train(document, root / optimizer, seed=seed).metrics, case.timesteps) for seed in seeds])


def _area(metrics: Path, timesteps: int) -> float:
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    curve = [(x["timesteps"], x["episode_reward_mean"]) for x in lines if x["episode_reward_mean"] is not None]
    at, rewards = np.array(curve).T
    # Not from the very start, where nobody has learned and all are equal.
    return float(np.interp(np.linspace(0.2 * timesteps, timesteps, 100), at, rewards).mean())


def spread(one: np.ndarray, other: np.ndarray) -> float:
    """The standard deviation between seeds of one optimizer, pooled over both."""
    return float(np.sqrt((one.var(ddof=1) + other.var(ddof=1)) / 2))


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Difference of the means, in spreads between seeds."""
    return float(abs(one.mean() - other.mean()) / max(1e-9, spread(one, other)))


def table(seeds: int) -> Iterable[str]:
    """Rows in Markdown: every optimizer of every case."""
    yield "| algorithm | optimizer | mean area, reward | between seeds | distance from the others, in spreads |"
    yield "|---|---|---:|---:|---|"
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            found = {o: areas(case, o, range(seeds), Path(folder)) for o in case.optimizers}
        apart = {pair: distance(found[pair[0]], found[pair[1]]) for pair in combinations(found, 2)}
        for optimizer, values in found.items():
            others = [
                f"{(set(pair) - {optimizer}).pop()} {value:.2f}" for pair, value in apart.items() if optimizer in pair
            ]
            yield f"| {name} | {optimizer} | {values.mean():.1f} | {values.std(ddof=1):.1f} | {', '.join(others)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24)
    for row in table(parser.parse_args().seeds):
        print(row, flush=True)
