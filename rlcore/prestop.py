"""preStop hooks: a pod that is to go waits until what it holds is in a checkpoint.

`python -m rlcore.prestop` on the head asks the driver there. `python -m rlcore.prestop learner` only waits: the
operator sees that the learner is going and asks the driver, whose status says when the checkpoint is written.

Only the standard library is imported, for the hook has seconds. It ends with 0 whatever happens: a hook that fails
keeps no pod alive.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import urllib.request

SOCKET_FILE = "driver.sock"
COMMAND = "checkpoint"
DEFAULT_RUNTIME_DIR = "/run/rlcore"
ANSWER_DEADLINE_S = 12.0
"""A spot node gives 25 to 30 s in all."""
POLL_S = 0.5


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


def wait_for_checkpoint(status_url: str, token: str, deadline_s: float = ANSWER_DEADLINE_S) -> str:
    """Waits until the driver's status names the checkpoint of `token`; at once over where no driver answers."""
    end_s = time.monotonic() + deadline_s
    while (left_s := end_s - time.monotonic()) > 0:
        try:
            with urllib.request.urlopen(status_url, timeout=min(left_s, 2.0)) as answer:
                status = json.load(answer)
        except (OSError, ValueError) as error:
            return f"no driver to wait for: {error}"
        if (status.get("checkpoint") or {}).get("request") == token:
            return "the checkpoint is written"
        time.sleep(min(left_s, POLL_S))
    return f"no checkpoint within {deadline_s:.0f} s"


def main(arguments: list[str]) -> str:
    """The hook of this pod; what came of it."""
    if arguments == ["learner"]:
        # KubeRay names the head's service in every worker.
        head, port = os.environ.get("FQ_RAY_IP", ""), os.environ.get("RLCORE_STATUS_PORT", "")
        return wait_for_checkpoint(f"http://{head}:{port}/status", f"learner-{os.environ.get('POD_UID', '')}")
    return ask_for_checkpoint(os.environ.get("RLCORE_RUNTIME_DIR", DEFAULT_RUNTIME_DIR))


if __name__ == "__main__":
    print(main(sys.argv[1:]), file=sys.stderr)
