"""The long tier: example manifests that take minutes to hours a seed on two cores; curves go to docs/results.

    make test-long                                     # all of them
    make test-long PYTEST_ARGS='-k hopper-ppo'         # one

Runs stay under runs/long, so that hours of work survive a restart: the same command goes on where it stopped.
"""

from pathlib import Path

import pytest

from tests.learning.gate import EXAMPLES, assert_two_of_three, load_example, trials

pytestmark = [pytest.mark.long, pytest.mark.timeout(24 * 3600)]

RESULTS = EXAMPLES.parent / "docs" / "results"
GATES = [
    # example, mean reward of 100 training episodes, within timesteps
    ("lunarlander-ppo", 200, 1_000_000),
    ("halfcheetah-ppo", 1300, 1_000_000),
    ("hopper-ppo", 2000, 1_000_000),
    ("halfcheetah-sac", 8000, 1_000_000),
    ("hopper-td3", 2700, 1_000_000),
    # Random play earns -26.6: twice as good.
    ("simple-spread-maddpg", -13.3, 2_000_000),
    ("simple-spread-qmix", -13.3, 2_000_000),
    ("minatar-breakout-dqn", 10, 2_000_000),
    ("pong-ppo", 18, 4_000_000),
    ("pong-apex", 15, 4_000_000),
    ("pong-impala", 15, 10_000_000),
]


@pytest.mark.parametrize(("example", "goal", "timesteps"), GATES, ids=[name for name, *_ in GATES])
def test_example_reaches_its_goal(example: str, goal: float, timesteps: int) -> None:
    from rlcore.metrics.plot import learning_curve

    document = load_example(f"{example}.yaml", stop={"timesteps": timesteps, "episodeReward": goal})
    done = assert_two_of_three(trials(document, Path("runs") / "long", in_process=False))
    curves = {f"seed {trial.seed}": trial.metrics for trial in done}
    learning_curve(curves, RESULTS / f"{example}.png", threshold=goal)
