"""CleanRL's own ppo.py, unmodified, as a process of its own; timed by when it prints its progress."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.figures import steady_rate
from benchmarks.worker import arguments, report

BATCH = 4 * 128


def main() -> None:
    """Measures timesteps a second between its reports, one an iteration."""
    timesteps = arguments()["timesteps"]
    command = [sys.executable, "-u", "-m", "cleanrl.ppo", "--cuda", "False", "--total-timesteps", str(timesteps)]
    points: list[tuple[float, float]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("SPS:"):
                points.append((time.perf_counter(), BATCH * (len(points) + 1)))
        errors = process.stderr.read() if process.stderr else ""
    if process.returncode:
        raise SystemExit(errors.strip().splitlines()[-1] if errors.strip() else f"exit code {process.returncode}")
    report(steady_rate(points), iterations=len(points))


if __name__ == "__main__":
    main()
