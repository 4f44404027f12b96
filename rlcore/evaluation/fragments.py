"""Joining fragments in time, and keeping whole episodes only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rlcore.sample_batch import Fragment


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

    masks = [part.action_mask for part in parts]
    return replace(
        first,
        observations=np.concatenate([*(part.observations[:-1] for part in parts), last.observations[-1:]]),
        actions=in_time("actions"),
        rewards=in_time("rewards"),
        terminated=in_time("terminated"),
        truncated=in_time("truncated"),
        valid=in_time("valid"),
        extras={name: np.concatenate([part.extras[name] for part in parts]) for name in first.extras},
        action_mask=None if masks[0] is None else np.concatenate([*(m[:-1] for m in masks), masks[-1][-1:]]),  # type: ignore[index]
        states=[np.concatenate(column) for column in zip(*(part.states for part in parts), strict=True)],
        last_state=last.last_state,
    )


def keep_complete_episodes(fragment: Fragment, enough_at: int) -> tuple[Fragment, bool]:
    """Marks as not valid whatever came after the episode that each slot was in at step `enough_at`.

    Returns:
        The fragment, and whether each of these episodes has ended in it.
    """
    done = fragment.terminated | fragment.truncated
    steps = np.arange(fragment.length)[:, None]
    # A slot between two episodes at `enough_at` (its last row ended one) needs no further one.
    ends = np.where(done & (steps >= enough_at - 1), steps, fragment.length).min(axis=0)
    finished = bool((ends < fragment.length).all())
    return replace(fragment, valid=fragment.valid & (steps <= ends)), finished
