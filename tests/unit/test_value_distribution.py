"""C51's projection: hand-worked, and against loops over atoms."""

import numpy as np
import torch

from rlcore.policy.value_distribution import project

SUPPORT = torch.linspace(-2.0, 2.0, 5)


def projected(probabilities, reward, discount):
    return project(
        torch.tensor([probabilities]), torch.tensor([reward]), torch.tensor([discount]), SUPPORT
    )[0].numpy()  # fmt: skip


def test_what_falls_between_two_atoms_is_shared_by_nearness():
    # All mass at 1, moved to 0.25 + 0.5 * 1 = 0.75: a quarter to 0, three quarters to 1.
    np.testing.assert_allclose(projected([0.0, 0, 0, 1, 0], 0.25, 0.5), [0, 0, 0.25, 0.75, 0], atol=1e-6)


def test_what_falls_onto_an_atom_stays_whole():
    np.testing.assert_allclose(projected([0.0, 0, 0, 0, 1], 0.0, 0.5), [0, 0, 0, 1, 0], atol=1e-6)


def test_what_falls_beyond_the_atoms_goes_to_the_last_ones():
    np.testing.assert_allclose(projected([0.5, 0, 0, 0, 0.5], 3.0, 1.0), [0, 0, 0, 0.5, 0.5], atol=1e-6)


def test_a_terminal_reward_is_all_there_is():
    np.testing.assert_allclose(projected([0.2, 0.2, 0.2, 0.2, 0.2], -1.5, 0.0), [0.5, 0.5, 0, 0, 0], atol=1e-6)


def test_projections_are_those_of_loops_over_atoms():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(51), 64)
    rewards, discounts = rng.normal(0, 3, 64), rng.random(64)
    support = np.linspace(-10, 10, 51)
    expected = np.zeros((64, 51))
    for row in range(64):
        for j, z in enumerate(support):
            b = (np.clip(rewards[row] + discounts[row] * z, -10, 10) + 10) / 0.4
            low, high = int(np.floor(b)), int(np.ceil(b))
            if low == high:
                expected[row, low] += p[row, j]
            else:
                expected[row, low] += p[row, j] * (high - b)
                expected[row, high] += p[row, j] * (b - low)
    args = (torch.from_numpy(x.astype(np.float32)) for x in (p, rewards, discounts, support))
    found = project(*args).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_allclose(found.sum(1), 1.0, atol=1e-5)
