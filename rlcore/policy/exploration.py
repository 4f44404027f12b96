"""How far policies that learn values stray from their best action."""

from __future__ import annotations

import numpy as np

# The fractional parts of multiples of the golden ratio fill 0..1 evenly, however many are taken.
GOLDEN_RATIO = 0.5 * (5.0**0.5 - 1.0)


def slot_epsilons(worker_index: int, slots: int, *, base: float = 0.4, exponent: float = 7.0) -> np.ndarray:
    """Ape-X's epsilons base^(1 + exponent x), float32 [slots] (Horgan et al. 2018, arXiv 1803.00933, section 4.1).

    There x = i / (N - 1) over all N actors. Evaluators come and go here, so x runs through a low-discrepancy sequence
    over (worker_index, slot): any first so many of them cover 0..1 evenly.

    Args:
        worker_index: 1.. for evaluators that train.
        slots: of this evaluator; equal for all of a job.
        base: epsilon at x = 0.
        exponent: how much smaller it is at x = 1.
    """
    numbers = max(0, worker_index - 1) * slots + np.arange(slots)
    x = (0.5 + numbers * GOLDEN_RATIO) % 1.0
    return (base ** (1.0 + exponent * x)).astype(np.float32)


def linear_epsilon(timesteps: int, *, initial: float, final: float, over: int) -> float:
    """From `initial` to `final` in a straight line over the first `over` timesteps."""
    return final if timesteps >= over else initial + (final - initial) * timesteps / over


def epsilon_greedy(
    best: np.ndarray, noise: np.ndarray, epsilons: np.ndarray | float, mask: np.ndarray | None
) -> np.ndarray:
    """Each row's best action, or with probability epsilon a uniform one among those allowed.

    Args:
        best: int64 [N].
        noise: float32 [N, 1 + A] uniform in 0..1: whether to stray, and whereto.
        epsilons: [N] or one for all.
        mask: bool [N, A] or None.
    """
    keys = noise[:, 1:]
    if mask is not None:
        keys = np.where(mask, keys, np.float32(-1.0))
    return np.where(noise[:, 0] < epsilons, keys.argmax(axis=1), best)
