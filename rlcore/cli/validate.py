"""`rlcore validate`: judge manifests offline, as the API server would."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import click

from rlcore.api import EvaluatorsSpec, RLJob, StopSpec, load_job, parse_job
from rlcore.api.problems import InvalidManifestError, Problem
from rlcore.errors import ManifestError


@dataclass(frozen=True)
class Verdict:
    """What became of one file: a job, or problems.

    Attributes:
        file: as given on the command line.
        job: the valid job, or None.
        problems: all that is wrong; empty for a valid job.
    """

    file: str
    job: RLJob | None
    problems: tuple[Problem, ...] = ()


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def validate(ctx: click.Context, files: tuple[str, ...], output: str) -> None:
    """Check RLJob manifests and say all that is wrong with them.

    FILE is a YAML or JSON file; - reads standard input. The exit code is 2 where any of them is not valid.
    """
    verdicts = [judge(file) for file in files]
    if output == "json":
        click.echo(json.dumps({"files": [as_json(verdict) for verdict in verdicts]}, indent=2, ensure_ascii=False))
    else:
        for verdict in verdicts:
            show(verdict)
    if any(verdict.job is None for verdict in verdicts):
        ctx.exit(2)


def judge(file: str) -> Verdict:
    """Read one manifest; "-" is standard input."""
    try:
        return Verdict(file, parse_job(_stdin(), source="<stdin>") if file == "-" else load_job(file))
    except InvalidManifestError as error:
        return Verdict(file, None, error.problems)
    except ManifestError as error:
        hint = f": {error.hint}" if error.hint else ""
        return Verdict(file, None, (Problem("", error.message + hint),))


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(f"standard input is not UTF-8 text: byte {error.start}") from None


def show(verdict: Verdict) -> None:
    """Print one verdict: valid ones to stdout, problems to stderr."""
    if verdict.job is not None:
        click.echo(f"{verdict.file}: {click.style('valid', fg='green')} ({summary(verdict.job)})")
        return
    count = len(verdict.problems)
    head = f"{verdict.file}: {click.style('not valid', fg='red', bold=True)}, {count} problem{'s'[: count != 1]}"
    click.echo(head, err=True)
    for problem in verdict.problems:
        click.echo(f"  {problem}", err=True)


def summary(job: RLJob) -> str:
    """What a job does, in one line."""
    spec = job.spec
    parts = [f"{spec.algorithm} on {spec.environment.id}", spec.resolved_optimizer]
    parts.append(f"{pods_text(spec.evaluators)} evaluator pods")
    parts.append(f"until {stop_text(spec.stop)}")
    return ", ".join(parts)


def pods_text(evaluators: EvaluatorsSpec) -> str:
    """How many evaluator pods there will be: "4", or "2 to 16" where they are autoscaled."""
    if evaluators.replicas is not None:
        return str(evaluators.replicas)
    low = sum(pool.min_replicas for pool in evaluators.pools)
    high = sum(pool.max_replicas for pool in evaluators.pools)
    return str(low) if low == high else f"{low} to {high}"


def stop_text(stop: StopSpec) -> str:
    """The stop conditions in words."""
    conditions = [
        f"{stop.timesteps:,} timesteps" if stop.timesteps is not None else "",
        f"{stop.iterations:,} iterations" if stop.iterations is not None else "",
        f"reward {stop.episode_reward:g}" if stop.episode_reward is not None else "",
        stop.wall_clock or "",
    ]
    return " or ".join(condition for condition in conditions if condition)


def as_json(verdict: Verdict) -> dict[str, object]:
    """One verdict for programs."""
    return {
        "file": verdict.file,
        "valid": verdict.job is not None,
        "name": verdict.job.metadata.name if verdict.job else None,
        "summary": summary(verdict.job) if verdict.job else None,
        "problems": [
            {"line": problem.line, "path": problem.path, "message": problem.message} for problem in verdict.problems
        ],
    }
