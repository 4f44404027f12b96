"""Self-play: a trained policy against frozen snapshots of its own past (fictitious self-play, Heinrich et al. 2015).

self_play = SelfPlay(spec, seed)
self_play.begin(weights)
for each iteration:
    evaluators act for the opponents with self_play.opponents
    self_play.iterated(episodes, weights)         # a snapshot where one is due, and the next opponents
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcore.evaluation.episodes import Episode

if TYPE_CHECKING:
    from rlcore.api import SelfPlaySpec

# Before so many episodes ended, a win rate is luck.
FEWEST_EPISODES = 50


@dataclass(frozen=True)
class Snapshot:
    """The policy's parameters float32 [P] as they were after so many iterations."""

    weights: np.ndarray
    iteration: int


class SelfPlay:
    """Snapshots in a pool of bounded size, and which of them the opponents are now.

    Args:
        spec: of the manifest.
        seed: of the draws.

    Attributes:
        snapshots: oldest first.
        taken: snapshots since the beginning.
        opponents: policy id of each opponent -> its parameters.
        win_rate: share of episodes won since the last snapshot, None before the first episode.
    """

    def __init__(self, spec: SelfPlaySpec, seed: int) -> None:
        self.spec = spec
        self.snapshots: list[Snapshot] = []
        self.taken = 0
        self._rng = np.random.default_rng([seed, 5])
        self._drawn: dict[str, int] = {}
        self._iteration = 0
        self._since = 0
        self._episodes = self._wins = 0

    def begin(self, weights: np.ndarray) -> None:
        """The policy before its first update is the first snapshot."""
        self._take(weights)
        self._draw()

    def iterated(self, episodes: Sequence[Episode], weights: Callable[[], np.ndarray]) -> None:
        """One iteration was made; `weights` gives the policy's parameters where a snapshot is due."""
        self._iteration += 1
        self._since += 1
        self._episodes += len(episodes)
        self._wins += sum(episode.episode_return > 0 for episode in episodes)
        if self.due:
            self._take(weights())
        self._draw()

    @property
    def due(self) -> bool:
        """Whether a snapshot is to be taken now."""
        spec = self.spec
        in_time = spec.snapshot_every is not None and self._since >= spec.snapshot_every
        enough = self._episodes >= FEWEST_EPISODES
        won = spec.win_rate is not None and enough and self._wins >= spec.win_rate * self._episodes
        return in_time or won

    @property
    def win_rate(self) -> float | None:
        """See the class."""
        return self._wins / self._episodes if self._episodes else None

    @property
    def opponents(self) -> dict[str, np.ndarray]:
        """See the class."""
        return {policy_id: self.snapshots[number].weights for policy_id, number in self._drawn.items()}

    def get_state(self) -> dict[str, Any]:
        """Arrays and numbers to go on from, the pool included."""
        return {
            "weights": [snapshot.weights for snapshot in self.snapshots],
            "iterations": [snapshot.iteration for snapshot in self.snapshots],
            "taken": self.taken,
            "drawn": dict(self._drawn),
            "rng": self._rng.bit_generator.state,
            "counts": [self._iteration, self._since, self._episodes, self._wins],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from `get_state`; of a larger pool than this one's the newest snapshots stay."""
        pairs = zip(state["weights"], state["iterations"], strict=True)
        snapshots = [Snapshot(np.array(weights), int(iteration)) for weights, iteration in pairs]
        self._rng.bit_generator.state = state["rng"]
        self.taken = int(state["taken"])
        self._iteration, self._since, self._episodes, self._wins = state["counts"]
        self.snapshots = snapshots[-self.spec.pool_size :]
        lost = len(snapshots) - len(self.snapshots)
        self._drawn = {policy_id: max(0, number - lost) for policy_id, number in state["drawn"].items()}

    def _take(self, weights: np.ndarray) -> None:
        self.snapshots.append(Snapshot(np.array(weights), self._iteration))
        del self.snapshots[: -self.spec.pool_size]
        self.taken += 1
        self._since = self._episodes = self._wins = 0

    def _draw(self) -> None:
        newest = len(self.snapshots) - 1
        for policy_id in self.spec.opponents:
            # Two draws whatever comes of them, so that one pool's choices do not depend on another's size.
            latest, any_of_them = self._rng.random(), self._rng.random()
            number = newest if latest < self.spec.latest_probability else int(any_of_them * len(self.snapshots))
            self._drawn[policy_id] = number
