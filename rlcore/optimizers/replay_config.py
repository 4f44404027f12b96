"""What the replay optimizers need to know of a job."""

from __future__ import annotations

from dataclasses import dataclass

from rlcore.optimizers.policy_optimizer import OptimizerConfig


@dataclass(frozen=True)
class ReplayConfig(OptimizerConfig):
    """Attributes beside OptimizerConfig's; `train_batch_size` is that of one gradient step.

    Attributes:
        capacity: transitions kept, over all shards.
        learning_starts: transitions in replay before the first gradient step.
        train_ratio: transitions trained on for each one sampled.
        iteration_timesteps: timesteps sampled in one `step()`.
        prioritized: draw by priority.
        alpha: exponent of priorities.
        beta: first exponent of the weights that correct for them; grows to 1.
        beta_timesteps: over so many timesteps sampled.
        priority_epsilon: added to every priority.
        checkpoint_bytes: replay contents that `save` includes at most.
        shards: replay actors of AsyncReplay.
        batches_in_flight: drawn ahead of the learner.
        samples_in_flight: asked of each evaluator ahead of time.
        max_weight_sync_delay: timesteps of an evaluator between two sets of weights.
    """

    capacity: int = 50_000
    learning_starts: int = 1000
    train_ratio: float = 8.0
    iteration_timesteps: int = 1000
    prioritized: bool = False
    alpha: float = 0.6
    beta: float = 0.4
    beta_timesteps: int = 100_000
    priority_epsilon: float = 1e-6
    checkpoint_bytes: int = 64 * 1024**2
    shards: int = 1
    batches_in_flight: int = 4
    samples_in_flight: int = 2
    max_weight_sync_delay: int = 400

    def beta_at(self, timesteps: int) -> float:
        """The exponent after so many timesteps: `beta` at first, 1 from `beta_timesteps` on."""
        return self.beta + (1.0 - self.beta) * min(1.0, timesteps / self.beta_timesteps)
