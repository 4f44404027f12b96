"""The hyper-parameters that every algorithm has; each algorithm's own class adds to them or changes their defaults."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rlcore.api.base import ApiModel
from rlcore.api.schedule import Schedule


class AlgorithmConfig(ApiModel):
    """Fields that mean the same for every algorithm.

    A subclass overrides a field to give it another default; its type must stay, since the CRD merges all algorithms
    into one schema.
    """

    learning_rate: float = Field(default=3e-4, gt=0, le=1, description="Step size of Adam, per update.")
    learning_rate_schedule: Schedule | None = Field(
        default=None, description="learningRate over the run, piecewise linear, in its place; null: constant."
    )
    gamma: float = Field(default=0.99, ge=0, le=1, description="Discount per timestep.")
    train_batch_size: int = Field(
        default=4000,
        ge=1,
        le=100_000_000,
        description="Timesteps sampled for one iteration of training, over all evaluators.",
    )
    max_gradient_norm: float = Field(
        default=0.5, gt=0, le=1e9, description="Gradients with a larger Euclidean norm are scaled down to it; no unit."
    )
    adam_epsilon: float = Field(default=1e-5, gt=0, le=1, description="Adam's term against division by zero; no unit.")
    fragment_length: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Timesteps per environment in one sample; null: trainBatchSize divided by all environments.",
    )
    batch_mode: Literal["truncate", "completeEpisodes"] = Field(
        default="truncate", description="Cut samples at fragmentLength, or let each episode in them run to its end."
    )
    observation_filter: Literal["none", "meanStd"] = Field(
        default="none", description="meanStd: observations are shifted and scaled by their running mean and deviation."
    )
    reward_scale: float = Field(
        default=1.0, gt=0, le=1e6, description="Rewards are multiplied by this for training; reported rewards are not."
    )
    compression: Literal["auto", "none", "lz4"] = Field(
        default="auto",
        description="Compression of samples on the wire; auto: each column that shrinks enough, across nodes.",
    )
    straggler_mitigation: bool = Field(
        default=False,
        description="Train as soon as enough samples are there and take late ones into the next iteration; counted as "
        "bias, and no longer reproducible.",
    )
    max_sequence_length: int = Field(
        default=32, ge=1, le=4096, description="Timesteps of one training sequence of a recurrent model."
    )
