"""Hyper-parameters of A2C and A3C (Mnih et al. 2016, "Asynchronous methods for deep reinforcement learning")."""

from __future__ import annotations

from pydantic import Field

from rlcore.api.algorithms.actor_critic import ActorCriticConfig


class AdvantageActorCriticConfig(ActorCriticConfig):
    """What A2C and A3C have in common: one gradient step on fresh, short fragments."""

    learning_rate: float = Field(default=2e-3, gt=0, le=1, description="Step size of Adam, per update.")
    train_batch_size: int = Field(
        default=512, ge=1, le=100_000_000, description="Timesteps of one update, over all evaluators."
    )
    gae_lambda: float = Field(
        default=0.95, ge=0, le=1, description="Bias against variance in the advantages: 0 one-step, 1 whole returns."
    )
    normalize_advantages: bool = Field(
        default=False, description="Shift and scale advantages to mean 0 and deviation 1 before the loss."
    )
    updates_per_iteration: int = Field(
        default=20, ge=1, le=100_000, description="Updates in one iteration of training, a count."
    )


class A2CConfig(AdvantageActorCriticConfig):
    """Advantage actor-critic: all evaluators sample, one update, and again."""


class A3CConfig(AdvantageActorCriticConfig):
    """Asynchronous advantage actor-critic: every evaluator computes gradients of its own, applied as they come."""

    fragment_length: int | None = Field(
        default=20,
        ge=1,
        le=1_000_000,
        description="Timesteps per environment in one sample, and so in one gradient of an evaluator; null: "
        "trainBatchSize divided by all environments.",
    )
    updates_per_iteration: int = Field(
        default=100, ge=1, le=100_000, description="Gradients applied in one iteration of training, a count."
    )
    max_staleness: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Updates that a gradient may be behind the policy it is applied to; older ones are dropped and "
        "counted. null: four times the number of evaluators.",
    )
    parameter_shards: int = Field(
        default=2,
        ge=1,
        le=1024,
        description="Actors that hold a part of the parameters each, a count; for optimizer ShardedParameterServer.",
    )
