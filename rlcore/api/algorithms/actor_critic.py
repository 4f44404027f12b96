"""What every algorithm with a policy and a value function has in common."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rlcore.api.algorithms.config import AlgorithmConfig
from rlcore.api.base import Conflict
from rlcore.api.schedule import Schedule


class ActorCriticConfig(AlgorithmConfig):
    """Weights of the value loss and of the entropy bonus."""

    value_loss_coefficient: float = Field(default=0.5, ge=0, le=1000, description="Weight of the value loss; no unit.")
    entropy_coefficient: float = Field(default=0.0, ge=0, le=1000, description="Weight of the entropy bonus, per nat.")
    entropy_coefficient_schedule: Schedule | None = Field(
        default=None, description="entropyCoefficient over the run, piecewise linear, in its place; null: constant."
    )

    def minibatch_conflict(self, minibatch_size: int) -> list[Conflict]:
        """A minibatch that is larger than the batch it is cut from."""
        if minibatch_size <= self.train_batch_size:
            return []
        message = (
            f"{self._said('minibatch_size', minibatch_size)} is more than "
            f"trainBatchSize {self._said('train_batch_size', self.train_batch_size)}"
        )
        return [Conflict(("minibatchSize",), minibatch_size, message)]

    def _said(self, name: str, value: Any) -> str:
        return f"{value}{'' if name in self.model_fields_set else ' (the default)'}"
