"""Medians, ratios and rates: pure functions over lists of figures."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

Figures = Sequence[float | None]
"""One figure a round; None where the round failed."""


def middle(figures: Figures) -> float | None:
    """The median of what was measured, None if nothing was."""
    present = [figure for figure in figures if figure is not None]
    return median(present) if present else None


def ratio(of: Figures, to: Figures) -> float | None:
    """The median over rounds of `of / to`.

    Two figures of one round were measured within seconds of each other: what else the machine did then slowed both, and
    cancels out.
    """
    return middle([a / b for a, b in zip(of, to, strict=True) if a is not None and b])


def one_after_the_other(parts: Sequence[Figures]) -> list[float | None]:
    """Rates of doing all the parts' work in turn, round by round: 1 / sum(1 / rate)."""
    rounds = zip(*parts, strict=True)
    return [1.0 / sum(1.0 / rate for rate in rates if rate) if all(rates) else None for rates in rounds]


def steady_rate(points: Sequence[tuple[float, float]], *, skip: float = 0.1) -> float:
    """Timesteps per second between the first point after the warm-up and the last.

    Args:
        points: (seconds, timesteps so far), one an iteration, in order.
        skip: share of the points that belong to the warm-up; at least one.

    Raises:
        ValueError: too few points to tell start-up from running.
    """
    first = max(1, int(len(points) * skip))
    if len(points) < first + 2:
        raise ValueError(f"{len(points)} iterations are too few to measure: train for more timesteps")
    (started, before), (ended, after) = points[first], points[-1]
    return (after - before) / (ended - started)


def in_words(value: float | None, unit: str = "") -> str:
    """Three or more significant digits, thousands separated, with its unit: "12,345 timesteps/s"."""
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()
