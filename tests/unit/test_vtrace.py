"""V-trace: by hand, against a naive recursion, and where it is something else that is known."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlcore.policy.advantages import generalized_advantages
from rlcore.policy.vtrace import vtrace

USUAL = {"gamma": 0.9, "trace_lambda": 1.0, "rho_clip": 1.0, "trace_clip": 1.0}


def run(ratios, rewards, values, terminated=None, truncated=None, valid=None, **settings):
    """One sequence; the last row bootstraps."""
    size = len(values)

    def flags(given, default):
        return torch.tensor(default if given is None else given)[:, None]

    column = lambda x: torch.tensor(x, dtype=torch.float64)[:, None]  # noqa: E731
    found = vtrace(
        column(ratios).log(),
        column(rewards),
        column(values),
        flags(terminated, [False] * size),
        flags(truncated, [False] * size),
        flags(valid, [True] * (size - 1) + [False]),
        **{**USUAL, **settings},
    )
    return [x[:, 0].numpy() for x in found]


def test_two_steps_by_hand():
    # rho and c are 1 (cut from 2) and 0.5; the bootstrap value is 3.
    #   delta_1 = 0.5 (2 + 0.9 * 3 - 2)           = 1.35
    #   delta_0 = 1.0 (1 + 0.9 * 2 - 1)           = 1.8
    #   v_1     = 2 + 1.35                        = 3.35
    #   v_0     = 1 + 1.8 + 0.9 * 1.0 * 1.35      = 4.015
    #   A_1     = 2 + 0.9 * 3 - 2                 = 2.7
    #   A_0     = 1 + 0.9 * 3.35 - 1              = 3.015
    targets, advantages, rhos = run([2.0, 0.5, 1.0], [1.0, 2.0, 0.0], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(targets, [4.015, 3.35, 3.0])
    np.testing.assert_allclose(advantages, [3.015, 2.7, 0.0])
    np.testing.assert_allclose(rhos, [1.0, 0.5, 1.0])


def test_the_two_clips_are_two():
    # rho-bar 2 lets delta_0 count twice, c-bar 0.25 lets little of delta_1 through; lambda halves that.
    targets, _, rhos = run(
        [3.0, 1.0, 1.0], [1.0, 2.0, 0.0], [1.0, 2.0, 3.0], rho_clip=2.0, trace_clip=0.25, trace_lambda=0.5
    )
    np.testing.assert_allclose(targets, [1 + 2 * 1.8 + 0.9 * 0.5 * 0.25 * 2.7, 2 + 2.7, 3.0])
    assert rhos[0] == 2.0


def test_after_termination_there_is_nothing_and_after_truncation_the_value():
    rows = {"ratios": [1.0] * 4, "rewards": [1.0, 5.0, 1.0, 0.0], "values": [1.0, 7.0, 2.0, 3.0]}
    # Row 1 only resets: it shows the last observation, worth 7, and its reward is not one.
    valid = [True, False, True, False]
    targets, advantages, _ = run(**rows, truncated=[True, False, False, False], valid=valid)
    np.testing.assert_allclose(targets, [1 + 0.9 * 7, 7.0, 1 + 0.9 * 3, 3.0])
    np.testing.assert_allclose(advantages, [0.9 * 7, 0.0, 1 + 0.9 * 3 - 2, 0.0])
    targets, advantages, _ = run(**rows, terminated=[True, False, False, False], valid=valid)
    np.testing.assert_allclose(targets, [1.0, 7.0, 1 + 0.9 * 3, 3.0])
    np.testing.assert_allclose(advantages[0], 0.0)
    # Both at once: it terminated.
    both = run(**rows, terminated=[True, False, False, False], truncated=[True, False, False, False], valid=valid)
    np.testing.assert_allclose(both[0][0], 1.0)


def naive(ratios, rewards, values, terminated, truncated, valid, *, gamma, trace_lambda, rho_clip, trace_clip):
    """Equation 1 as it stands: a sum over steps of products of traces, for every row anew."""
    targets, advantages = [], []
    steps = len(values) - 1

    def next_value(t):
        return 0.0 if terminated[t] else values[t + 1]

    for s in range(steps):
        total, product = values[s], 1.0
        for t in range(s, steps):
            if not valid[t]:
                break
            delta = min(rho_clip, ratios[t]) * (rewards[t] + gamma * next_value(t) - values[t])
            total += gamma ** (t - s) * product * delta
            if terminated[t] or truncated[t]:
                break
            product *= trace_lambda * min(trace_clip, ratios[t])
        targets.append(total)
    targets.append(values[-1])
    for s in range(steps):
        after = 0.0 if terminated[s] else (values[s + 1] if truncated[s] else targets[s + 1])
        advantages.append(rewards[s] + gamma * after - values[s] if valid[s] else 0.0)
    return targets, [*advantages, 0.0]


@given(
    st.integers(1, 12),
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.sampled_from([0.5, 1.0]),
)
def test_it_is_the_naive_recursion(steps, seed, trace_lambda, rho_clip, trace_clip):
    rng = np.random.default_rng(seed)
    terminated, truncated = rng.random((2, steps + 1)) < 0.15
    valid = np.append(rng.random(steps) < 0.85, False)
    # An episode's last row is followed by one that only resets.
    valid[1:] &= ~((terminated | truncated) & valid)[:-1]
    terminated, truncated = terminated & valid, truncated & valid
    numbers = np.exp(rng.standard_normal(steps + 1)), *rng.standard_normal((2, steps + 1))
    settings = {"gamma": 0.97, "trace_lambda": trace_lambda, "rho_clip": rho_clip, "trace_clip": trace_clip}
    flags = (terminated.tolist(), truncated.tolist(), valid.tolist())
    targets, advantages, _ = run(*(x.tolist() for x in numbers), *flags, **settings)
    expected_targets, expected_advantages = naive(*numbers, *flags, **settings)
    np.testing.assert_allclose(targets, expected_targets, atol=1e-9)
    np.testing.assert_allclose(advantages, expected_advantages, atol=1e-9)


@pytest.mark.parametrize("trace_lambda", [0.0, 0.6, 1.0])
def test_on_policy_its_targets_are_those_of_gae(trace_lambda):
    rng = np.random.default_rng(3)
    steps, slots = 9, 4
    rewards = rng.standard_normal((steps, slots)).astype(np.float32)
    values = rng.standard_normal((steps + 1, slots)).astype(np.float32)
    terminated = rng.random((steps, slots)) < 0.2
    valid = np.ones((steps, slots), bool)
    valid[1:] = ~terminated[:-1]
    terminated &= valid
    no = np.zeros_like(terminated)
    gae = generalized_advantages(rewards, values, terminated, no, valid, gamma=0.9, gae_lambda=trace_lambda)

    def longer(column):
        return torch.from_numpy(np.concatenate([column, np.zeros((1, slots), column.dtype)]))

    found = vtrace(
        torch.zeros(steps + 1, slots), longer(rewards), torch.from_numpy(values), longer(terminated), longer(no),
        longer(valid), **{**USUAL, "trace_lambda": trace_lambda},
    )  # fmt: skip
    np.testing.assert_allclose(found.targets.numpy()[:-1], values[:-1] + gae, atol=1e-5)


def test_it_passes_no_gradient_and_survives_huge_ratios():
    values = torch.zeros(3, 1, requires_grad=True)
    no = torch.zeros(3, 1, dtype=torch.bool)
    valid = torch.tensor([[True], [True], [False]])
    found = vtrace(torch.full((3, 1), 200.0), torch.ones(3, 1), values, no, no, valid, **USUAL)
    assert not found.targets.requires_grad
    assert all(math.isfinite(x) for x in found.targets.flatten().tolist())
