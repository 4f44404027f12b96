"""AlphaZero's hyper-parameters (Silver et al. 2018, "A general reinforcement learning algorithm ...", Science 362)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rlcore.api.algorithms.replay import ReplayingConfig
from rlcore.api.base import Conflict, raise_conflicts


class AlphaZeroConfig(ReplayingConfig):
    """Self-play in a two-player game, guided by a tree search; the network learns what the search finds."""

    simulations: int = Field(default=50, ge=2, le=100_000, description="Simulations of the search at each move.")
    evaluation_simulations: int | None = Field(
        default=None, ge=2, le=100_000, description="The same outside of training; null: as many as simulations says."
    )
    puct_initial: float = Field(
        default=1.25, gt=0, le=1000, description="Weight of the network's probabilities in the search; no unit."
    )
    puct_base: float = Field(
        default=19_652.0, ge=1, le=1e9, description="Visits of a position after which that weight begins to grow."
    )
    dirichlet_alpha: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="Concentration of the noise at the root in training: about 10 divided by the legal moves.",
    )
    root_noise_fraction: float = Field(
        default=0.25, ge=0, le=1, description="Share of the root's probabilities that this noise takes in training."
    )
    temperature: float = Field(
        default=1.0,
        ge=0.05,
        le=100,
        description="Training draws a game's first moves with probability visits^(1/temperature); no unit.",
    )
    temperature_moves: int = Field(
        default=10, ge=0, le=1_000_000, description="How many moves are drawn so; later ones are the most visited."
    )
    symmetries: bool = Field(
        default=True,
        description="Learn from each position's mirror images too, where the game has any; they fill replay as well.",
    )
    value_loss_coefficient: float = Field(default=1.0, ge=0, le=1000, description="Weight of the value loss; no unit.")
    weight_decay: float = Field(
        default=1e-4, ge=0, le=1, description="Weight of the sum of squared parameters in the loss; no unit."
    )
    learning_rate: float = Field(default=1e-3, gt=0, le=1, description="Step size of Adam, per update.")
    train_batch_size: int = Field(
        default=256, ge=1, le=100_000_000, description="Positions in one gradient step, drawn from replay."
    )
    fragment_length: int | None = Field(
        default=32,
        ge=1,
        le=1_000_000,
        description="Moves per environment in one sample, and then to the end of each game; null: trainBatchSize "
        "divided by all environments.",
    )
    batch_mode: Literal["truncate", "completeEpisodes"] = Field(
        default="completeEpisodes", description="Only completeEpisodes: a game's outcome is known at its end alone."
    )
    observation_filter: Literal["none", "meanStd"] = Field(
        default="none", description="Only none: a search looks at positions that no filter has seen."
    )

    @model_validator(mode="after")
    def _check(self) -> AlphaZeroConfig:
        conflicts = self.replay_conflicts()
        if self.batch_mode != "completeEpisodes":
            message = f"{self.batch_mode} is not possible: AlphaZero learns from the outcomes of whole games"
            conflicts.append(Conflict(("batchMode",), self.batch_mode, message))
        if self.observation_filter != "none":
            message = f"{self.observation_filter} is not possible: AlphaZero's search looks at positions without one"
            conflicts.append(Conflict(("observationFilter",), self.observation_filter, message))
        raise_conflicts("AlphaZeroConfig", conflicts)
        return self
