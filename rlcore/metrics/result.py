"""What one training iteration gives back: plain numbers that every display, file and exporter is made from."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlcore.metrics.bottleneck import bottleneck_sentence, time_shares


@dataclass(frozen=True, kw_only=True)
class IterationResult:
    """One iteration of a job. Timesteps are agent steps (after frame skip); times are seconds."""

    iteration: int
    timesteps: int
    """Since the beginning of the job, over all resumes."""
    timesteps_this_iteration: int
    episodes: int
    """Finished since the beginning of the job."""
    episode_reward_mean: float | None = None
    """Over the last 100 episodes; None before the first one ends. So are min, max and the length."""
    episode_reward_min: float | None = None
    episode_reward_max: float | None = None
    episode_length_mean: float | None = None
    timesteps_per_s: float
    sample_time_s: float
    """Driver time of this iteration spent sampling, or waiting for samples that are being made as they should."""
    learn_time_s: float
    """In SGD, weight publishing included."""
    wait_time_s: float
    """Neither: blocked on stragglers, queues or restarts."""
    checkpoint_time_s: float = 0.0
    evaluate_time_s: float = 0.0
    elapsed_s: float
    """Training time since the beginning of the job, over all resumes."""
    learner: Mapping[str, float] = field(default_factory=dict)
    """policy_loss, value_loss, entropy, kl, ...; with several policies `policy_id/kl`."""
    optimizer: Mapping[str, float] = field(default_factory=dict)
    """late_timesteps, discarded_timesteps (totals of the job), policy_staleness (updates), ..."""
    evaluators: int = 0
    """Healthy ones."""
    environment_failures: int = 0
    """Environment exceptions since the beginning of the job."""
    checkpoint_timesteps: int | None = None
    """At which the newest complete checkpoint was made."""
    evaluation: Mapping[str, Any] | None = None
    """The newest evaluation of the deterministic policy: episode_reward_mean, episodes, timesteps it was made at."""

    def stage_times_s(self) -> dict[str, float]:
        """Seconds of this iteration by stage."""
        return {
            "sample": self.sample_time_s,
            "learn": self.learn_time_s,
            "wait": self.wait_time_s,
            "checkpoint": self.checkpoint_time_s,
            "evaluate": self.evaluate_time_s,
        }

    def time_shares(self) -> dict[str, float]:
        """Share (0 to 1) of this iteration's time by stage; empty where no time was measured."""
        return time_shares([self.stage_times_s()])

    def bottleneck(self) -> str:
        """One sentence: what this iteration's time went to, and what would help."""
        return bottleneck_sentence(self.time_shares())

    def to_json_dict(self) -> dict[str, Any]:
        """The fields as JSON values; NaN and infinities become null, numpy numbers Python's."""
        return {item.name: finite_json(getattr(self, item.name)) for item in dataclasses.fields(self)}


def rates_text(evaluation: Mapping[str, Any]) -> str:
    """Such as "98.5 % won, 1.5 % drawn, 0.0 % lost" of games against another player; of other episodes nothing."""
    words = {"win_rate": "won", "draw_rate": "drawn", "loss_rate": "lost"}
    return ", ".join(f"{100 * evaluation[key]:.1f} % {word}" for key, word in words.items() if key in evaluation)


def finite_json(value: Any) -> Any:
    """`value` as a JSON value: what JSON cannot say (NaN, infinities) becomes None, unknown objects their text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, Mapping):
        return {str(key): finite_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_json(item) for item in value]
    return str(value)
