"""spec.stop and spec.evaluation: when training is over, and how it is judged on the way."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from rlcore.api.base import ApiModel
from rlcore.api.fields import duration
from rlcore.api.quantity import parse_duration


class StopSpec(ApiModel):
    """Training is complete as soon as one of the conditions holds; at least one must be set."""

    timesteps: int | None = Field(
        default=None, ge=1, le=10**15, description="Timesteps (agent steps, after frame skip) to train; null: no limit."
    )
    iterations: int | None = Field(
        default=None, ge=1, le=10**12, description="Iterations of training, a count; null: no limit."
    )
    episode_reward: float | None = Field(
        default=None,
        ge=-1e15,
        le=1e15,
        description="Mean reward of recent training episodes to reach, in the environment's own unit; null: no goal.",
    )
    wall_clock: Annotated[str, *duration(1, 366 * 86_400)] | None = Field(
        default=None, description="Time spent training, summed over all restarts; null: no limit."
    )

    @model_validator(mode="after")
    def _check(self) -> StopSpec:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError("needs at least one of timesteps, iterations, episodeReward, wallClock")
        return self

    @property
    def wall_clock_s(self) -> int | None:
        """wallClock in seconds, or None."""
        return None if self.wall_clock is None else parse_duration(self.wall_clock)


class EvaluationSpec(ApiModel):
    """Evaluation of the deterministic policy beside training, on environments of its own."""

    every: int = Field(
        default=0, ge=0, le=10**9, description="Iterations between evaluations, a count; 0: no evaluation."
    )
    episodes: int = Field(default=10, ge=1, le=100_000, description="Episodes of one evaluation, a count.")
