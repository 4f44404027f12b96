"""What a person sees of a population: lines, and a plot of all trials with their copies."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.driver.population_state import PopulationState
from rlcore.metrics.jsonl import METRICS_FILE, read_results

logger = logging.getLogger("rlcore.driver")

PLOT_FILE = "population.png"
_SIZE_INCHES = (8.0, 4.5)


def round_line(state: PopulationState) -> str:
    """One line after a round: how the best, the middle and the worst are doing."""
    scores = sorted(_score(member.score) for member in state.members)
    best = state.members[state.best]
    return (
        f"round {state.round + 1}: best trial {state.best} with {_number(best.score)} ({values_text(best.values)}), "
        f"median {_number(scores[len(scores) // 2])}, worst {_number(scores[0])}"
    )


def exploit_line(entry: Mapping[str, Any]) -> str:
    """One line for a copy: who, whom, and what changes."""
    changes = ", ".join(f"{name} {entry['before'][name]:.4g} -> {value:.4g}" for name, value in entry["values"].items())
    return (
        f"  trial {entry['trial']} ({_number(entry['score'])}) copies trial {entry['source']} "
        f"({_number(entry['source_score'])}): {changes}"
    )


def summary_lines(state: PopulationState) -> list[str]:
    """The population at its end, best trial first."""
    order = sorted(range(len(state.members)), key=lambda number: (-_score(state.members[number].score), number))
    lines = ["", f"population after {state.round} rounds:"]
    for number in order:
        member = state.members[number]
        copies = f", a copy {member.copies} x" if member.copies else ""
        lines.append(f"  trial {number}: reward {_number(member.score)}, {values_text(member.values)}{copies}")
    return lines


def values_text(values: Mapping[str, float]) -> str:
    """Hyper-parameters in one line."""
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def draw_population(directory: Path, state: PopulationState) -> None:
    """Draws every trial's reward over timesteps, and an arrow from source to copy, into population.png.

    A plot that cannot be drawn is logged: no training ends for it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for number in range(len(state.members)):
        points = _points(directory / "trials" / str(number) / METRICS_FILE)
        best = number == state.best
        axes.plot(
            [timesteps for timesteps, _ in points],
            [reward for _, reward in points],
            color=f"C{number % 10}",
            linewidth=2.0 if best else 1.0,
            label=f"trial {number}" + (" (best)" if best else ""),
        )
    for entry in state.lineage:
        if entry["event"] == "copy" and entry["score"] is not None and entry["source_score"] is not None:
            at, source = entry["timesteps"], entry["source_score"]
            arrow = {"arrowstyle": "->", "color": f"C{entry['trial'] % 10}", "alpha": 0.5}
            axes.annotate("", xy=(at, source), xytext=(at, entry["score"]), arrowprops=arrow)
    axes.set_xlabel("timesteps of a trial (agent steps)")
    axes.set_ylabel("episode reward (environment's units)")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if len(state.members) <= 16:
        axes.legend(fontsize="small", framealpha=0.85, edgecolor="none")
    png = directory / PLOT_FILE
    temporary = png.with_name(f".{PLOT_FILE}.tmp")
    try:
        FigureCanvasAgg(figure).print_png(temporary)
        os.replace(temporary, png)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        logger.warning("%s is not drawn: %s", png, error)


def _points(metrics: Path) -> list[tuple[int, float]]:
    try:
        results = [(r.get("timesteps"), r.get("episode_reward_mean")) for r in read_results(metrics)]
    except OSError:
        return []
    return [(t, float(r)) for t, r in results if isinstance(t, int) and isinstance(r, int | float)]


def _score(score: float | None) -> float:
    return -math.inf if score is None else score


def _number(score: float | None) -> str:
    return "none" if score is None or math.isinf(score) else f"{score:.1f}"
