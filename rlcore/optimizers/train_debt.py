"""How much is trained for what is sampled, whatever the two speeds are."""

from __future__ import annotations


class TrainDebt:
    """Transitions that the learner still has to train on.

    Args:
        ratio: transitions trained on for each one sampled.
        batch_size: transitions of one gradient step.

    Attributes:
        owed: transitions.
    """

    def __init__(self, ratio: float, batch_size: int) -> None:
        self._ratio, self._batch_size = ratio, batch_size
        self.owed = 0.0

    @property
    def due(self) -> bool:
        """Whether a gradient step is owed."""
        return self.owed >= self._batch_size

    def sampled(self, timesteps: int) -> None:
        """Told of transitions that came in."""
        self.owed += self._ratio * timesteps

    def trained(self, timesteps: int | None = None) -> None:
        """Told of a gradient step, on a batch or on so many timesteps."""
        self.owed -= self._batch_size if timesteps is None else timesteps

    def exceeds(self, steps: int) -> bool:
        """Whether more than so many gradient steps are owed."""
        return self.owed > steps * self._batch_size
