"""Every asynchronous strategy learns over real Ray, where evaluators overtake each other; staleness is gated too.

In one process the same optimizers take turns, and hardly anything is ever stale; the other learning tests do that. Here
two evaluators are actors, on two cores that they share with the learner.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.learning.gate import load_example, train

pytestmark = pytest.mark.timeout(600)

EVALUATORS = 2
SEEDS = (0, 1)


@dataclass(frozen=True)
class Strategy:
    """An example manifest under an optimizer, and what it may not exceed.

    Attributes:
        example: its file.
        optimizer: its name.
        stalest: updates that the oldest sample or gradient of an iteration may be behind, as the bounds have it.
        reward: mean of 100 episodes.
        config: changes to its hyper-parameters.
    """

    example: str
    optimizer: str
    stalest: int
    reward: float = 150
    config: dict[str, Any] = field(default_factory=dict)


STRATEGIES = [
    # Four times the number of evaluators: the optimizer's own bound, beyond which gradients are dropped.
    Strategy("cartpole-a3c.yaml", "AsyncGradients", 4 * EVALUATORS, config={"updatesPerIteration": 50}),
    Strategy("cartpole-a3c.yaml", "ShardedParameterServer", 4 * EVALUATORS, config={"updatesPerIteration": 50}),
    # A full queue, what each evaluator had under way when it was full, and the update that is being made.
    Strategy(
        "cartpole-impala.yaml",
        "AsyncSamples",
        2 + 2 * EVALUATORS + 1,
        config={"numAggregators": 2, "learnerQueueSize": 2, "samplesInFlight": 2, "trainBatchSize": 320},
    ),
    # There is an update for every 8 timesteps: 64 for the four samples of 128 under way, and up to 16 may be owed.
    # Twice as many, since a sample's first rows were held back from the one before.
    Strategy("cartpole-apex.yaml", "AsyncReplay", 2 * (64 + 16), config={"maxWeightSyncDelay": 128}),
    # All members are equal after every round.
    Strategy("cartpole-ppo.yaml", "Allreduce", 0),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.optimizer)
def test_an_asynchronous_strategy_learns_over_ray_and_stays_within_its_staleness(tmp_path, strategy):
    stop = {"timesteps": 150_000, "episodeReward": strategy.reward}
    document = load_example(strategy.example, stop=stop, optimizer=strategy.optimizer)
    document["spec"]["config"] |= strategy.config
    for seed in SEEDS:
        trial = train(document, tmp_path, seed=seed, in_process=False)
        lines = [json.loads(line) for line in trial.metrics.read_text().splitlines()]
        assert all(line["evaluators"] == EVALUATORS for line in lines)
        counts = lines[-1]["optimizer"]
        stalest = [line["optimizer"]["policy_staleness"] for line in lines]
        print(f"seed {seed}: {trial.best:.0f} after {trial.timesteps:,}, stalest {stalest}, {counts}")
        # In the middle of all iterations: an evaluator whose core was taken away for a while proves nothing.
        assert sorted(stalest)[len(stalest) // 2] <= strategy.stalest
        if applied := counts.get("gradients_applied"):
            assert counts["stale_gradients"] <= 0.05 * applied
        assert not counts.get("dropped_timesteps")
        if trial.passed:
            return
    raise AssertionError(f"neither of seeds {SEEDS} reached {strategy.reward} over Ray")
