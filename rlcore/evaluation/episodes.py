"""Episode returns and lengths, counted from whole fragments instead of step by step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Episode:
    """One finished episode: its undiscounted return (before reward clipping), its length in timesteps, its slot."""

    episode_return: float
    length: int
    slot: int = 0


class EpisodeCounter:
    """Carries the returns and lengths of unfinished episodes from fragment to fragment.

    Args:
        slots: N, environments that are counted.
    """

    def __init__(self, slots: int) -> None:
        self.returns = np.zeros(slots, np.float64)
        self.lengths = np.zeros(slots, np.int64)

    def update(self, rewards: np.ndarray, valid: np.ndarray, done: np.ndarray) -> list[Episode]:
        """Episodes that end in this fragment, in order of time, then of slot.

        Args:
            rewards: [T, N], as the environment paid them.
            valid: bool [T, N], False rows count for nothing.
            done: bool [T, N], the row ends an episode.
        """
        summed = np.cumsum(np.where(valid, rewards, 0.0), axis=0, dtype=np.float64)
        counted = np.cumsum(valid, axis=0)
        finished = []
        # What of the running sums belongs to earlier episodes of the slot; negative: carried in from before.
        base_return, base_length = -self.returns, -self.lengths
        for t, n in np.argwhere(done):
            length = int(counted[t, n] - base_length[n])
            episode = Episode(float(summed[t, n] - base_return[n]), length, int(n))
            base_return[n], base_length[n] = summed[t, n], counted[t, n]
            # What a failure of the environment cut off is no episode: its return says nothing about the policy.
            if valid[t, n]:
                finished.append(episode)
        self.returns = summed[-1] - base_return
        self.lengths = counted[-1] - base_length
        return finished

    def reset(self) -> int:
        """Forgets unfinished episodes; returns how many timesteps they had."""
        lost = int(self.lengths.sum())
        self.returns[:] = 0.0
        self.lengths[:] = 0
        return lost

    def get_state(self) -> dict[str, Any]:
        """Arrays to go on from."""
        return {"returns": self.returns.copy(), "lengths": self.lengths.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self.returns = np.array(state["returns"])
        self.lengths = np.array(state["lengths"])


class EpisodeWindow:
    """The last episodes and their statistics.

    Args:
        size: how many episodes are looked back on.
    """

    def __init__(self, size: int = 100) -> None:
        self._episodes: deque[Episode] = deque(maxlen=size)
        self.total = 0

    def extend(self, episodes: list[Episode]) -> None:
        """Adds finished episodes, oldest first."""
        self._episodes.extend(episodes)
        self.total += len(episodes)

    def replace(self, episodes: list[Episode]) -> None:
        """Looks at these episodes alone, which are not counted, however many there were before."""
        self._episodes.clear()
        self._episodes.extend(episodes)

    def count(self, episodes: int) -> None:
        """Counts episodes that are not looked at."""
        self.total += episodes

    @property
    def returns(self) -> np.ndarray:
        """float64 [<= size]."""
        return np.array([episode.episode_return for episode in self._episodes], dtype=np.float64)

    @property
    def mean_length(self) -> float | None:
        """Timesteps an episode, None before the first."""
        return float(np.mean([e.length for e in self._episodes])) if self._episodes else None

    def get_state(self) -> dict[str, Any]:
        """Arrays and numbers to go on from."""
        return {
            "returns": self.returns,
            "lengths": np.array([e.length for e in self._episodes], dtype=np.int64),
            "total": self.total,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self._episodes.clear()
        pairs = zip(state["returns"].tolist(), state["lengths"].tolist(), strict=True)
        self._episodes.extend(Episode(r, n) for r, n in pairs)
        self.total = int(state["total"])
