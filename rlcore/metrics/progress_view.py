"""What the progress display shows: one frame for a terminal, one line for a log. No state, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rlcore.metrics.bottleneck import STAGE_NAMES, bottleneck_sentence, percent
from rlcore.metrics.eta import StopEstimate, duration, nearest
from rlcore.metrics.result import IterationResult, rates_text

_STAGE_COLORS = {"sample": "cyan", "learn": "magenta", "wait": "yellow", "checkpoint": "blue", "evaluate": "green"}
_SHARES_WIDTH = 30


@dataclass(frozen=True)
class View:
    """Everything one frame needs."""

    job_name: str
    estimates: tuple[StopEstimate, ...]
    result: IterationResult
    time_shares: Mapping[str, float]
    """Over the recent iterations, steadier than those of one."""
    age_s: float = 0.0
    """Since `result` came."""
    reward_goal: float | None = None


def starting_frame(job_name: str, message: str) -> RenderableType:
    """Before the first iteration there is nothing to measure yet."""
    return Spinner("dots", Text.assemble((job_name, "bold"), "  ", (message or "starting", "dim")))


def frame(view: View) -> RenderableType:
    """The live display: headline, bar with ETA, and one row for each thing a user watches."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column()
    rows.add_row("timesteps", _timesteps_text(view.result))
    rows.add_row("episode reward", _reward_text(view.result, view.reward_goal))
    if view.result.evaluation is not None:
        rows.add_row("evaluation", _evaluation_text(view.result.evaluation))
    rows.add_row("time", _shares_bar(view.time_shares))
    rows.add_row("", Text(bottleneck_sentence(view.time_shares), style="dim"))
    return Group(_headline(view), _bar(view), rows)


def log_line(view: View) -> str:
    """The same as one line of key=value."""
    result, soonest = view.result, nearest(view.estimates)
    fields: dict[str, object] = {
        "job": view.job_name,
        "iteration": result.iteration,
        "timesteps": result.timesteps,
        "timesteps_per_s": f"{result.timesteps_per_s:.0f}",
        "episodes": result.episodes,
        "episode_reward_mean": _number(result.episode_reward_mean),
    }
    if result.evaluation is not None:
        fields["evaluation_reward_mean"] = _number(result.evaluation.get("episode_reward_mean"))
    fields |= {STAGE_NAMES[stage]: f"{100 * share:.0f}%" for stage, share in view.time_shares.items() if share >= 0.005}
    if view.estimates:
        fields["progress"] = f"{100 * max(estimate.fraction for estimate in view.estimates):.0f}%"
    if soonest is not None and soonest.eta_s is not None:
        fields["eta_s"] = f"{soonest.eta_s:.0f}"
    return " ".join(f"{key}={value}" for key, value in fields.items())


def _headline(view: View) -> Text:
    result = view.result
    parts = [f"iteration {result.iteration:,}"]
    if result.evaluators:
        parts.append(f"{result.evaluators} evaluator{'s' * (result.evaluators != 1)}")
    parts.append(duration(result.elapsed_s + view.age_s))
    text = Text.assemble((view.job_name, "bold"), "  ", ("  ".join(parts), "dim"))
    if result.environment_failures:
        text.append(f"  {result.environment_failures:,} environment failures", style="yellow")
    return text


def _bar(view: View) -> RenderableType:
    """The bar follows the condition furthest on, the ETA the one that will come first; both are named."""
    furthest = max(view.estimates, key=lambda estimate: estimate.fraction, default=None)
    if furthest is None:
        return Text("no stop condition", style="dim")
    line = Table.grid(padding=(0, 2))
    line.add_row(
        ProgressBar(total=1.0, completed=furthest.fraction, width=_SHARES_WIDTH),
        Text(f"{percent(furthest.fraction)} to {furthest.condition}"),
        Text(_eta_text(view, furthest), style="bold"),
    )
    return line


def _eta_text(view: View, named: StopEstimate) -> str:
    soonest = nearest(view.estimates)
    if soonest is None or soonest.eta_s is None:
        return "ETA not known yet"
    eta = f"ETA {duration(max(0.0, soonest.eta_s - view.age_s))}"
    return eta if soonest == named else f"{eta} (to {soonest.condition})"


def _timesteps_text(result: IterationResult) -> Text:
    return Text.assemble((f"{result.timesteps:,}", "bold"), f"  {result.timesteps_per_s:,.0f} timesteps/s")


def _reward_text(result: IterationResult, goal: float | None) -> Text:
    if result.episode_reward_mean is None:
        return Text("no episode finished yet", style="dim")
    text = Text.assemble((_number(result.episode_reward_mean), "bold"), " mean")
    if result.episode_reward_min is not None and result.episode_reward_max is not None:
        text.append(f", {_number(result.episode_reward_min)} to {_number(result.episode_reward_max)}")
    if goal is not None:
        text.append(f", goal {goal:g}")
    return text


def _evaluation_text(evaluation: Mapping[str, object]) -> Text:
    text = Text.assemble((_number(evaluation.get("episode_reward_mean")), "bold"), " mean")
    episodes, timesteps = evaluation.get("episodes"), evaluation.get("timesteps")
    if isinstance(episodes, int):
        text.append(f" of {episodes:,} episodes")
    if isinstance(timesteps, int):
        text.append(f" at {timesteps:,} timesteps")
    if rates := rates_text(evaluation):
        text.append(f": {rates}")
    return text


def _shares_bar(time_shares: Mapping[str, float]) -> Text:
    """One bar for all stages, in the colors of the words behind it."""
    text, drawn, so_far = Text(), 0, 0.0
    for stage, share in time_shares.items():
        so_far += share
        cells = round(_SHARES_WIDTH * so_far) - drawn
        text.append("━" * cells, style=_STAGE_COLORS[stage])
        drawn += cells
    separator = "  "
    for stage, share in time_shares.items():
        if share >= 0.005:
            text.append(separator)
            text.append(f"{percent(share)} {STAGE_NAMES[stage]}", style=_STAGE_COLORS[stage])
            separator = ", "
    return text


def _number(value: object) -> str:
    """One decimal, or three digits where that would hide a small number: 312.4, 9.0, 0.0123."""
    if not isinstance(value, (int, float)):
        return "none"
    return f"{value:,.1f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"
