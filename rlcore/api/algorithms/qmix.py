"""Hyper-parameters of QMIX (Rashid et al. 2018, arXiv 1803.11485)."""

from __future__ import annotations

from pydantic import Field, model_validator

from rlcore.api.algorithms.replay import ReplayAlgorithmConfig
from rlcore.api.base import Conflict, raise_conflicts


class QMIXConfig(ReplayAlgorithmConfig):
    """Cooperative value learning: the agents' action values are mixed into the team's, which grows with each."""

    learning_rate: float = Field(default=5e-4, gt=0, le=1, description="Step size of Adam, per update.")
    train_batch_size: int = Field(
        default=256, ge=1, le=100_000_000, description="Transitions in one gradient step, drawn from replay."
    )
    double: bool = Field(default=True, description="Choose the next action online, and value it by the target network.")
    clipped_double: bool = Field(
        default=True,
        description="With double: value the next actions by the smaller of both networks' estimates, against "
        "overestimation.",
    )
    dueling: bool = Field(default=False, description="Separate streams for the state's value and for advantages.")
    mixing_embedding: int = Field(default=32, ge=1, le=4096, description="Width of the mixing network, in units.")
    mixing_hypernet: int = Field(
        default=64, ge=1, le=4096, description="Hidden width of the networks that make the mixing weights, in units."
    )
    epsilon_initial: float = Field(default=1.0, ge=0, le=1, description="Share of random actions at first.")
    epsilon_final: float = Field(default=0.05, ge=0, le=1, description="Share of random actions later on.")
    epsilon_timesteps: int = Field(
        default=20_000, ge=1, le=10**15, description="Timesteps over which that share falls, in a straight line."
    )
    target_update_interval: int = Field(
        default=200, ge=1, le=10**9, description="Gradient steps between copies to the target network, a count."
    )

    @model_validator(mode="after")
    def _check(self) -> QMIXConfig:
        conflicts = self.replay_conflicts()
        if self.worker_priorities:
            message = "evaluators compute none for QMIX; new transitions get the largest priority so far"
            conflicts.append(Conflict(("workerPriorities",), True, message))
        raise_conflicts("QMIXConfig", conflicts)
        return self
