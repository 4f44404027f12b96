"""Small convolutional networks learn a MinAtar game under DQN, Ape-X and IMPALA; PPO is in test_learning_ppo.py."""

import pytest

from tests.learning.gate import assert_two_of_three, load_example, trials

pytestmark = pytest.mark.timeout(1500)


# A sound improvement in a minute a seed; thresholds are for test_learning_long.py. The mean of 100 episodes of a random
# policy is 0.5 with a standard error of less than 0.1, so that 2 is out of its reach by far.
@pytest.mark.parametrize(("algorithm", "timesteps"), [("dqn", 100_000), ("apex", 60_000), ("impala", 250_000)])
def test_breakout_is_played_four_times_as_well_as_by_a_random_policy(tmp_path, algorithm, timesteps):
    document = load_example(f"minatar-breakout-{algorithm}.yaml", stop={"timesteps": timesteps, "episodeReward": 2})
    done = assert_two_of_three(trials(document, tmp_path))
    assert all(trial.first < 1 for trial in done), "the first episodes are not a random policy's"
