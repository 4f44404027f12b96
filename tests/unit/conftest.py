"""Fixtures of tests that run whole jobs."""

import subprocess
from pathlib import Path

import pytest

from rlcore.cli.main import run_cli
from rlcore.driver.build import build
from rlcore.driver.plan import Machine, make_plan
from tests.jobs import make_job
from tests.runs import Result, command, environment


@pytest.fixture
def rlcore_run(capsys):
    """Runs the command line; in this very process without Ray, which spares each test seconds of imports."""

    def run(manifest: Path, *options: str, in_process: bool = True) -> Result:
        arguments = command(manifest, *options, in_process=in_process)
        if not in_process:
            done = subprocess.run(
                arguments, capture_output=True, text=True, timeout=240, env=environment(), check=False
            )
            return Result(done.returncode, done.stdout, done.stderr)
        capsys.readouterr()
        code = run_cli(arguments[3:])
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB; mounting one takes root, which CI has."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
def start_optimizer():
    """Builds the optimizer of a job (fields of spec as `make_job` takes them); all of them are stopped at the end."""
    running = []

    def start(*, use_ray: bool = False, **spec):
        job = make_job(**spec)
        parts = build(job.spec, make_plan(job.spec, Machine(cores=4, gpus=0)), seed=0, use_ray=use_ray)
        running.append(parts.optimizer)
        return parts.optimizer

    yield start
    for optimizer in running:
        optimizer.stop()
