"""Containers as groups of processes: started, found again, and ended to the last one. Standard library only.

A container's first process leads a session of its own; whatever leaves that session (Ray gives each job one) still
has the container's mark in its environment. A file for each container says which process leads it, so that a later
stand-in, or the watchdog of a killed one, can end what was left; its start time tells it from a newer process that was
given the same number.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

MARK = "STANDIN_CONTAINER"
_PR_SET_PDEATHSIG = 1
_END_DEADLINE_S = 10.0
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Container:
    """A running container: its mark, its first process, whose it is, and what else must go with it."""

    mark: str
    pid: int
    start_time: str
    namespace: str
    pod: str
    container: str
    scratch: str
    """A directory outside the working directory; empty where there is none."""


async def start(
    folder: Path,
    *,
    mark: str,
    owner: tuple[str, str, str],
    scratch: str,
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    log: Path,
) -> tuple[Container, asyncio.subprocess.Process]:
    """Starts a container of `owner` (namespace, pod, container) and writes its file into `folder`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**env, MARK: mark},
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    container = Container(mark, process.pid, _start_time(process.pid), *owner, scratch)
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".{mark}.new"
    new.write_text(json.dumps(asdict(container)))
    new.rename(folder / f"{mark}.json")
    return container, process


def end(container: Container) -> None:
    """SIGKILL to every process of a container, until none is left."""
    deadline = time.monotonic() + _END_DEADLINE_S
    while members := _members(container):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {sorted(members)} of {container.pod} do not end")
        time.sleep(0.02)


def forget(folder: Path, container: Container) -> None:
    """The container has ended: its file goes."""
    (folder / f"{container.mark}.json").unlink(missing_ok=True)


def end_leftovers(folder: Path) -> list[Container]:
    """Ends all containers that have a file in `folder`, and returns them."""
    found = []
    for path in folder.glob("*.json"):
        try:
            container = Container(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue  # just removed by its own stand-in
        end(container)
        if container.scratch:
            shutil.rmtree(container.scratch, ignore_errors=True)
        path.unlink(missing_ok=True)
        found.append(container)
    return found


def _members(container: Container) -> set[int]:
    """Processes of the container's session, those with its mark, and those of sessions that these lead."""
    stats = _all_stats()
    leader = stats.get(container.pid)
    sessions = {container.pid} if leader is None or leader.start_time == container.start_time else set()
    mark = f"{MARK}={container.mark}".encode()
    sessions |= {stat.session for pid, stat in stats.items() if _has_in_environment(pid, mark)}
    return {pid for pid, stat in stats.items() if stat.session in sessions and stat.state not in "ZX"}


@dataclass(frozen=True)
class _Stat:
    state: str
    session: int
    start_time: str


def _all_stats() -> dict[int, _Stat]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                # The command, in parentheses, may hold anything.
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                found[int(name)] = _Stat(state=fields[0], session=int(fields[3]), start_time=fields[19])
    return found


def _has_in_environment(pid: int, entry: bytes) -> bool:
    with contextlib.suppress(OSError):
        return entry in Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    return False


def _start_time(pid: int) -> str:
    stat = _all_stats().get(pid)
    return stat.start_time if stat else ""


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
