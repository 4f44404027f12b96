"""`python -m tests.kube.operator_forks FILE`: the operator as a kubelet runs it, started again whenever it ends.

Each start is a fork of this process, which has read all the code: it takes milliseconds, where `python -m
rljob_operator` takes a second. The operator's process id is in FILE.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from rljob_operator.__main__ import main as run_operator

from tests.kube.process import die_with_parent


def main() -> None:
    """Until SIGTERM, which the operator gets too."""
    pid_file = Path(sys.argv[1])
    operator = 0

    def stop(*_: Any) -> None:
        if operator:
            os.kill(operator, signal.SIGTERM)
            os.waitpid(operator, 0)
        os._exit(0)

    while True:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        operator = os.fork()
        if not operator:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            os._exit(_operate(pid_file))
        signal.signal(signal.SIGTERM, stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        _, status = os.waitpid(operator, 0)
        print(f"operator ended with {os.waitstatus_to_exitcode(status)}", file=sys.stderr, flush=True)


def _operate(pid_file: Path) -> int:
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pid_file.write_text(str(os.getpid()))
    try:
        run_operator()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
