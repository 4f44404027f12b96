"""Learning curves as PNG, from metrics.jsonl. matplotlib is imported on the first plot, and needs no display."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.errors import UserError
from rlcore.metrics.jsonl import METRICS_FILE, read_results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_INCHES = (8.0, 4.5)
_DOTS_PER_INCH = 150


@dataclass
class Curve:
    """The points of one run; rewards are means over 100 episodes, NaN before the first episode ended."""

    timesteps: list[int] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    minimum: list[float] = field(default_factory=list)
    maximum: list[float] = field(default_factory=list)
    evaluated_at: list[int] = field(default_factory=list)
    evaluation: list[float] = field(default_factory=list)


def learning_curve(
    runs: Path | Mapping[str, Path], png: Path, *, threshold: float | None = None, title: str | None = None
) -> None:
    """Draw episode reward over timesteps: mean, band from min to max, evaluations, and the goal as a line.

    Args:
        runs: one metrics.jsonl, or several by the name each shall have in the legend.
        png: the file to write; replaced as a whole.
        threshold: the reward to reach.

    Raises:
        UserError: a run has no metrics, or none with an episode in it; the image cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    curves = {name: read_curve(path) for name, path in _by_name(runs).items()}
    # Without pyplot there is no global state, so this may run in any thread.
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    for index, (name, curve) in enumerate(curves.items()):
        _draw(axes, curve, name if len(curves) > 1 else "", f"C{index % 10}")
    if len(curves) > 1 and any(curve.evaluation for curve in curves.values()):
        axes.plot([], [], color="gray", linestyle="none", marker="D", markersize=5, label="evaluations")
    if threshold is not None:
        axes.axhline(threshold, color="black", linestyle="--", linewidth=1, label=f"goal {threshold:g}")
    _label(axes, title)
    temporary = png.with_name(png.name + ".tmp")
    try:
        png.parent.mkdir(parents=True, exist_ok=True)
        FigureCanvasAgg(figure).print_png(temporary)
        os.replace(temporary, png)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UserError(
            f"cannot write {png}: {error.strerror}", hint="choose another file, or free some space"
        ) from error


def read_curve(metrics: Path) -> Curve:
    """The points of one metrics.jsonl.

    Raises:
        UserError: there is no such file, or nothing in it can be drawn.
    """
    curve = Curve()
    try:
        for result in read_results(metrics):
            if not isinstance(result.get("timesteps"), int):
                continue
            curve.timesteps.append(result["timesteps"])
            for values, key in ((curve.mean, "mean"), (curve.minimum, "min"), (curve.maximum, "max")):
                values.append(_number(result.get(f"episode_reward_{key}")))
            _add_evaluation(curve, result.get("evaluation"))
    except OSError as error:
        raise UserError(
            f"cannot read {metrics}: {error.strerror}", hint=f"give the directory of a run; it holds a {METRICS_FILE}"
        ) from error
    if all(map(math.isnan, [*curve.mean, *curve.evaluation])):
        raise UserError(f"nothing to draw in {metrics}: no episode has finished yet", hint="let the run go on first")
    return curve


def _add_evaluation(curve: Curve, evaluation: object) -> None:
    """Results repeat the newest evaluation until there is another; it is drawn once."""
    if not isinstance(evaluation, Mapping) or not isinstance(evaluation.get("timesteps"), int):
        return
    if not curve.evaluated_at or evaluation["timesteps"] != curve.evaluated_at[-1]:
        curve.evaluated_at.append(evaluation["timesteps"])
        curve.evaluation.append(_number(evaluation.get("episode_reward_mean")))


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def _by_name(runs: Path | Mapping[str, Path]) -> Mapping[str, Path]:
    return runs if isinstance(runs, Mapping) else {"": runs}


def _draw(axes: Axes, curve: Curve, name: str, color: str) -> None:
    # A run of one iteration would draw an invisible line.
    marker = "o" if len(curve.timesteps) == 1 else None
    label = name or "training, mean of 100 episodes"
    axes.plot(curve.timesteps, curve.mean, color=color, linewidth=1.5, marker=marker, label=label)
    axes.fill_between(
        curve.timesteps,
        curve.minimum,
        curve.maximum,
        color=color,
        alpha=0.06 if name else 0.15,  # several bands lie on each other
        linewidth=0,
        label=None if name else "lowest to highest episode",
    )
    if curve.evaluation:
        axes.plot(
            curve.evaluated_at,
            curve.evaluation,
            color=color if name else "C1",
            zorder=3,
            linestyle="none",
            marker="D",
            markersize=5,
            markeredgecolor="white",
            label=None if name else "evaluation, deterministic policy",
        )


def _label(axes: Axes, title: str | None) -> None:
    from matplotlib.ticker import EngFormatter

    if title is not None:
        axes.set_title(title)
    axes.set_xlabel("timesteps (agent steps)")
    axes.set_ylabel("episode reward (environment's units)")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    axes.margins(x=0.02)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(framealpha=0.85, edgecolor="none", fontsize="small")


def run_names(directories: Sequence[Path]) -> list[str]:
    """The shortest trailing parts of the paths that tell them apart: `a/cartpole`, `b/cartpole`."""
    parts = [directory.absolute().parts for directory in directories]
    depth = 1
    while len({path[-depth:] for path in parts}) < len(set(parts)):
        depth += 1
    return ["/".join(path[-depth:]) for path in parts]
