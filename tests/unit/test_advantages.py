"""GAE against hand-worked numbers and against its definition written as a double loop."""

import numpy as np

from rlcore.policy.advantages import generalized_advantages


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]


def gae(rewards, values, terminated, truncated, valid, gamma=0.9, gae_lambda=0.5):
    return generalized_advantages(
        column(*rewards),
        column(*values),
        column(*terminated, dtype=bool),
        column(*truncated, dtype=bool),
        column(*valid, dtype=bool),
        gamma=gamma,
        gae_lambda=gae_lambda,
    )[:, 0]


def test_three_steps_by_hand():
    # deltas: 1 + .9*3 - 2 = 1.7, 0 + .9*4 - 3 = .6, 2 + .9*5 - 4 = 2.5
    # advantages from the end: 2.5, .6 + .45*2.5 = 1.725, 1.7 + .45*1.725 = 2.47625
    advantages = gae([1, 0, 2], [2, 3, 4, 5], [0, 0, 0], [0, 0, 0], [1, 1, 1])
    assert np.allclose(advantages, [2.47625, 1.725, 2.5])


def test_a_terminal_state_has_no_future():
    # delta of the last step: 2 - 4 = -2, whatever value follows
    advantages = gae([1, 0, 2], [2, 3, 4, 1000], [0, 0, 1], [0, 0, 0], [1, 1, 1])
    assert np.allclose(advantages, [1.7 + 0.45 * (0.6 + 0.45 * -2), 0.6 + 0.45 * -2, -2])


def test_a_truncated_step_is_bootstrapped_and_nothing_flows_over_the_cut():
    # step 1 is cut off: its true last observation has value 4; row 2 is the reset and no transition
    advantages = gae([1, 0, 0, 7], [2, 3, 4, 5, 6], [0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 1])
    second_episode = 7 + 0.9 * 6 - 5
    assert np.allclose(advantages, [1.7 + 0.45 * 0.6, 0.6, 0, second_episode])


def test_termination_wins_where_both_are_set():
    both = gae([1], [2, 100], [1], [1], [1])
    assert np.allclose(both, [-1])


def test_a_failed_step_counts_for_nothing_and_the_step_before_is_bootstrapped():
    advantages = gae([1, 0], [2, 3, 50], [0, 0], [0, 1], [1, 0])
    assert np.allclose(advantages, [1 + 0.9 * 3 - 2, 0])


def test_agrees_with_the_definition_on_random_fragments():
    rng = np.random.default_rng(0)
    length, slots, gamma, lam = 30, 5, 0.97, 0.9
    rewards, values = rng.normal(size=(length, slots)), rng.normal(size=(length + 1, slots))
    terminated = rng.random((length, slots)) < 0.1
    truncated = (rng.random((length, slots)) < 0.1) & ~terminated
    valid = np.ones((length, slots), bool)
    valid[1:] = ~(terminated | truncated)[:-1]
    terminated &= valid
    truncated &= valid
    ours = generalized_advantages(
        rewards.astype(np.float32), values.astype(np.float32), terminated, truncated, valid, gamma=gamma, gae_lambda=lam
    )
    for n in range(slots):
        for t in range(length):
            expected, weight = 0.0, 1.0
            for k in range(t, length):
                if not valid[k, n]:
                    break
                future = 0.0 if terminated[k, n] else gamma * values[k + 1, n]
                expected += weight * (rewards[k, n] + future - values[k, n])
                if terminated[k, n] or truncated[k, n]:
                    break
                weight *= gamma * lam
            assert np.isclose(ours[t, n], expected if valid[t, n] else 0.0, atol=1e-4)
