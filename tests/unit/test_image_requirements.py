"""What goes into the images: requirements of the projects, and every extra that an example needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docker" / "requirements.py"
LEFT_OUT = {"envpool"}
"""740 MB that no example needs."""


def requirements(*projects: str) -> list[str]:
    done = subprocess.run([sys.executable, SCRIPT, *projects], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def names(lines: list[str]) -> set[str]:
    return {re.split(r"[\[<>=]", line)[0] for line in lines}


def training_extras() -> set[str]:
    """The extras that the Dockerfile installs."""
    (found,) = re.findall(r"pyproject\.toml:([\w,]+) > training\.txt", (ROOT / "Dockerfile").read_text())
    return set(found.split(","))


def test_the_operator_has_neither_ray_nor_torch_and_both_projects_requirements() -> None:
    found = names(requirements("operator/pyproject.toml", "pyproject.toml"))
    assert {"kopf", "aiohttp", "pydantic", "click"} <= found
    assert not {"ray", "torch", "rlcore", "rljob-operator"} & found


def test_extras_that_name_others_are_followed() -> None:
    assert set(requirements("pyproject.toml:all")) == set(
        requirements("pyproject.toml:train,kube,atari,box2d,classic,envpool,minari,minatar,pettingzoo,mujoco,s3,gcs")
    )
    assert {"torch", "ray", "ale-py", "mpe2", "s3fs"} <= names(requirements("pyproject.toml:all"))


def test_an_unknown_extra_is_named() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "pyproject.toml:atary"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no extra 'atary'" in done.stderr
    assert "'atari'" in done.stderr


def test_the_training_image_has_what_all_extras_have_but_one() -> None:
    everything = names(requirements("pyproject.toml:all,cluster"))
    inside = names(requirements(f"pyproject.toml:{','.join(sorted(training_extras()))}"))
    assert everything - inside == LEFT_OUT


COPIED = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if re.match(r"COPY (?!--from=)", line)]


@pytest.mark.parametrize("line", COPIED)
def test_whatever_is_copied_passes_the_ignore_file(line: str) -> None:
    allowed = {part[1:] for part in (ROOT / ".dockerignore").read_text().split() if part.startswith("!")}
    for source in line.split()[1:-1]:
        assert source.split("/")[0] in allowed, source
        assert (ROOT / source).exists(), source
