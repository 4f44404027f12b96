"""Generalised advantage estimation on time-major fragments.

Source: Schulman et al. 2016, arXiv 1506.02438, equations 11-16.
"""

from __future__ import annotations

import numpy as np

from rlcore.sample_batch import ADVANTAGES, VALID, VALUE_TARGETS, VALUES, SampleBatch


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


def explained_variance(batch: SampleBatch) -> float:
    """1 - Var[target - value] / Var[target]: 1 is a perfect critic, 0 or less one that is no better than a constant."""
    targets, values = batch[VALUE_TARGETS], batch[VALUES]
    if batch.time_major:
        targets, values = targets[batch[VALID]], values[batch[VALID]]
    variance = float(targets.var())
    return 0.0 if variance < 1e-12 else 1.0 - float((targets - values).var()) / variance


def normalized_advantages(batch: SampleBatch) -> np.ndarray:
    """Advantages of the whole batch shifted to mean 0 and scaled to deviation 1 (floor 1e-4); padding stays out."""
    advantages = batch[ADVANTAGES]
    real = advantages[batch[VALID]] if batch.time_major else advantages
    scale = max(float(real.std()), 1e-4)
    return (advantages - real.mean()) / np.float32(scale)
