"""Processes that run beside the tests, and that never outlive them."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LOG_TAIL_LINES = 30


class DaemonError(RuntimeError):
    """A process ended, or was not ready in time; the message ends with the tail of its log."""


class Daemon:
    """A process with a log file: started and waited for, stopped by its id, started again if need be.

    On Linux the kernel sends death_signal to it when this process ends, however it ends. It has a session of its own,
    so that Ctrl-C in a terminal reaches the tests alone, and they stop it in their order.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        death_signal: int = signal.SIGKILL,
    ) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.log = log
        self.env = dict(os.environ if env is None else env)
        self.cwd = cwd
        self.death_signal = death_signal
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process, f"{self.name} was never started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        return self._process.poll() if self._process else None

    def start(self, ready: Callable[[], bool] | None = None, deadline_s: float = 60) -> None:
        """Starts it, and waits until ready() is true; an OSError of ready() counts as not yet. Raises DaemonError."""
        assert not self.alive, f"{self.name} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # The kernel watches the thread that forks, so it must be one that lives as long as this process.
            self._process = _spawner.submit(self._spawn, log.fileno()).result()
        _running.add(self)
        if ready is not None:
            self.wait_until(ready, deadline_s)

    def wait_until(self, ready: Callable[[], bool], deadline_s: float = 60) -> None:
        """Waits until ready() is true. Raises DaemonError when the process ends first, or at the deadline."""
        deadline = time.monotonic() + deadline_s
        while True:
            with contextlib.suppress(OSError):
                if ready():
                    return
            if not self.alive:
                raise DaemonError(f"{self.name} ended with {self.returncode}\n{self.tail()}")
            if time.monotonic() > deadline:
                self.stop()
                raise DaemonError(f"{self.name} was not ready within {deadline_s:g} s\n{self.tail()}")
            time.sleep(0.05)

    def send(self, number: int) -> None:
        """Sends a signal, where the process still runs."""
        if self._process:
            self._process.send_signal(number)

    def stop(self, grace_s: float = 10) -> None:
        """SIGTERM, and SIGKILL when it has not ended within grace_s; returns once it is gone."""
        stop_all([self], grace_s)

    def kill(self) -> None:
        """SIGKILL; returns once it is gone."""
        self.send(signal.SIGKILL)
        stop_all([self], 0)

    def tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of its log, under a line that says where all of it is."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join([f"--- {self.log}, its last lines:", *text.splitlines()[-lines:]])

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command,
            env=self.env,
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=functools.partial(die_with_parent, self.death_signal),
        )


def stop_all(daemons: Iterable[Daemon], grace_s: float = 10) -> None:
    """SIGTERM to all of them at once, then SIGKILL to those that have not ended within grace_s."""
    processes = [(daemon, daemon._process) for daemon in daemons if daemon._process]
    for _, process in processes:
        process.terminate()
    deadline = time.monotonic() + grace_s
    for daemon, process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _running.discard(daemon)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listens on, below those that the kernel hands to clients.

    A server can so be started again on its port: no client's connection can have taken it meanwhile.
    """
    for port in random.sample(range(20000, 30000), 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            return port
    raise DaemonError(f"no free port on {host}")


def die_with_parent(number: int) -> None:
    """The kernel sends this signal to the calling process when its parent ends; nothing on systems that cannot."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, number)


PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
_running: set[Daemon] = set()


@atexit.register
def _stop_the_rest() -> None:
    """For systems where the kernel does not do it."""
    for daemon in _running:
        daemon.send(signal.SIGKILL)
