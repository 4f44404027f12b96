"""n-step returns: hand-worked, and against one loop a step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.policy.n_step import n_step_returns, n_step_rows
from rlcore.sample_batch import DISCOUNTS, NEXT_ACTION_MASK, NEXT_OBSERVATIONS, OBSERVATIONS, REWARDS, Fragment


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]


def flags(length, *true):
    found = np.zeros((length, 1), bool)
    found[list(true)] = True
    return found


def test_a_return_over_three_steps_by_hand():
    steps = n_step_returns(column(1, 2, 4, 8), flags(4), flags(4), ~flags(4), gamma=0.5, n=3)
    # 1 + 2/2 + 4/4; the last ones have only the steps that are there.
    np.testing.assert_allclose(steps.returns[:, 0], [3, 6, 8, 8])
    np.testing.assert_allclose(steps.discounts[:, 0], [0.125, 0.125, 0.25, 0.5])
    np.testing.assert_array_equal(steps.next_rows[:, 0], [3, 4, 4, 4])


def test_a_termination_ends_the_return_and_its_future():
    # Step 1 terminates, row 2 is the reset, step 3 is the next episode's.
    steps = n_step_returns(column(1, 2, 0, 8), flags(4, 1), flags(4), ~flags(4, 2), gamma=0.5, n=3)
    np.testing.assert_allclose(steps.returns[[0, 1, 3], 0], [2, 2, 8])
    np.testing.assert_allclose(steps.discounts[[0, 1, 3], 0], [0, 0, 0.5])


def test_a_truncation_ends_the_return_and_is_bootstrapped_with_the_true_last_observation():
    steps = n_step_returns(column(1, 2, 0, 8), flags(4), flags(4, 1), ~flags(4, 2), gamma=0.5, n=3)
    np.testing.assert_allclose(steps.returns[[0, 1, 3], 0], [2, 2, 8])
    np.testing.assert_allclose(steps.discounts[[0, 1, 3], 0], [0.25, 0.5, 0.5])
    np.testing.assert_array_equal(steps.next_rows[[0, 1, 3], 0], [2, 2, 4])


def test_a_step_that_both_terminates_and_is_truncated_has_no_future():
    steps = n_step_returns(column(1.0, 1.0), flags(2, 1), flags(2, 1), ~flags(2), gamma=0.9, n=2)
    np.testing.assert_allclose(steps.discounts[:, 0], [0, 0])


def one_by_one(rewards, terminated, truncated, valid, gamma, n):
    """The definition, a step at a time."""
    length, slots = rewards.shape
    found = np.zeros((3, length, slots))
    for t in range(length):
        for slot in range(slots):
            total, discount, row = 0.0, 1.0, t
            for k in range(t, min(t + n, length)):
                if not valid[k, slot]:
                    break
                total += discount * rewards[k, slot]
                discount *= gamma
                row = k + 1
                if terminated[k, slot]:
                    discount = 0.0
                if terminated[k, slot] or truncated[k, slot]:
                    break
            found[:, t, slot] = total, discount, row
    return found


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 6))
def test_returns_are_those_of_one_loop_a_step(seed, length, n):
    rng = np.random.default_rng(seed)
    terminated, truncated = rng.random((2, length, 3)) < 0.15
    valid = np.ones((length, 3), bool)
    valid[1:] = ~(terminated | truncated)[:-1]
    valid &= rng.random((length, 3)) > 0.05
    rewards = rng.standard_normal((length, 3)).astype(np.float32)
    steps = n_step_returns(rewards, terminated & valid, truncated & valid, valid, gamma=0.9, n=n)
    returns, discounts, rows = one_by_one(rewards, terminated & valid, truncated & valid, valid, 0.9, n)
    np.testing.assert_allclose(steps.returns[valid], returns[valid], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(steps.discounts[valid], discounts[valid], rtol=1e-6)
    np.testing.assert_array_equal(steps.next_rows[valid], rows[valid])


def test_rows_hold_the_observation_and_mask_that_the_return_leads_to():
    observations = np.arange(5, dtype=np.float32).reshape(5, 1, 1)
    mask = np.ones((5, 1, 2), bool)
    mask[3, 0, 1] = False
    fragment = Fragment(
        observations=observations, actions=np.zeros((4, 1), np.int64), rewards=column(1, 1, 1, 1),
        terminated=flags(4), truncated=flags(4, 1), valid=~flags(4, 2), action_mask=mask,
    )  # fmt: skip
    steps = n_step_returns(fragment.rewards, fragment.terminated, fragment.truncated, fragment.valid, gamma=1.0, n=2)
    rows = n_step_rows(fragment, steps, {})
    np.testing.assert_array_equal(rows[OBSERVATIONS][:, 0], [0, 1, 3])
    np.testing.assert_array_equal(rows[NEXT_OBSERVATIONS][:, 0], [2, 2, 4])
    np.testing.assert_array_equal(rows[REWARDS], [2, 1, 1])
    np.testing.assert_array_equal(rows[DISCOUNTS], [1, 1, 1])
    assert rows[NEXT_ACTION_MASK].shape == (3, 2)


@pytest.mark.parametrize("n", [1, 5, 100])
def test_returns_longer_than_the_fragment_are_as_long_as_it_is(n):
    steps = n_step_returns(column(1, 1), flags(2), flags(2), ~flags(2), gamma=1.0, n=n)
    assert steps.next_rows.max() == 2
