"""PPO's hyper-parameters (Schulman et al. 2017, "Proximal Policy Optimization Algorithms")."""

from __future__ import annotations

from pydantic import Field, model_validator

from rlcore.api.algorithms.actor_critic import ActorCriticConfig
from rlcore.api.base import raise_conflicts
from rlcore.api.schedule import Schedule


class PPOConfig(ActorCriticConfig):
    """Proximal policy optimization with a clipped surrogate objective and generalized advantage estimation."""

    gae_lambda: float = Field(
        default=0.95, ge=0, le=1, description="Bias against variance in the advantages: 0 one-step, 1 whole returns."
    )
    minibatch_size: int = Field(
        default=128, ge=1, le=100_000_000, description="Timesteps in one gradient step; at most trainBatchSize."
    )
    num_epochs: int = Field(default=10, ge=1, le=1000, description="Passes over each train batch, a count.")
    clip_range: float = Field(
        default=0.2, gt=0, le=10, description="The probability ratio is clipped to 1 +- this; no unit."
    )
    clip_range_schedule: Schedule | None = Field(
        default=None, description="clipRange over the run, piecewise linear, in its place; null: constant."
    )
    value_clip_range: float | None = Field(
        default=None,
        gt=0,
        le=1e9,
        description="Values may move this far from the old ones, in units of return; null: freely.",
    )
    kl_coefficient: float = Field(
        default=0.0,
        ge=0,
        le=1000,
        description="Weight of the KL divergence from the old policy, per nat; 0: no penalty.",
    )
    kl_target: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="Epochs of an iteration end early when the mean KL passes 1.5 times this, in nats; null: never.",
    )
    normalize_advantages: bool = Field(
        default=True, description="Shift and scale advantages to mean 0 and deviation 1 before the loss."
    )

    @model_validator(mode="after")
    def _check(self) -> PPOConfig:
        raise_conflicts("PPOConfig", self.minibatch_conflict(self.minibatch_size))
        return self
