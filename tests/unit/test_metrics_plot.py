"""Learning curves: a PNG that shows what metrics.jsonl holds, and `rlcore plot`."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlcore.cli.plot import plot
from rlcore.errors import UserError
from rlcore.metrics.jsonl import to_line
from rlcore.metrics.plot import learning_curve, read_curve, run_names

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def write_run(directory: Path, iterations: int = 20) -> Path:
    directory.mkdir(parents=True)
    with open(directory / "metrics.jsonl", "w") as file:
        for n in range(1, iterations + 1):
            evaluated_at = 1000 * (n // 5 * 5)
            known = n > 1
            file.write(
                to_line(
                    {
                        "iteration": n,
                        "timesteps": 1000 * n,
                        "episode_reward_mean": 10.0 * n if known else None,
                        "episode_reward_min": 5.0 * n if known else None,
                        "episode_reward_max": 20.0 * n if known else None,
                        "evaluation": {"episode_reward_mean": 12.0, "timesteps": evaluated_at} if n >= 5 else None,
                    }
                )
            )
    return directory / "metrics.jsonl"


def test_a_curve_is_what_the_file_says(tmp_path: Path) -> None:
    metrics = write_run(tmp_path / "run", iterations=12)
    with open(metrics, "a") as file:
        file.write('{"iteration": 13, "timest')  # the run is being written, or was killed
    curve = read_curve(metrics)
    assert curve.timesteps == [1000 * n for n in range(1, 13)]
    assert math.isnan(curve.mean[0])
    assert (curve.mean[-1], curve.minimum[-1], curve.maximum[-1]) == (120.0, 60.0, 240.0)
    assert (curve.evaluated_at, curve.evaluation) == ([5000, 10_000], [12.0, 12.0])


@pytest.mark.parametrize("iterations", [2, 50])
def test_the_png_is_written_as_a_whole(tmp_path: Path, iterations: int) -> None:
    png = tmp_path / "plots" / "curve.png"
    learning_curve(write_run(tmp_path / "run", iterations), png, threshold=475.0, title="run")
    data = png.read_bytes()
    assert data.startswith(PNG_MAGIC)
    assert data.endswith(b"IEND\xaeB`\x82")
    assert os.listdir(png.parent) == ["curve.png"]


def test_several_runs_are_drawn_into_one(tmp_path: Path) -> None:
    runs = {name: write_run(tmp_path / name) for name in ("a", "b")}
    learning_curve(runs, tmp_path / "both.png")
    learning_curve(runs["a"], tmp_path / "one.png")
    assert (tmp_path / "both.png").read_bytes() != (tmp_path / "one.png").read_bytes()


def test_a_run_without_episodes_or_metrics_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no episode has finished yet"):
        learning_curve(write_run(tmp_path / "short", iterations=1), tmp_path / "x.png")
    with pytest.raises(UserError, match=r"cannot read .*metrics\.jsonl: No such file"):
        learning_curve(tmp_path / "metrics.jsonl", tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()


def test_an_image_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    metrics = write_run(tmp_path / "run")
    with pytest.raises(UserError, match=r"cannot write .*curve\.png"):
        learning_curve(metrics, metrics / "curve.png")


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/a"], ["a"]),
        (["runs/a", "runs/b"], ["a", "b"]),
        (["x/run", "y/run"], ["x/run", "y/run"]),
        (["x/run", "x/run"], ["run", "run"]),
        (["a/b", "c/a/b"], ["base/a/b", "c/a/b"]),
    ],
)
def test_runs_are_told_apart_by_the_shortest_names(paths: list[str], names: list[str]) -> None:
    assert run_names([Path("/base") / path for path in paths]) == names


def test_the_command_draws_one_run_into_its_directory(tmp_path: Path) -> None:
    write_run(tmp_path / "cartpole")
    result = CliRunner().invoke(plot, [str(tmp_path / "cartpole"), "--threshold", "100"])
    assert result.exit_code == 0, result.output
    assert result.output == f"wrote {tmp_path}/cartpole/learning_curve.png\n"
    assert (tmp_path / "cartpole" / "learning_curve.png").read_bytes().startswith(PNG_MAGIC)


def test_the_command_draws_several_runs_into_the_file_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name)
    output = tmp_path / "out.png"
    result = CliRunner().invoke(plot, [str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(output)])
    assert result.exit_code == 0, result.output
    assert output.read_bytes().startswith(PNG_MAGIC)


def test_the_command_needs_a_run() -> None:
    assert CliRunner().invoke(plot, []).exit_code == 2


def test_importing_the_command_imports_nothing_heavy() -> None:
    code = (
        "import sys, rlcore.cli.plot; heavy = ('matplotlib', 'numpy', 'ray', 'torch', 'rlcore.metrics.plot'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
