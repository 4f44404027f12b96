"""Turn-based experience in each agent's own time.

In a turn-based environment most rows of a fragment are somebody else's turn. A transition of an agent runs from one of
its own turns to the next, or to its end: its reward is the sum of what came in between, and what follows it is the
agent's next own observation, however many rows later. Here the rows of each slot are moved together, so that everything
behind (advantages, n-step returns, V-trace) sees an agent as it sees any other.

    raw row     0      1      2      3      4      5
    turn of     a      b      a      b      a      (reset)
    rewards a          1             2      3, the end
    own rows of a:  0 -> 2 (1)    2 -> 4 (2)    4 -> its last observation (3)

What an agent earns before its first turn of an episode is the consequence of nothing that it did, and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlcore.sample_batch import Fragment


@dataclass(frozen=True)
class _Rows:
    """Where the rows of one slot come from, and what they hold."""

    source: np.ndarray  # int64 [K + 1], raw rows; the last one only follows
    own: np.ndarray  # int64 [C], which of the K rows are transitions
    rewards: np.ndarray  # float32 [C]
    ends: np.ndarray  # int64 [C], raw row of the end of the agent where the transition leads to it, else -1


class OwnTime:
    """Moves rows together, and keeps each slot's last turn until it is known what follows.

    Args:
        slots: N.
    """

    def __init__(self, slots: int) -> None:
        self._waiting = np.zeros(slots, bool)
        self._kept: Fragment | None = None

    def forget(self) -> None:
        """New episodes everywhere."""
        self._waiting[:] = False

    def take(self, fragment: Fragment) -> Fragment:
        """The transitions that a raw fragment completes, [L, N]: slots with fewer than L begin with invalid rows."""
        raw = self._with_kept(fragment)
        length, slots = raw.length, raw.slots
        earned = np.concatenate([np.zeros((1, slots)), np.cumsum(raw.rewards, axis=0, dtype=np.float64)])
        waiting = np.zeros(slots, bool)
        kept_row, kept_reward = np.zeros(slots, np.int64), np.zeros(slots, np.float32)
        found = []
        for slot in range(slots):
            turns, ends = np.flatnonzero(raw.valid[:, slot]), np.flatnonzero(raw.done[:, slot])
            rows = _rows_of(turns, ends, earned[:, slot], length)
            found.append(rows)
            if len(turns) > len(rows.own):
                waiting[slot], kept_row[slot] = True, turns[-1]
                kept_reward[slot] = earned[length, slot] - earned[turns[-1], slot]
        # A turn that waits for longer than a fragment is an older policy's.
        still_waiting = raw is not fragment and (waiting & (kept_row == 0)).any()
        version = raw.policy_version if still_waiting else fragment.policy_version
        self._keep(replace(raw, policy_version=version), waiting, kept_row, kept_reward)
        return _moved(raw, found)

    def get_state(self) -> dict[str, Any]:
        """The turns that wait for what follows."""
        state: dict[str, Any] = {"waiting": self._waiting.copy(), "kept": None}
        if self._kept is not None and self._waiting.any():
            kept = self._kept
            state["kept"] = {
                "observations": kept.observations,
                "actions": kept.actions,
                "rewards": kept.rewards,
                "action_mask": kept.action_mask,
                "raw_observations": kept.raw_observations,
                "extras": dict(kept.extras),
                "policy_version": kept.policy_version,
            }
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self._waiting[:] = state["waiting"]
        kept = state["kept"]
        nothing = np.zeros((1, len(self._waiting)), bool)
        self._kept = (
            None if kept is None else Fragment(**kept, terminated=nothing, truncated=nothing, valid=nothing.copy())
        )

    def _with_kept(self, fragment: Fragment) -> Fragment:
        """The fragment with the waiting turns as one more row before it."""
        kept = self._kept
        if kept is None or not self._waiting.any():
            return fragment

        def joined(name: str) -> Any:
            before, after = getattr(kept, name), getattr(fragment, name)
            return None if after is None else np.concatenate([before, after])

        return replace(
            fragment,
            observations=joined("observations"),
            actions=joined("actions"),
            rewards=joined("rewards"),
            terminated=np.concatenate([kept.terminated, fragment.terminated]),
            truncated=np.concatenate([kept.truncated, fragment.truncated]),
            valid=np.concatenate([self._waiting[None], fragment.valid]),
            extras={name: np.concatenate([kept.extras[name], column]) for name, column in fragment.extras.items()},
            action_mask=joined("action_mask"),
            raw_observations=joined("raw_observations"),
            policy_version=min(kept.policy_version, fragment.policy_version),
        )

    def _keep(self, raw: Fragment, waiting: np.ndarray, row: np.ndarray, rewards: np.ndarray) -> None:
        columns = np.arange(raw.slots)

        def picked(column: np.ndarray) -> np.ndarray:
            return column[row, columns][None].copy()

        nothing = np.zeros((1, raw.slots), bool)
        self._waiting = waiting
        self._kept = Fragment(
            observations=picked(raw.observations),
            actions=picked(raw.actions),
            rewards=rewards[None],
            terminated=nothing,
            truncated=nothing,
            valid=nothing,
            extras={name: picked(column) for name, column in raw.extras.items()},
            action_mask=None if raw.action_mask is None else picked(raw.action_mask),
            raw_observations=None if raw.raw_observations is None else picked(raw.raw_observations),
            policy_version=raw.policy_version,
        )


def _rows_of(turns: np.ndarray, ends: np.ndarray, earned: np.ndarray, length: int) -> _Rows:
    """The rows of one slot.

    Args:
        turns: raw rows of the agent's own turns, ascending.
        ends: raw rows in which it came to its end, ascending.
        earned: float64 [length + 1], rewards before each raw row.
        length: of the raw fragment.
    """
    nowhere = length + 1
    following = np.append(turns[1:], nowhere)[: len(turns)]
    end = np.append(ends, nowhere)[np.searchsorted(ends, turns)]
    over = end < following
    after = np.where(over, end + 1, following)
    known = after < nowhere
    turns, over, after, end = turns[known], over[known], after[known], end[known]
    # Behind an end comes a row that is no transition, with the agent's last observation: next-step autoreset.
    place = np.arange(len(turns)) + np.concatenate([[0], np.cumsum(over)[:-1]]) if len(turns) else turns
    source = np.zeros(len(turns) + int(over.sum()) + 1, np.int64)
    source[place] = turns
    source[place + 1] = np.where(over, after, source[place + 1])
    if len(turns):
        source[place[-1] + 1] = after[-1]
        source = source[: place[-1] + 2]
    rewards = (earned[after] - earned[turns]).astype(np.float32)
    return _Rows(source, place, rewards, np.where(over, end, -1))


def _moved(raw: Fragment, slots: list[_Rows]) -> Fragment:
    length, count = max(1, *(len(rows.source) - 1 for rows in slots)), len(slots)
    source = np.zeros((length + 1, count), np.int64)
    rewards = np.zeros((length, count), np.float32)
    terminated, truncated, valid = (np.zeros((length, count), bool) for _ in range(3))
    for slot, rows in enumerate(slots):
        # Slots end together: what follows the last row is for all of them the last observation.
        begin = length + 1 - len(rows.source)
        source[begin:, slot] = rows.source
        own = rows.own + begin
        valid[own, slot] = True
        rewards[own, slot] = rows.rewards
        over = rows.ends >= 0
        terminated[own[over], slot] = raw.terminated[rows.ends[over], slot]
        truncated[own[over], slot] = raw.truncated[rows.ends[over], slot]
    columns = np.arange(count)

    def picked(column: np.ndarray | None, rows: np.ndarray) -> Any:
        return None if column is None else column[rows, columns]

    return replace(
        raw,
        observations=picked(raw.observations, source),
        actions=picked(raw.actions, source[:-1]),
        rewards=rewards,
        terminated=terminated,
        truncated=truncated,
        valid=valid,
        extras={name: picked(column, source[:-1]) for name, column in raw.extras.items()},
        action_mask=picked(raw.action_mask, source),
        raw_observations=picked(raw.raw_observations, source),
        first_starts=None,
    )
