"""Generalised advantage estimation on time-major fragments.

Source: Schulman et al. 2016, arXiv 1506.02438, equations 11-16.
"""

from __future__ import annotations

import numpy as np


def generalized_advantages(
    rewards: np.ndarray,
    values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    valid: np.ndarray,
    *,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """Advantages float32 [T, N]; value targets are these plus `values[:-1]`.

    A terminated step has no future; a truncated one is bootstrapped with the value of its true last observation, which
    is `values[t + 1]` under next-step autoreset. Rows that are no transition get 0 and pass nothing on.

    Args:
        rewards: float32 [T, N].
        values: float32 [T + 1, N], the last row bootstraps the fragment's end.
        terminated: bool [T, N].
        truncated: bool [T, N].
        valid: bool [T, N].
        gamma: discount, 0..1.
        gae_lambda: 0 (one-step TD error) .. 1 (Monte Carlo).
    """
    deltas = (rewards + np.float32(gamma) * values[1:] * ~terminated - values[:-1]) * valid
    decay = np.float32(gamma * gae_lambda) * ~(terminated | truncated | ~valid)
    advantages = np.empty_like(deltas)
    carry = np.zeros(rewards.shape[1], np.float32)
    for t in range(rewards.shape[0] - 1, -1, -1):
        carry = np.multiply(decay[t], carry, out=advantages[t])
        carry += deltas[t]
    return advantages
