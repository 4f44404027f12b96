"""Hyper-parameters of evolution strategies: ES (Salimans et al. 2017) and ARS (Mania et al. 2018)."""

from __future__ import annotations

from pydantic import Field, model_validator

from rlcore.api.algorithms.config import AlgorithmConfig
from rlcore.api.base import Conflict, raise_conflicts


class EvolutionConfig(AlgorithmConfig):
    """What both have in common: directions in parameter space, each tried forwards and backwards."""

    num_directions: int = Field(
        default=32,
        ge=1,
        le=1_000_000,
        description="Random directions of one update, a count; each is tried forwards and backwards: two episodes.",
    )
    noise_std: float = Field(
        default=0.05, gt=0, le=1000, description="Length of the step in each direction, a deviation; no unit."
    )
    noise_table_size: int = Field(
        default=10_000_000,
        ge=1000,
        le=2_000_000_000,
        description="Random numbers that directions are cut from, a count of 4 bytes each; shared by a node's "
        "processes, and far more than the policy has parameters.",
    )
    evaluators_per_aggregator: int = Field(
        default=64,
        ge=1,
        le=1_000_000,
        description="Evaluators beyond which actors join what evaluators send, one for each so many; a count.",
    )
    train_batch_size: int = Field(
        default=1,
        ge=1,
        le=100_000_000,
        description="Timesteps that one update is made from at least: further directions are tried until then.",
    )
    max_gradient_norm: float = Field(
        default=1e9, gt=0, le=1e9, description="Gradients with a larger Euclidean norm are scaled down to it; no unit."
    )
    gamma: float = Field(default=1.0, ge=0, le=1, description="Only 1: the reward of a whole episode is what counts.")

    @model_validator(mode="after")
    def _check_gamma(self) -> EvolutionConfig:
        if self.gamma != 1:
            message = f"{self.gamma:g} is not possible: whole episodes are compared by the plain sum of their rewards"
            raise_conflicts("EvolutionConfig", [Conflict(("gamma",), self.gamma, message)])
        return self


class ESConfig(EvolutionConfig):
    """Evolution strategies: centred ranks, mirrored sampling, Adam."""

    learning_rate: float = Field(default=0.02, gt=0, le=1, description="Step size of Adam, per update.")
    weight_decay: float = Field(
        default=0.005, ge=0, le=1, description="Share of each parameter that is added to its gradient; no unit."
    )


class ARSConfig(EvolutionConfig):
    """Augmented random search: the best directions only, scaled by the deviation of their rewards."""

    learning_rate: float = Field(default=0.02, gt=0, le=1, description="Step size of gradient descent, per update.")
    num_directions: int = Field(
        default=8,
        ge=1,
        le=1_000_000,
        description="Random directions of one update, a count; each is tried forwards and backwards: two episodes.",
    )
    num_top_directions: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Directions that count, those with the largest reward of their two episodes; null: all of them.",
    )

    @model_validator(mode="after")
    def _check(self) -> ARSConfig:
        top = self.num_top_directions
        if top is not None and top > self.num_directions:
            message = f"{top} is more than numDirections {self.num_directions}"
            raise_conflicts("ARSConfig", [Conflict(("numTopDirections",), top, message)])
        return self
