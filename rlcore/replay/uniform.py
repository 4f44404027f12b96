"""Uniform replay (Lin 1992; Mnih et al. 2015, Nature 518)."""

from __future__ import annotations

from rlcore.replay.replay_buffer import ReplayBuffer, Replayed


class UniformReplay(ReplayBuffer):
    """Every row is as likely as any other."""

    def sample(self, count: int, *, beta: float = 0.0) -> Replayed:
        if not len(self.rows):
            raise ValueError("nothing to sample: the replay buffer is empty")
        numbers = self._rng.integers(self.rows.first, self.rows.end, count)
        return Replayed(numbers, self.rows.take(numbers))
