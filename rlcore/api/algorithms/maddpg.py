"""Hyper-parameters of MADDPG (Lowe et al. 2017, arXiv 1706.02275)."""

from __future__ import annotations

from pydantic import Field, model_validator

from rlcore.api.algorithms.ddpg import QActorCriticConfig
from rlcore.api.base import Conflict, raise_conflicts


class MADDPGConfig(QActorCriticConfig):
    """Decentralised actors, each with a critic that sees what all agents see and do."""

    train_batch_size: int = Field(
        default=256, ge=1, le=100_000_000, description="Transitions in one gradient step, drawn from replay."
    )
    train_ratio: float = Field(
        default=16.0,
        gt=0,
        le=1e6,
        description="Transitions trained on for each one sampled: a batch of 32 every 4 timesteps is 8.",
    )
    max_gradient_norm: float = Field(
        default=0.5,
        gt=0,
        le=1e9,
        description="Gradients with a larger Euclidean norm are scaled down to it, actor's and critic's each; no unit.",
    )
    replay_capacity: int = Field(
        default=200_000, ge=1, le=10**10, description="Transitions kept for replay, a count over all shards."
    )
    target_update_rate: float | None = Field(
        default=0.01,
        gt=0,
        le=1,
        description="Share of the way that target networks go after each gradient step; null: whole, at intervals.",
    )
    exploration_noise: float = Field(
        default=0.1, ge=0, le=10, description="Deviation of the noise on actions, in units of half the action's range."
    )
    gumbel_temperature: float = Field(
        default=1.0,
        gt=0,
        le=100,
        description="Temperature of the Gumbel-softmax that lets gradients through discrete actions; no unit.",
    )
    action_penalty: float = Field(
        default=1e-3,
        ge=0,
        le=1000,
        description="Weight of the mean square of the actors' last layer in their loss; keeps them from saturating.",
    )

    @model_validator(mode="after")
    def _check(self) -> MADDPGConfig:
        conflicts = self.replay_conflicts()
        if self.worker_priorities:
            message = "evaluators compute none for MADDPG; new transitions get the largest priority so far"
            conflicts.append(Conflict(("workerPriorities",), True, message))
        if self.n_step != 1:
            message = "MADDPG learns from single steps: agents may leave in the middle of a longer one"
            conflicts.append(Conflict(("nStep",), self.n_step, message))
        raise_conflicts("MADDPGConfig", conflicts)
        return self
