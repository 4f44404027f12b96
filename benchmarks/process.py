"""Runs a worker in a process of its own, on stated cores with a stated number of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.model import Row
from benchmarks.worker import RESULT

ROOT = Path(__file__).resolve().parent.parent
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
DEADLINE_S = 600.0


class WorkerError(Exception):
    """A worker that gave no figure; the message is its last line of output."""


def run_worker(row: Row, python: Path, *, quick: bool) -> tuple[float, dict[str, Any]]:
    """One run of a row: its figure, and its details.

    Raises:
        WorkerError: the worker failed, or took longer than DEADLINE_S.
    """
    arguments = {**row.arguments, **(row.quick_arguments if quick else {}), "threads": row.threads}
    command = [str(python), "-u", "-m", f"benchmarks.workers.{row.worker}", json.dumps(arguments)]
    # A folder of its own: peers write logs and checkpoints where they are started.
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=worker_environment(row.threads),
                preexec_fn=_pin(row.cores),
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise WorkerError(f"no result within {DEADLINE_S:.0f} s") from error
    results = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if done.returncode or not results:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise WorkerError(lines[-1].strip() if lines else f"exit code {done.returncode} without output")
    result = json.loads(results[-1].removeprefix(RESULT))
    return float(result["value"]), dict(result["details"])


def worker_environment(threads: int) -> dict[str, str]:
    """Environment variables of a worker: this process's, with the threads fixed and this repository importable."""
    fixed = dict.fromkeys(THREAD_VARIABLES, str(threads))
    quiet = {"PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": "", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    # Compiled modules are kept, as on any ordinary machine: some containers turn that off, and then start-up compiles.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, **fixed, **quiet, "PYTHONPATH": str(ROOT), "PATH": scripts}


def _pin(cores: int) -> Callable[[], None] | None:
    """A function that ties the process to the first `cores` cores there are; None where the system cannot."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    return lambda: os.sched_setaffinity(0, chosen)
