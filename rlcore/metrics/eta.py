"""How long until a job stops: pure functions over its stop conditions and recent results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

MIN_TREND_POINTS = 5
"""Fewer results say nothing about where the reward goes."""


class StopConditions(Protocol):
    """A job ends when the first of these is reached; None is not a condition."""

    @property
    def timesteps(self) -> int | None: ...
    @property
    def iterations(self) -> int | None: ...
    @property
    def episode_reward(self) -> float | None: ...
    @property
    def wall_clock_s(self) -> float | None: ...


@dataclass(frozen=True)
class ProgressPoint:
    """What one iteration tells about progress."""

    elapsed_s: float
    timesteps: int
    iteration: int
    episode_reward: float | None = None


@dataclass(frozen=True)
class StopEstimate:
    """How far one stop condition is."""

    condition: str
    """In words: `200,000 timesteps`, `episode reward 475`."""
    fraction: float
    """0 to 1."""
    eta_s: float | None
    """None where it cannot be told (yet)."""


def estimates(
    stop: StopConditions, points: Sequence[ProgressPoint], reward_at_start: float | None = None
) -> list[StopEstimate]:
    """An estimate for each given condition.

    Args:
        points: the newest ones, oldest first; a window, not the whole run.
        reward_at_start: the first episode reward of the run, from where the way to the goal is measured.
    """
    if not points:
        return []
    now = points[-1]
    first = points[0] if len(points) > 1 else ProgressPoint(0.0, 0, 0)  # totals count from there
    span_s = now.elapsed_s - first.elapsed_s
    found = []
    if stop.timesteps is not None:
        eta_s = _remaining_s(now.timesteps, stop.timesteps, now.timesteps - first.timesteps, span_s)
        found.append(StopEstimate(f"{stop.timesteps:,} timesteps", _part(now.timesteps, stop.timesteps), eta_s))
    if stop.iterations is not None:
        eta_s = _remaining_s(now.iteration, stop.iterations, now.iteration - first.iteration, span_s)
        found.append(StopEstimate(f"{stop.iterations:,} iterations", _part(now.iteration, stop.iterations), eta_s))
    if stop.wall_clock_s is not None:
        eta_s = max(0.0, stop.wall_clock_s - now.elapsed_s)
        condition = f"wall clock {duration(stop.wall_clock_s)}"
        found.append(StopEstimate(condition, _part(now.elapsed_s, stop.wall_clock_s), eta_s))
    if stop.episode_reward is not None:
        found.append(_reward_estimate(stop.episode_reward, points, reward_at_start))
    return found


def nearest(candidates: Sequence[StopEstimate]) -> StopEstimate | None:
    """The condition that will end the job: the smallest ETA; where none is known, the one furthest on."""
    known = [estimate for estimate in candidates if estimate.eta_s is not None]
    if known:
        return min(known, key=lambda estimate: (estimate.eta_s, -estimate.fraction))
    return max(candidates, key=lambda estimate: estimate.fraction, default=None)


def duration(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `1 h 05 min`, `2 d 3 h`: two units, rounded."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours} h"


def _remaining_s(now: float, target: float, gained: float, span_s: float) -> float | None:
    if now >= target:
        return 0.0
    if gained <= 0 or span_s <= 0:
        return None
    return (target - now) * span_s / gained


def _part(now: float, target: float) -> float:
    return min(1.0, max(0.0, now / target)) if target > 0 else 1.0


def _reward_estimate(target: float, points: Sequence[ProgressPoint], reward_at_start: float | None) -> StopEstimate:
    """A straight line through the recent rewards; only a rising one has an end."""
    condition = f"episode reward {target:g}"
    known = [(point.elapsed_s, point.episode_reward) for point in points if point.episode_reward is not None]
    if not known:
        return StopEstimate(condition, 0.0, None)
    now = known[-1][1]
    start = known[0][1] if reward_at_start is None else reward_at_start
    if now >= target:
        return StopEstimate(condition, 1.0, 0.0)
    fraction = _part(now - start, target - start) if start < target else 0.0
    if len(known) < MIN_TREND_POINTS:
        return StopEstimate(condition, fraction, None)
    slope = _slope(known)
    return StopEstimate(condition, fraction, (target - now) / slope if slope > 0 else None)


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Least-squares slope, 0 where all x are equal."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    variance = sum((x - mean_x) ** 2 for x, _ in points)
    if variance == 0:
        return 0.0
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / variance
