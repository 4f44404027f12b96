"""Hyper-parameters of learning from records: BC, and MARWIL (Wang et al. 2018)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from rlcore.api.algorithms.config import AlgorithmConfig
from rlcore.api.base import Conflict, raise_conflicts

Input = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class OfflineConfig(AlgorithmConfig):
    """What both have in common: where the records are, and how they are cut into batches."""

    input: Input | None = Field(
        default=None,
        description="Folder of records that `rlcore record` wrote, or minari:NAME of a Minari dataset; must be set.",
    )
    learning_rate: float = Field(default=1e-3, gt=0, le=1, description="Step size of Adam, per update.")
    train_batch_size: int = Field(
        default=8192, ge=1, le=100_000_000, description="Recorded timesteps that one iteration of training learns from."
    )
    minibatch_size: int = Field(
        default=256, ge=1, le=100_000_000, description="Timesteps in one gradient step; at most trainBatchSize."
    )
    num_epochs: int = Field(default=1, ge=1, le=1000, description="Passes over each train batch, a count.")

    @model_validator(mode="after")
    def _check_input(self) -> OfflineConfig:
        conflicts = []
        if self.minibatch_size > self.train_batch_size:
            text = f"{self.minibatch_size} is more than trainBatchSize {self.train_batch_size}"
            conflicts.append(Conflict(("minibatchSize",), self.minibatch_size, text))
        raise_conflicts("OfflineConfig", conflicts)
        return self


class BCConfig(OfflineConfig):
    """Behaviour cloning: the recorded actions are made likely, whatever they earned."""


class MARWILConfig(OfflineConfig):
    """Behaviour cloning in which actions that went better than expected count more."""

    beta: float = Field(
        default=1.0, ge=0, le=100, description="How much better actions count more; 0: all count alike; no unit."
    )
    value_loss_coefficient: float = Field(default=1.0, ge=0, le=1000, description="Weight of the value loss; no unit.")
    advantage_norm_rate: float = Field(
        default=0.01,
        gt=0,
        le=1,
        description="Step of the moving average of squared advantages, per gradient step; no unit.",
    )
    largest_weight: float = Field(
        default=20.0, ge=1, le=1e9, description="No action counts more than this many times; no unit."
    )
