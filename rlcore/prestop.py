"""`python -m rlcore.prestop`: the head pod's preStop hook asks the driver for a last checkpoint and waits for it.

Only the standard library is imported, for the hook has seconds. It ends with 0 whatever happens: a hook that fails
keeps no pod alive.
"""

from __future__ import annotations

import os
import socket
import sys
import time

SOCKET_FILE = "driver.sock"
COMMAND = "checkpoint"
DEFAULT_RUNTIME_DIR = "/run/rlcore"
ANSWER_DEADLINE_S = 12.0
"""A spot node gives 25 to 30 s in all."""


def ask_for_checkpoint(directory: str, deadline_s: float = ANSWER_DEADLINE_S) -> str:
    """The driver's answer, or why there is none."""
    end_s = time.monotonic() + deadline_s
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(deadline_s)
                connection.connect(f"/proc/self/fd/{descriptor}/{SOCKET_FILE}")
                connection.sendall(f"{COMMAND}\n".encode())
                connection.settimeout(max(0.1, end_s - time.monotonic()))
                return connection.recv(4096).decode(errors="replace").strip() or "the driver gave no answer"
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"no checkpoint: {error}"


if __name__ == "__main__":
    print(ask_for_checkpoint(os.environ.get("RLCORE_RUNTIME_DIR", DEFAULT_RUNTIME_DIR)), file=sys.stderr)
