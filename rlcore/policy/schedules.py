"""Values that change over training: piecewise linear in timesteps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol


class SchedulePoint(Protocol):
    """One corner of a schedule."""

    @property
    def timesteps(self) -> int: ...

    @property
    def value(self) -> float: ...


class Schedule:
    """A constant, or straight lines between points (timesteps, value); constant outside of them."""

    def __init__(self, constant: float, points: Sequence[SchedulePoint] | None = None) -> None:
        self._points = sorted((p.timesteps, float(p.value)) for p in points) if points else [(0, float(constant))]
        self._at = [t for t, _ in self._points]

    def __call__(self, timesteps: int) -> float:
        """The value after so many timesteps."""
        right = bisect_right(self._at, timesteps)
        if right == 0:
            return self._points[0][1]
        if right == len(self._points):
            return self._points[-1][1]
        (t0, v0), (t1, v1) = self._points[right - 1], self._points[right]
        return v0 + (v1 - v0) * (timesteps - t0) / (t1 - t0)
