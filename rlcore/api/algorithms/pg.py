"""PG's hyper-parameters (Williams 1992, "Simple statistical gradient-following algorithms")."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rlcore.api.algorithms.config import AlgorithmConfig
from rlcore.api.base import Conflict, raise_conflicts
from rlcore.api.schedule import Schedule


class PGConfig(AlgorithmConfig):
    """REINFORCE with rewards-to-go: whole episodes, no value function."""

    learning_rate: float = Field(default=4e-3, gt=0, le=1, description="Step size of Adam, per update.")
    train_batch_size: int = Field(
        default=2000,
        ge=1,
        le=100_000_000,
        description="Timesteps of one update, over all evaluators; episodes under way are finished.",
    )
    max_gradient_norm: float = Field(
        default=10.0, gt=0, le=1e9, description="Gradients with a larger Euclidean norm are scaled down to it; no unit."
    )
    batch_mode: Literal["truncate", "completeEpisodes"] = Field(
        default="completeEpisodes",
        description="Only completeEpisodes: the sum of rewards to the end is known at an episode's end alone.",
    )
    entropy_coefficient: float = Field(default=0.0, ge=0, le=1000, description="Weight of the entropy bonus, per nat.")
    entropy_coefficient_schedule: Schedule | None = Field(
        default=None, description="entropyCoefficient over the run, piecewise linear, in its place; null: constant."
    )
    normalize_advantages: bool = Field(
        default=True, description="Shift and scale returns to mean 0 and deviation 1 over the train batch."
    )

    @model_validator(mode="after")
    def _check(self) -> PGConfig:
        if self.batch_mode != "completeEpisodes":
            message = f"PG has no value function to stand for what comes after a cut: {self.batch_mode} is not possible"
            raise_conflicts("PGConfig", [Conflict(("batchMode",), self.batch_mode, message)])
        return self
