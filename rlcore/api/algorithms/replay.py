"""What every algorithm that learns from replayed transitions has in common."""

from __future__ import annotations

from pydantic import Field

from rlcore.api.algorithms.config import AlgorithmConfig
from rlcore.api.base import Conflict


class ReplayingConfig(AlgorithmConfig):
    """Replay, and how much is trained for what is sampled."""

    train_batch_size: int = Field(
        default=64, ge=1, le=100_000_000, description="Transitions in one gradient step, drawn from replay."
    )
    fragment_length: int | None = Field(
        default=4,
        ge=1,
        le=1_000_000,
        description="Timesteps per environment in one sample; null: trainBatchSize divided by all environments.",
    )
    max_gradient_norm: float = Field(
        default=10.0,
        gt=0,
        le=1e9,
        description="Gradients with a larger Euclidean norm are scaled down to it, actor's and critic's each; no unit.",
    )
    replay_capacity: int = Field(
        default=50_000, ge=1, le=10**10, description="Transitions kept for replay, a count over all shards."
    )
    learning_starts: int = Field(
        default=1000, ge=0, le=10**10, description="Transitions in replay before the first gradient step, a count."
    )
    train_ratio: float = Field(
        default=8.0,
        gt=0,
        le=1e6,
        description="Transitions trained on for each one sampled: a batch of 32 every 4 timesteps is 8.",
    )
    iteration_timesteps: int = Field(
        default=1000, ge=1, le=100_000_000, description="Timesteps sampled in one iteration of training, a count."
    )
    replay_checkpoint_bytes: int = Field(
        default=64 * 1024**2,
        ge=0,
        le=2**50,
        description="Replay saved with each checkpoint, newest first, in bytes; 0: none, it fills anew after a resume.",
    )
    replay_shards: int = Field(
        default=1, ge=1, le=1024, description="Actors that share replay under AsyncReplay, a count."
    )
    replay_batches_in_flight: int = Field(
        default=4, ge=1, le=64, description="Batches drawn ahead of the learner under AsyncReplay, a count."
    )
    samples_in_flight: int = Field(
        default=2, ge=1, le=64, description="Samples that each evaluator is asked for ahead of time, a count."
    )
    max_weight_sync_delay: int = Field(
        default=400,
        ge=1,
        le=10**9,
        description="Timesteps that an evaluator samples before it is given newer weights under AsyncReplay, a count.",
    )

    def replay_conflicts(self) -> list[Conflict]:
        """Replay that can never begin."""
        if self.learning_starts <= self.replay_capacity:
            return []
        message = f"{self.learning_starts} is more than replayCapacity {self.replay_capacity}: training would not begin"
        return [Conflict(("learningStarts",), self.learning_starts, message)]


class ReplayAlgorithmConfig(ReplayingConfig):
    """Targets that bootstrap, and priorities."""

    n_step: int = Field(
        default=1, ge=1, le=1000, description="Timesteps that a return sums before it bootstraps, a count."
    )
    prioritized: bool = Field(
        default=False, description="Draw transitions by their last TD error instead of uniformly."
    )
    priority_alpha: float = Field(
        default=0.6, ge=0, le=10, description="How strongly priorities count in prioritized replay: 0 not, 1 fully."
    )
    priority_beta: float = Field(
        default=0.4, ge=0, le=1, description="How far the bias of prioritized draws is corrected at first: 1 fully."
    )
    priority_beta_timesteps: int = Field(
        default=100_000, ge=1, le=10**15, description="Timesteps over which that correction grows to a full one."
    )
    priority_epsilon: float = Field(
        default=1e-6, gt=0, le=1e6, description="Added to every priority, in units of TD error."
    )
    worker_priorities: bool = Field(
        default=False, description="Evaluators compute first priorities; else new transitions get the largest so far."
    )
    target_update_rate: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of the way that target networks go after each gradient step; null: whole, at intervals.",
    )
    target_update_interval: int = Field(
        default=500, ge=1, le=10**9, description="Gradient steps between copies to the target network, a count."
    )
    replay_frames: bool = Field(
        default=True,
        description="Keep 8-bit images of at least 32x32 once and compressed, however many transitions show them.",
    )
