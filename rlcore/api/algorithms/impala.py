"""Hyper-parameters of IMPALA (Espeholt et al. 2018) and of APPO, its relative with PPO's objective."""

from __future__ import annotations

from pydantic import Field, model_validator

from rlcore.api.algorithms.actor_critic import ActorCriticConfig
from rlcore.api.base import Conflict, raise_conflicts
from rlcore.api.schedule import Schedule


class VTraceConfig(ActorCriticConfig):
    """What IMPALA and APPO have in common: V-trace on the learner, and evaluators that never wait for it."""

    learning_rate: float = Field(default=1e-3, gt=0, le=1, description="Step size of Adam, per update.")
    entropy_coefficient: float = Field(default=0.01, ge=0, le=1000, description="Weight of the entropy bonus, per nat.")
    train_batch_size: int = Field(
        default=500, ge=1, le=100_000_000, description="Timesteps of one update, over all evaluators."
    )
    fragment_length: int | None = Field(
        default=20,
        ge=1,
        le=1_000_000,
        description="Timesteps per environment in one sample; null: trainBatchSize divided by all environments.",
    )
    vtrace_lambda: float = Field(
        default=1.0, ge=0, le=1, description="Bias against variance in V-trace's targets: 0 one-step, 1 as published."
    )
    rho_clip: float = Field(
        default=1.0, gt=0, le=1e9, description="Importance weights of temporal differences are cut at this; no unit."
    )
    trace_clip: float = Field(
        default=1.0, gt=0, le=1e9, description="Importance weights that carry differences back are cut here; no unit."
    )
    num_epochs: int = Field(default=1, ge=1, le=1000, description="Passes over each train batch, a count.")
    updates_per_iteration: int = Field(
        default=20, ge=1, le=100_000, description="Train batches in one iteration of training, a count."
    )
    samples_in_flight: int = Field(
        default=2, ge=1, le=64, description="Samples that each evaluator is asked for ahead of time, a count."
    )
    learner_queue_size: int = Field(
        default=4,
        ge=1,
        le=1024,
        description="Train batches that may wait for the learner, a count; when it is full evaluators are not asked.",
    )
    updates_in_flight: int = Field(
        default=2, ge=1, le=64, description="Updates that a learner on another pod is given ahead of time, a count."
    )
    broadcast_interval: int = Field(
        default=1, ge=1, le=100_000, description="Updates after which evaluators are given new weights, a count."
    )
    replay_slots: int = Field(
        default=0, ge=0, le=1_000_000, description="Samples kept to be trained on again, a count; 0: none."
    )
    replay_proportion: float = Field(
        default=0.0, ge=0, le=100, description="Old samples mixed in for each new one; 0.5: one for every two."
    )
    num_aggregators: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="Actors that join samples into train batches beside the evaluators, a count; above "
        "evaluatorsPerAggregator evaluators at least one for each so many, and one more that joins theirs.",
    )
    evaluators_per_aggregator: int = Field(
        default=64,
        ge=1,
        le=1_000_000,
        description="Evaluators beyond which actors join what evaluators send, one for each so many; a count.",
    )

    def replay_conflict(self) -> list[Conflict]:
        """Replay with nothing to replay from."""
        if not self.replay_proportion or self.replay_slots:
            return []
        message = f"{self.replay_proportion} needs replaySlots above 0"
        return [Conflict(("replayProportion",), self.replay_proportion, message)]


class IMPALAConfig(VTraceConfig):
    """Importance-weighted actor-learner: the policy gradient corrected for stale actors."""

    @model_validator(mode="after")
    def _check(self) -> IMPALAConfig:
        raise_conflicts("IMPALAConfig", self.replay_conflict())
        return self


class APPOConfig(VTraceConfig):
    """Asynchronous PPO: the clipped surrogate on V-trace's advantages."""

    train_batch_size: int = Field(
        default=1000, ge=1, le=100_000_000, description="Timesteps of one update, over all evaluators."
    )
    entropy_coefficient: float = Field(default=0.0, ge=0, le=1000, description="Weight of the entropy bonus, per nat.")
    num_epochs: int = Field(default=4, ge=1, le=1000, description="Passes over each train batch, a count.")
    minibatch_size: int = Field(
        default=250, ge=1, le=100_000_000, description="Timesteps in one gradient step; at most trainBatchSize."
    )
    clip_range: float = Field(
        default=0.2, gt=0, le=10, description="The probability ratio is clipped to 1 +- this; no unit."
    )
    clip_range_schedule: Schedule | None = Field(
        default=None, description="clipRange over the run, piecewise linear, in its place; null: constant."
    )
    normalize_advantages: bool = Field(
        default=True, description="Shift and scale advantages to mean 0 and deviation 1 in each minibatch."
    )

    @model_validator(mode="after")
    def _check(self) -> APPOConfig:
        raise_conflicts("APPOConfig", [*self.replay_conflict(), *self.minibatch_conflict(self.minibatch_size)])
        return self
