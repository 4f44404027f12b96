"""Piecewise linear schedules: a number that changes with the timesteps trained."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field

from rlcore.api.base import ApiModel, Conflict, raise_conflicts


class SchedulePoint(ApiModel):
    """One corner of a piecewise linear schedule."""

    timesteps: int = Field(ge=0, le=10**15, description="Where the corner is, in timesteps trained.")
    value: float = Field(ge=0, le=1000, description="The number's value there, in the unit of the scheduled field.")


def _increasing(points: list[SchedulePoint]) -> list[SchedulePoint]:
    raise_conflicts(
        "Schedule",
        [
            Conflict(
                (index, "timesteps"),
                point.timesteps,
                f"{point.timesteps} does not come after {before.timesteps}: timesteps must increase",
            )
            for index, (before, point) in enumerate(pairwise(points), start=1)
            if point.timesteps <= before.timesteps
        ],
    )
    return points


Schedule = Annotated[list[SchedulePoint], Field(min_length=1, max_length=64), AfterValidator(_increasing)]
"""Corners in the order of their timesteps; constant before the first and after the last."""


def schedule_value(points: Sequence[SchedulePoint], timesteps: float) -> float:
    """The schedule's value after `timesteps` trained, linear between its corners."""
    if timesteps <= points[0].timesteps:
        return points[0].value
    for left, right in pairwise(points):
        if timesteps < right.timesteps:
            rise = (right.value - left.value) * (timesteps - left.timesteps)
            return left.value + rise / (right.timesteps - left.timesteps)
    return points[-1].value
