"""Values that change over training: piecewise linear in timesteps."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import SchedulePoint, schedule_value


class Schedule:
    """A constant, or straight lines between points (timesteps, value); constant outside of them."""

    def __init__(self, constant: float, points: Sequence[SchedulePoint] | None = None) -> None:
        self._points = tuple(points) if points else (SchedulePoint(timesteps=0, value=constant),)

    def __call__(self, timesteps: int) -> float:
        """The value after so many timesteps."""
        return schedule_value(self._points, timesteps)
