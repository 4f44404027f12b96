"""Running `rlcore run` in tests, and looking at what it leaves behind."""

import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml

from rlcore.checkpoint import CheckpointStore
from rlcore.driver.identity import identity
from tests.jobs import make_job

ROOT = Path(__file__).parents[1]


def write_manifest(directory: Path, name: str = "job", **spec) -> Path:
    job = make_job(name, **spec)
    path = directory / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job.model_dump(mode="json", by_alias=True, exclude_unset=True)))
    return path


def command(manifest: Path, *options: str, in_process: bool = True) -> list[str]:
    mode = ["--in-process"] if in_process else []
    return [
        sys.executable,
        "-m",
        "rlcore",
        "run",
        str(manifest),
        "--runs",
        str(manifest.parent / "runs"),
        *mode,
        *options,
    ]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def start(manifest: Path, *options: str, in_process: bool = True) -> subprocess.Popen:
    return subprocess.Popen(
        command(manifest, *options, in_process=in_process),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(),
    )  # fmt: skip


def wait_for(condition: Callable[[], object], process: subprocess.Popen, deadline_s: float = 120) -> None:
    """Polls a condition while a process runs."""
    end = time.monotonic() + deadline_s
    while not condition():
        if process.poll() is not None:
            pytest.fail(f"ended early: {process.communicate()[0]}")
        if time.monotonic() > end:
            process.kill()
            pytest.fail(f"not within {deadline_s} s: {process.communicate()[0]}")
        time.sleep(0.02)


def wait_for_iterations(directory: Path, count: int, process: subprocess.Popen) -> None:
    wait_for(lambda: len(metrics(directory)) >= count, process)


def wait_until(condition: Callable[[], object], what: str, deadline_s: float = 60) -> None:
    """Waits for something that no process of the test's own does; `what` says what was waited for."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(0.1)


def descendants(pid: int) -> list[int]:
    """Process ids of children, their children, and so on."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
    parents = dict(map(int, line.split()) for line in listed.splitlines()[1:])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {pid})


def is_alive(pid: int) -> bool:
    """Whether a process is there, and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def metrics(directory: Path) -> list[dict]:
    path = directory / "metrics.jsonl"
    return (
        [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if path.exists()
        else []
    )


def latest_state(manifest: Path) -> dict:
    from rlcore.api import load_job

    job = load_job(manifest)
    store = CheckpointStore(str(manifest.parent / "runs" / job.metadata.name / "checkpoints"), identity=identity(job))
    found = store.latest()
    assert found is not None
    return found[1]


def assert_equal_trees(one, two, path="") -> None:
    assert type(one) is type(two), path
    if isinstance(one, dict):
        assert one.keys() == two.keys(), path
        for key in one:
            assert_equal_trees(one[key], two[key], f"{path}/{key}")
    elif isinstance(one, list):
        assert len(one) == len(two), path
        for index, (a, b) in enumerate(zip(one, two, strict=True)):
            assert_equal_trees(a, b, f"{path}/{index}")
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, two, err_msg=path)
    else:
        assert one == two, path


def without_clocks(state: dict) -> dict:
    driver = {name: value for name, value in state["driver"].items() if name != "elapsed_s"}
    return {**state, "driver": driver}


def assert_user_error(result: subprocess.CompletedProcess, *patterns: str) -> None:
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) <= 24
    for pattern in patterns:
        assert re.search(pattern, result.stderr), result.stderr


def fill(path: Path) -> None:
    """Writes until the file system is full."""
    try:
        with path.open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
