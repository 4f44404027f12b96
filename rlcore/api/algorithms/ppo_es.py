"""Hyper-parameters of PPO-ES: evolution over whole PPO runs (the RLlib paper's hierarchical control)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rlcore.api.algorithms.ppo import PPOConfig
from rlcore.api.base import Conflict, raise_conflicts


class PPOESConfig(PPOConfig):
    """PPO inside of evolution: a PPO run from each perturbed policy, judged by what it ends with."""

    num_directions: int = Field(
        default=4,
        ge=1,
        le=1_000_000,
        description="Random directions of one update, a count; from each, forwards and backwards, PPO makes a run.",
    )
    noise_std: float = Field(
        default=0.02, gt=0, le=1000, description="Length of the step in each direction, a deviation; no unit."
    )
    noise_table_size: int = Field(
        default=10_000_000,
        ge=1000,
        le=2_000_000_000,
        description="Random numbers that directions are cut from, a count of 4 bytes each; shared by a node's "
        "processes, and far more than the policy has parameters.",
    )
    train_batch_size: int = Field(
        default=1024, ge=1, le=100_000_000, description="Timesteps of one iteration of each PPO run."
    )
    inner_iterations: int = Field(default=2, ge=1, le=10_000, description="Iterations of each PPO run, a count.")
    fitness_episodes: int = Field(
        default=4, ge=1, le=10_000, description="Episodes that the policy of each run is judged by, a count."
    )
    inner_evaluators: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="Actors that sample for each PPO run, a count; 0, and without Ray: its own process does.",
    )
    observation_filter: Literal["none", "meanStd"] = Field(
        default="none", description="Only none: runs that see the world through different filters cannot be joined."
    )

    @model_validator(mode="after")
    def _check_filter(self) -> PPOESConfig:
        if self.observation_filter != "none":
            message = f"{self.observation_filter} is not possible: PPO-ES joins the weights of many runs"
            raise_conflicts("PPOESConfig", [Conflict(("observationFilter",), self.observation_filter, message)])
        return self
