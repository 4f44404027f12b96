"""Ends what a killed stand-in leaves behind: a small process beside it that waits for its end.

The kernel can tell a process of its parent's death, but not its grandchildren: those of Ray are many.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kuberay.processes import end_leftovers

_ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def watchdog(folder: Path) -> AsyncIterator[None]:
    """Watches over this process; `folder` holds the files of its containers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kuberay.watchdog", str(folder)],
        stdin=subprocess.PIPE,
        cwd=_ROOT,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        yield
    finally:
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    # Nobody ever writes: the end of the pipe is the end of the stand-in.
    sys.stdin.buffer.read()
    end_leftovers(Path(sys.argv[1]))
