"""Plays one whole episode with each of many parameter vectors, as many side by side as there are environments.

A slot whose episode ends goes on with the next vector at once, so that short episodes do not wait for long ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from rlcore.evaluation.track import Track
from rlcore.policy.evolution import EvolutionPolicyGraph

if TYPE_CHECKING:
    from rlcore.evaluation.policy_evaluator import PolicyEvaluator

# Steps between two looks at whether all vectors are played.
CHUNK_STEPS = 16
IDLE = -1


class _Turns:
    """Which vector each slot is playing, and what every vector has earned."""

    def __init__(self, track: Track, vector_of: Callable[[int], np.ndarray], count: int) -> None:
        assert isinstance(track.policy, EvolutionPolicyGraph)
        self._track, self._vector_of, self._count = track, vector_of, count
        self._crowd = track.policy.spread(track.slots)
        self._playing = np.full(track.slots, IDLE)
        self._begun = self._ended = 0
        self.returns = np.zeros(count)
        for slot in range(track.slots):
            self._give_next(slot)

    def note(self, t: int) -> None:
        """Step t of all slots, as the track has it; rows of slots that idle are no transitions."""
        track = self._track
        valid = track.valid[t]
        valid &= self._playing != IDLE
        self.returns[self._playing[valid]] += track.rewards[t][valid]
        done = (track.terminated[t] | track.truncated[t]) & (self._playing != IDLE)
        for slot in np.flatnonzero(done).tolist():
            if valid[slot]:
                self._ended += 1
                self._give_next(slot)
            else:  # the environment failed: what it cut off says nothing about the vector, which begins again
                self.returns[self._playing[slot]] = 0.0

    def over(self) -> bool:
        """Whether every vector has played its episode."""
        return self._ended == self._count

    def _give_next(self, slot: int) -> None:
        if self._begun == self._count:
            self._playing[slot] = IDLE
            return
        self._playing[slot] = self._begun
        self._crowd.place(slot, self._vector_of(self._begun))
        self._begun += 1


def play_whole_episodes(
    evaluator: PolicyEvaluator, policy_id: str, vector_of: Callable[[int], np.ndarray], count: int
) -> tuple[np.ndarray, int]:
    """One new episode a vector; episodes are counted and filter statistics gathered as in sampling.

    Args:
        evaluator: whose environments play.
        policy_id: of its EvolutionPolicyGraph.
        vector_of: number (0 .. count - 1) -> parameters float32 [P].
        count: of vectors.

    Returns:
        Undiscounted returns float64 [count], of the rewards that training sees; and the timesteps.

    Raises:
        UserError: an episode without an end; failing environments or numbers that are not finite, as in sampling.
    """
    track = evaluator.tracks[policy_id]
    policy = track.policy
    assert isinstance(policy, EvolutionPolicyGraph)
    turns = _Turns(track, vector_of, count)
    try:
        timesteps = evaluator.run_watched(turns.note, turns.over, CHUNK_STEPS)
    finally:
        policy.gather()
    return turns.returns, timesteps
