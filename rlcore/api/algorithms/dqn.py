"""Hyper-parameters of DQN (Mnih et al. 2015) with Rainbow's switches, and of Ape-X DQN (Horgan et al. 2018)."""

from __future__ import annotations

from pydantic import Field, model_validator

from rlcore.api.algorithms.replay import ReplayAlgorithmConfig
from rlcore.api.base import Conflict, raise_conflicts


class DQNConfig(ReplayAlgorithmConfig):
    """Deep Q-learning; double, dueling, n-step, prioritized, distributional and noisy are switches."""

    learning_rate: float = Field(default=5e-4, gt=0, le=1, description="Step size of Adam, per update.")
    double: bool = Field(default=True, description="Choose the next action online, and value it by the target network.")
    dueling: bool = Field(default=False, description="Separate streams for the state's value and for advantages.")
    distributional: bool = Field(default=False, description="Learn distributions of returns on fixed atoms (C51).")
    atoms: int = Field(default=51, ge=2, le=1000, description="Atoms of these distributions, a count.")
    value_min: float = Field(default=-10.0, ge=-1e9, le=1e9, description="Lowest atom, in units of scaled return.")
    value_max: float = Field(default=10.0, ge=-1e9, le=1e9, description="Highest atom, in units of scaled return.")
    noisy: bool = Field(default=False, description="Explore by noise on weights that is learned, and not by epsilon.")
    noisy_sigma: float = Field(default=0.5, gt=0, le=10, description="First scale of that noise; no unit.")
    epsilon_initial: float = Field(default=1.0, ge=0, le=1, description="Share of random actions at first.")
    epsilon_final: float = Field(default=0.02, ge=0, le=1, description="Share of random actions later on.")
    epsilon_timesteps: int = Field(
        default=10_000, ge=1, le=10**15, description="Timesteps over which that share falls, in a straight line."
    )
    per_slot_epsilon: bool = Field(
        default=False, description="Each environment keeps an epsilon of its own, 0.4^(1 + 7x) with x spread over 0..1."
    )

    @model_validator(mode="after")
    def _check(self) -> DQNConfig:
        conflicts = self.replay_conflicts()
        if self.value_max <= self.value_min:
            message = f"{self.value_max} is not above valueMin {self.value_min}"
            conflicts.append(Conflict(("valueMax",), self.value_max, message))
        raise_conflicts("DQNConfig", conflicts)
        return self


class ApexDQNConfig(DQNConfig):
    """Distributed prioritized replay: many evaluators that explore each in its own way, and one learner."""

    train_batch_size: int = Field(
        default=512, ge=1, le=100_000_000, description="Transitions in one gradient step, drawn from replay."
    )
    fragment_length: int | None = Field(
        default=50,
        ge=1,
        le=1_000_000,
        description="Timesteps per environment in one sample; null: trainBatchSize divided by all environments.",
    )
    max_gradient_norm: float = Field(
        default=40.0,
        gt=0,
        le=1e9,
        description="Gradients with a larger Euclidean norm are scaled down to it, actor's and critic's each; no unit.",
    )
    dueling: bool = Field(default=True, description="Separate streams for the state's value and for advantages.")
    n_step: int = Field(
        default=3, ge=1, le=1000, description="Timesteps that a return sums before it bootstraps, a count."
    )
    prioritized: bool = Field(default=True, description="Draw transitions by their last TD error instead of uniformly.")
    worker_priorities: bool = Field(
        default=True, description="Evaluators compute first priorities; else new transitions get the largest so far."
    )
    per_slot_epsilon: bool = Field(
        default=True, description="Each environment keeps an epsilon of its own, 0.4^(1 + 7x) with x spread over 0..1."
    )
    replay_capacity: int = Field(
        default=1_000_000, ge=1, le=10**10, description="Transitions kept for replay, a count over all shards."
    )
    replay_shards: int = Field(
        default=2, ge=1, le=1024, description="Actors that share replay under AsyncReplay, a count."
    )
