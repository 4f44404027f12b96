"""`rlcore plot`: learning curves of one or several runs."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="plot")
@click.argument(
    "run_directories",
    metavar="RUN_DIR...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="PNG to write  [default: learning_curve.png in RUN_DIR; with several runs, in the current directory]",
)
@click.option("--threshold", type=float, metavar="REWARD", help="Draw the episode reward to reach as a line.")
@click.option("--title", help="Text above the plot  [default: the run's name; with several runs, none]")
def plot(run_directories: tuple[Path, ...], output: Path | None, threshold: float | None, title: str | None) -> None:
    """Draw the learning curve of each RUN_DIR (runs/NAME) into one PNG."""
    # Imported late: `rlcore --help` must not wait for matplotlib.
    from rlcore.metrics.jsonl import METRICS_FILE
    from rlcore.metrics.plot import learning_curve, run_names

    names = run_names(run_directories)
    if len(set(run_directories)) == 1:
        png = output or run_directories[0] / "learning_curve.png"
        title = title or names[0]
    else:
        png = output or Path("learning_curve.png")
    runs = {name: path / METRICS_FILE for name, path in zip(names, run_directories, strict=True)}
    learning_curve(runs, png, threshold=threshold, title=title)
    click.echo(f"wrote {png}")
