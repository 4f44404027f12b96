"""n-step returns on time-major fragments, as rows for replay.

    R = sum_{k < m} gamma^k r_{t+k},   target = R + discount * V(s_{t+m})

m is n, or less where the episode ends first (or the fragment, where it does not hold back its last n - 1 steps for the
next one: PolicyGraph.lookahead). A terminated step has discount 0; a truncated one is
bootstrapped with its true last observation, which under next-step autoreset is the row after it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlcore.policy.sequences import flatten_rows
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    DISCOUNTS,
    NEXT_ACTION_MASK,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    REWARDS,
    Fragment,
    SampleBatch,
)


class NStep(NamedTuple):
    """For each step of a fragment, all [T, N]; rows that are no transition hold what does not matter."""

    returns: np.ndarray  # float32, sum of discounted rewards
    discounts: np.ndarray  # float32, of the value at `next_rows`; 0 after a termination
    next_rows: np.ndarray  # int64, row of the observation that the return leads to, up to T


def n_step_returns(
    rewards: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    valid: np.ndarray,
    *,
    gamma: float,
    n: int,
) -> NStep:
    """Returns over up to n steps; never across the end of an episode, an invalid row or the end of the fragment.

    Args:
        rewards: float32 [T, N].
        terminated: bool [T, N]; wins where `truncated` is True too.
        truncated: bool [T, N].
        valid: bool [T, N].
        gamma: discount, 0..1.
        n: at least 1.
    """
    length, slots = rewards.shape
    returns = np.zeros((length, slots), np.float32)
    discounts = np.ones((length, slots), np.float32)
    next_rows = np.tile(np.arange(length)[:, None], (1, slots))
    going = np.ones((length, slots), bool)
    for k in range(min(n, length)):
        steps = slice(k, length)
        here = slice(0, length - k)
        taken = going[here] & valid[steps]
        returns[here] += np.where(taken, np.float32(gamma**k) * rewards[steps], np.float32(0.0))
        ended = terminated[steps]
        discounts[here] = np.where(taken, np.where(ended, 0.0, gamma ** (k + 1)), discounts[here])
        next_rows[here] += taken
        going[here] = taken & ~(ended | truncated[steps])
        going[length - k :] = False
    return NStep(returns, discounts, next_rows)


def n_step_rows(fragment: Fragment, steps: NStep, extra: dict[str, np.ndarray]) -> SampleBatch:
    """Transitions as rows [B, ...], with `extra` columns [T, N, ...]; rows that are no transition are left out."""
    columns = {
        OBSERVATIONS: fragment.observations[:-1],
        ACTIONS: fragment.actions,
        REWARDS: steps.returns,
        DISCOUNTS: steps.discounts,
        NEXT_OBSERVATIONS: at_next_rows(fragment.observations, steps),
        **extra,
    }
    if fragment.action_mask is not None:
        columns[ACTION_MASK] = fragment.action_mask[:-1]
        columns[NEXT_ACTION_MASK] = at_next_rows(fragment.action_mask, steps)
    return flatten_rows(columns, fragment)


def at_next_rows(column: np.ndarray, steps: NStep) -> np.ndarray:
    """Entries [T, N, ...] of a column [T + 1, N, ...] at the rows that the returns lead to."""
    picked: np.ndarray = column[steps.next_rows, np.arange(column.shape[1])]
    return picked
