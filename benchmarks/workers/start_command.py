"""Starts a command in a new process and waits for its end."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

from benchmarks.process import ROOT
from benchmarks.worker import arguments, report

HEAVY = ("ray", "torch", "numpy", "gymnasium")
_LOADED = (
    "import sys; from rlcore.cli.main import run_cli; code = run_cli(sys.argv[1:]); "
    "print('LOADED', code, len(sys.modules), *(m for m in {heavy} if m in sys.modules))"
)


def main() -> None:
    """Measures seconds of wall clock; refuses where the command failed or imported what it must not."""
    wanted = arguments()["command"]
    command = [sys.executable, "-c", "pass"] if wanted is None else [_executable(), *wanted]
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    seconds = time.perf_counter() - started
    report(seconds, **(imports(wanted) if wanted else {}))


def imports(command: list[str]) -> dict[str, object]:
    """How many modules a command imports.

    Raises:
        SystemExit: it imports one of HEAVY.
    """
    code = _LOADED.format(heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code, *command], cwd=ROOT, capture_output=True, text=True, check=True)
    _, exit_code, modules, *heavy = done.stdout.splitlines()[-1].split()
    if heavy or exit_code != "0":
        raise SystemExit(f"rlcore {' '.join(command)} exits with {exit_code} and imports {', '.join(heavy)}")
    return {"modules": int(modules), "heavy": heavy}


def _executable() -> str:
    path = shutil.which("rlcore")
    if path is None:
        raise SystemExit("the command rlcore is not installed beside this Python")
    return path


if __name__ == "__main__":
    main()
