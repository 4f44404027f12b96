"""Hyper-parameters of DDPG (Lillicrap et al. 2016), TD3 (Fujimoto et al. 2018) and Ape-X DDPG (Horgan et al. 2018)."""

from __future__ import annotations

from pydantic import Field, model_validator

from rlcore.api.algorithms.replay import ReplayAlgorithmConfig
from rlcore.api.base import raise_conflicts


class QActorCriticConfig(ReplayAlgorithmConfig):
    """What algorithms with an actor and action-value critics have in common."""

    learning_rate: float = Field(default=1e-3, gt=0, le=1, description="Step size of Adam, per update.")
    critic_learning_rate: float | None = Field(
        default=None, gt=0, le=1, description="Step size of the critics' Adam, per update; null: learningRate."
    )
    adam_epsilon: float = Field(default=1e-8, gt=0, le=1, description="Adam's term against division by zero; no unit.")
    max_gradient_norm: float = Field(
        default=1e6,
        gt=0,
        le=1e9,
        description="Gradients with a larger Euclidean norm are scaled down to it, actor's and critic's each; no unit.",
    )
    train_batch_size: int = Field(
        default=128, ge=1, le=100_000_000, description="Transitions in one gradient step, drawn from replay."
    )
    train_ratio: float = Field(
        default=128.0,
        gt=0,
        le=1e6,
        description="Transitions trained on for each one sampled: a batch of 32 every 4 timesteps is 8.",
    )
    replay_capacity: int = Field(
        default=1_000_000, ge=1, le=10**10, description="Transitions kept for replay, a count over all shards."
    )
    target_update_rate: float | None = Field(
        default=0.005,
        gt=0,
        le=1,
        description="Share of the way that target networks go after each gradient step; null: whole, at intervals.",
    )
    random_timesteps: int = Field(
        default=1000, ge=0, le=10**10, description="Timesteps of uniformly random actions at the beginning, a count."
    )
    actor_delay: int = Field(
        default=1, ge=1, le=1000, description="Gradient steps of the critics for each one of the actor, a count."
    )


class DDPGConfig(QActorCriticConfig):
    """Deterministic policy gradient for continuous actions between bounds."""

    exploration_noise: float = Field(
        default=0.1, ge=0, le=10, description="Deviation of the noise on actions, in units of half the action's range."
    )
    per_slot_noise: bool = Field(
        default=False, description="Each environment keeps a noise of its own, 0.4^(1 + 7x) with x spread over 0..1."
    )

    @model_validator(mode="after")
    def _check(self) -> DDPGConfig:
        raise_conflicts("DDPGConfig", self.replay_conflicts())
        return self


class TD3Config(DDPGConfig):
    """DDPG with twin critics, a delayed actor and smoothed targets."""

    actor_delay: int = Field(
        default=2, ge=1, le=1000, description="Gradient steps of the critics for each one of the actor, a count."
    )
    target_noise: float = Field(
        default=0.2, ge=0, le=10, description="Deviation of the noise on target actions, in units of half the range."
    )
    target_noise_clip: float = Field(
        default=0.5, ge=0, le=10, description="That noise is cut off at this, in units of half the action's range."
    )


class ApexDDPGConfig(DDPGConfig):
    """Distributed prioritized replay for continuous actions."""

    train_batch_size: int = Field(
        default=512, ge=1, le=100_000_000, description="Transitions in one gradient step, drawn from replay."
    )
    train_ratio: float = Field(
        default=8.0,
        gt=0,
        le=1e6,
        description="Transitions trained on for each one sampled: a batch of 32 every 4 timesteps is 8.",
    )
    fragment_length: int | None = Field(
        default=50,
        ge=1,
        le=1_000_000,
        description="Timesteps per environment in one sample; null: trainBatchSize divided by all environments.",
    )
    n_step: int = Field(
        default=3, ge=1, le=1000, description="Timesteps that a return sums before it bootstraps, a count."
    )
    prioritized: bool = Field(default=True, description="Draw transitions by their last TD error instead of uniformly.")
    worker_priorities: bool = Field(
        default=True, description="Evaluators compute first priorities; else new transitions get the largest so far."
    )
    per_slot_noise: bool = Field(
        default=True, description="Each environment keeps a noise of its own, 0.4^(1 + 7x) with x spread over 0..1."
    )
    replay_shards: int = Field(
        default=2, ge=1, le=1024, description="Actors that share replay under AsyncReplay, a count."
    )
