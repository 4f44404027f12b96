"""Joining fragments in time, and collecting whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlcore.sample_batch import Fragment

_IN_TIME = (
    "observations", "actions", "rewards", "terminated", "truncated", "valid",
    "action_mask", "raw_observations", "paid_rewards",
)  # fmt: skip


def join_fragments(parts: Sequence[Fragment]) -> Fragment:
    """Consecutive fragments of the same slots as one; recurrent states must be evenly spaced over all of them.

    Raises:
        ValueError: a part's length is not a multiple of its `state_every`, so states would lie unevenly.
    """
    first, last = parts[0], parts[-1]
    if first.states and any(part.length % first.state_every for part in parts[:-1]):
        raise ValueError(f"fragments of lengths {[p.length for p in parts]} for states every {first.state_every} steps")

    def in_time(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    def overlapping(name: str) -> np.ndarray | None:
        # [T + 1] each: a part's last row is the next one's first.
        if getattr(first, name) is None:
            return None
        return np.concatenate([*(getattr(part, name)[:-1] for part in parts), getattr(last, name)[-1:]])

    observations = overlapping("observations")
    assert observations is not None
    return replace(
        first,
        observations=observations,
        actions=in_time("actions"),
        rewards=in_time("rewards"),
        terminated=in_time("terminated"),
        truncated=in_time("truncated"),
        valid=in_time("valid"),
        extras={name: np.concatenate([part.extras[name] for part in parts]) for name in first.extras},
        action_mask=overlapping("action_mask"),
        states=[np.concatenate(column) for column in zip(*(part.states for part in parts), strict=True)],
        last_state=last.last_state,
        raw_observations=overlapping("raw_observations"),
        paid_rewards=None if first.paid_rewards is None else in_time("paid_rewards"),
        agents={name: np.concatenate([part.agents[name] for part in parts]) for name in first.agents},
    )


def last_steps(fragment: Fragment, steps: int) -> Fragment:
    """The last steps as a fragment of their own, copied; recurrent states are left out."""
    first = max(0, fragment.length - steps)

    def cut(column: np.ndarray | None) -> np.ndarray | None:
        return None if column is None else column[first:].copy()

    columns: dict[str, Any] = {name: cut(getattr(fragment, name)) for name in _IN_TIME}
    return replace(
        fragment,
        **columns,
        extras={name: column[first:].copy() for name, column in fragment.extras.items()},
        agents={name: column[first:].copy() for name, column in fragment.agents.items()},
        states=[],
        last_state=[],
        first_starts=fragment.starts[first].copy(),
        held_back=0,
    )


def collect_complete_episodes(
    run: Callable[[], dict[str, Fragment]], target: int, most_steps: int
) -> dict[str, Fragment]:
    """Runs until `target` timesteps were begun and every episode then under way has ended.

    Short episodes are not preferred: whatever was begun is finished, whatever begins later is left out.

    Args:
        run: gives the next fragments by policy, all of one length, beginning with new episodes.
        target: timesteps, over all policies.
        most_steps: after so many vector steps an episode is taken to have no end.

    Raises:
        TimeoutError: `most_steps` were made.
    """
    parts: list[dict[str, Fragment]] = []
    begun = steps = 0
    enough_at: int | None = None
    ended: dict[str, np.ndarray] = {}
    while enough_at is None or not all(slots.all() for slots in ended.values()):
        if steps > most_steps:
            raise TimeoutError(f"no end of an episode in {steps} steps")
        part = run()
        parts.append(part)
        steps += next(iter(part.values())).length
        begun += sum(int(fragment.valid.sum()) for fragment in part.values())
        if enough_at is not None:
            ended = {policy_id: ended[policy_id] | fragment.done.any(axis=0) for policy_id, fragment in part.items()}
        elif begun >= target:
            enough_at = steps
            # A slot whose agent never came has no episode that could end.
            ended = {p: f.done[-1] | ~np.any([e[p].valid.any(axis=0) for e in parts], axis=0) for p, f in part.items()}
    joined = {policy_id: join_fragments([part[policy_id] for part in parts]) for policy_id in parts[0]}
    return {policy_id: keep_complete_episodes(fragment, enough_at) for policy_id, fragment in joined.items()}


def keep_complete_episodes(fragment: Fragment, enough_at: int) -> Fragment:
    """Marks as no transition whatever came after the episode that each slot was in at step `enough_at`."""
    steps = np.arange(fragment.length)[:, None]
    # A slot between two episodes at `enough_at` (its last row ended one) needs no further one.
    ends = np.where(fragment.done & (steps >= enough_at - 1), steps, fragment.length).min(axis=0)
    # Nor does one whose agent came later.
    ends = np.where(fragment.valid[:enough_at].any(axis=0), ends, enough_at - 1)
    return replace(fragment, valid=fragment.valid & (steps <= ends))
