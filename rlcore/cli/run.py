"""`rlcore run`: train a manifest on this machine."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rlcore.api import RLJob
    from rlcore.driver.run import RunReport


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("--in-process", is_flag=True, help="No Ray: everything in this process, for a debugger.")
@click.option("--fresh", is_flag=True, help="Start over; the earlier run is moved aside, never deleted.")
@click.option("--strict", is_flag=True, help="Fail where this machine lacks what the manifest asks for.")
@click.option(
    "--runs",
    "root",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Directory that run directories are made in.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="a free one",
    help="Port of the metrics and status endpoint.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address that the endpoint binds to.")
@click.pass_context
def run(
    ctx: click.Context, manifest: Path, in_process: bool, fresh: bool, strict: bool, root: Path, port: int, host: str
) -> None:
    """Train the RLJob in MANIFEST, or resume it where it was interrupted.

    Everything it makes is in runs/NAME/: checkpoints, metrics.jsonl, TensorBoard events, a learning curve.
    Ctrl-C (or SIGTERM) saves a checkpoint and stops; run the same command again to go on.
    """
    from rlcore.api import load_job

    job = load_job(manifest)
    # Evaluators share these cores: a learner thread that spins at a barrier would keep one of them from its work. It
    # must be said before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Heavy imports only for a manifest that is valid: its mistakes are shown in half a second.
    from rlcore.driver.interrupt import Interrupted
    from rlcore.driver.run import RunOptions, run_job
    from rlcore.metrics.progress import Progress

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", force=True)
    display = Progress(job.metadata.name, job.spec.stop)
    options = RunOptions(root=root, in_process=in_process, fresh=fresh, strict=strict, port=port, host=host)
    try:
        report = run_job(job, options, display)
    except Interrupted as stop:
        click.echo(f"stopped by {stop} before training began: no checkpoint was touched", err=True)
        ctx.exit(stop.interrupt.exit_code)
    finish(job, manifest, report)
    if report.interrupt is not None:
        ctx.exit(report.interrupt.exit_code)


def finish(job: RLJob, manifest: Path, report: RunReport) -> None:
    """Draws the curve and says how it ended and what can be done next."""
    directory = report.directory
    result = report.outcome.result if report.outcome else None
    if result is not None and result.episode_reward_mean is not None and directory.metrics.exists():
        from rlcore.metrics.plot import learning_curve

        learning_curve(directory.metrics, directory.learning_curve, threshold=job.spec.stop.episode_reward)
    for line in summary(manifest, report):
        click.echo(line)


def summary(manifest: Path, report: RunReport) -> list[str]:
    """The closing lines of a run."""
    from rlcore.metrics.result import rates_text

    directory = report.directory
    lines = [""]
    if report.completion is None:
        outcome = report.outcome
        assert outcome is not None
        saved = f"saved at {outcome.checkpoint.timesteps:,} timesteps" if outcome.checkpoint else "nothing to save yet"
        lines += [f"stopped by {outcome.reason}: {saved}", "", f"  go on      rlcore run {manifest}"]
        return lines + next_commands(report)
    record = report.completion
    head = "complete already" if report.outcome is None else "complete"
    lines.append(f"{record['job']} is {head}: {record['reason']}")
    lines.append(
        f"  {record['timesteps']:,} timesteps, {record['episodes']:,} episodes, {record['iterations']:,} iterations "
        f"in {record['elapsed_s']:.1f} s of training"
    )
    if record.get("evaluation"):
        evaluation = record["evaluation"]
        lines.append(
            f"  deterministic policy: mean episode reward {evaluation['episode_reward_mean']:.1f} "
            f"over {evaluation['episodes']} episodes"
        )
        if rates := rates_text(evaluation):
            lines.append(f"  against a random player: {rates}")
    if report.restarted_timesteps:
        lines.append(f"  resumes began {report.restarted_timesteps:,} timesteps of unfinished episodes anew")
    lines += ["", f"  results    {directory.path}/", *next_commands(report)]
    if report.outcome is None:
        lines.append(f"  start over rlcore run --fresh {manifest}")
    return lines


def next_commands(report: RunReport) -> list[str]:
    """What a user may want to do next, one command a line."""
    path = report.directory.path
    return [
        f"  evaluate   rlcore eval {path}",
        f"  plot       rlcore plot {path}",
        f"  metrics    tensorboard --logdir {path}",
    ]
