"""Recorded transitions: rows in the order of time, trajectory by trajectory.

Columns: observations and next_observations [B, *obs] as the environment gave them, actions [B, ...], rewards float32
[B], terminated and truncated bool [B], and action_mask bool [B, A] where the environment has one. A row that is
terminated or truncated is its trajectory's last; what the recording itself cut off is truncated.
"""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium as gym
import numpy as np

from rlcore.errors import UserError
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    REWARDS,
    Fragment,
    SampleBatch,
)

TERMINATED = "terminated"
TRUNCATED = "truncated"
REQUIRED = (OBSERVATIONS, NEXT_OBSERVATIONS, ACTIONS, REWARDS, TERMINATED, TRUNCATED)


def transitions_of(fragment: Fragment) -> SampleBatch:
    """The transitions of a fragment [T, N]; the steps of a slot stay together."""
    observations = fragment.observations if fragment.raw_observations is None else fragment.raw_observations
    rewards = fragment.rewards if fragment.paid_rewards is None else fragment.paid_rewards
    truncated = fragment.truncated & ~fragment.terminated
    # The last transition of each slot: what comes after it is not in the record.
    last = fragment.length - 1 - np.argmax(fragment.valid[::-1], axis=0)
    slots = np.arange(fragment.slots)
    truncated[last, slots] |= ~fragment.terminated[last, slots]
    columns = {
        OBSERVATIONS: observations[:-1],
        NEXT_OBSERVATIONS: observations[1:],
        ACTIONS: fragment.actions,
        REWARDS: rewards,
        TERMINATED: fragment.terminated,
        TRUNCATED: truncated,
    }
    if fragment.action_mask is not None:
        columns[ACTION_MASK] = fragment.action_mask[:-1]
    valid = fragment.valid.T
    rows = {name: np.ascontiguousarray(column.swapaxes(0, 1)[valid]) for name, column in columns.items()}
    return SampleBatch(rows, policy_version=fragment.policy_version)


def space_text(space: gym.Space) -> str:
    """A space in one line: kind, shape and dtype; two spaces of one text hold the same arrays."""
    if isinstance(space, gym.spaces.Box):
        return f"Box{space.shape} {np.dtype(space.dtype).name}"
    if isinstance(space, gym.spaces.Dict):
        return "Dict(" + ", ".join(f"{key}: {space_text(part)}" for key, part in space.spaces.items()) + ")"
    if isinstance(space, gym.spaces.Tuple):
        return "Tuple(" + ", ".join(space_text(part) for part in space.spaces) + ")"
    return str(space)


def require_same_spaces(source: str, found: tuple[str, str], wanted: tuple[str, str], environment: str) -> None:
    """Refuses records of other spaces than the environment's; each pair is (observations, actions).

    Raises:
        UserError: they differ; the message names both.
    """
    if found != wanted:
        raise UserError(
            f"{source} holds observations {found[0]} and actions {found[1]}; "
            f"{environment} has observations {wanted[0]} and actions {wanted[1]}",
            hint="name the environment that was recorded in spec.environment, or other records in spec.config.input",
            permanent=True,
        )


def check_rows(source: str, batch: SampleBatch) -> None:
    """Refuses what is not transitions.

    Raises:
        UserError: a column is missing, or nothing is in it, or numbers are not finite.
    """
    missing = [name for name in REQUIRED if name not in batch]
    if missing or not batch.size:
        what = f"has no {', '.join(missing)}" if missing else "holds no transition"
        raise UserError(f"{source} {what}", hint="`rlcore record` writes what can be read here", permanent=True)
    for name in (OBSERVATIONS, NEXT_OBSERVATIONS, ACTIONS, REWARDS):
        if batch[name].dtype.kind == "f" and not np.isfinite(batch[name]).all():
            raise UserError(f"{source}: {name} has numbers that are not finite", permanent=True)


def returns_to_go(
    rewards: np.ndarray, ends: Sequence[bool] | np.ndarray, gamma: float
) -> tuple[np.ndarray, np.ndarray]:
    """What is still to come in each row's trajectory, and the row where that ends.

    Args:
        rewards: float32 [B], trajectory by trajectory.
        ends: bool [B], the row is its trajectory's last one.
        gamma: discount.

    Returns:
        Discounted sums of rewards from the row to its trajectory's last one, float32 [B]; and the last one's row, int64
        [B].
    """
    size = len(rewards)
    lasts = np.flatnonzero(np.asarray(ends))
    last_row = lasts[np.searchsorted(lasts, np.arange(size))]
    totals = np.empty(size, np.float64)
    carried = 0.0
    ending = np.asarray(ends, bool).tolist()
    for row, reward in zip(range(size - 1, -1, -1), rewards[::-1].tolist(), strict=True):
        carried = totals[row] = reward + (0.0 if ending[row] else gamma * carried)
    return totals.astype(np.float32), last_row
