"""Hyper-parameters of SAC (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications")."""

from __future__ import annotations

from pydantic import Field, model_validator

from rlcore.api.algorithms.ddpg import QActorCriticConfig
from rlcore.api.base import raise_conflicts


class SACConfig(QActorCriticConfig):
    """Soft actor-critic for continuous actions between bounds and for discrete ones; the temperature is learned."""

    initial_alpha: float = Field(default=1.0, gt=0, le=1e6, description="Temperature at the start, per nat.")
    learn_alpha: bool = Field(default=True, description="Learn the temperature; false: it stays at initialAlpha.")
    target_entropy: float | None = Field(
        default=None,
        ge=-1e9,
        le=1e9,
        description="Entropy that the temperature aims at, in nats; null: -1 a dimension, or by discreteEntropyShare.",
    )
    discrete_entropy_share: float = Field(
        default=0.3, ge=0, le=1, description="The entropy aimed at with discrete actions, as a share of the largest."
    )

    @model_validator(mode="after")
    def _check(self) -> SACConfig:
        raise_conflicts("SACConfig", self.replay_conflicts())
        return self
