"""`--watch` and `--wait`: show RLJobs as they change, until the one that was named has finished."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import click

from rlcore.cli.kube import Kube
from rlcore.cli.kube_errors import KubeError
from rlcore.cli.kube_watch import Key, Snapshot, watch_jobs
from rlcore.cli.status_blocks import Block, Cell, Rows, drawn, row
from rlcore.cli.status_changes import changes, progress_line
from rlcore.cli.status_text import is_finished, phase_of
from rlcore.cli.status_view import job_page, job_table

EXIT_SUCCEEDED, EXIT_FAILED, EXIT_TIMEOUT, EXIT_INTERRUPTED = 0, 1, 124, 130
PROGRESS_EVERY_S = 60.0
LIVE_LOG_LINES = 5

Job = Mapping[str, Any]


class Display(Protocol):
    """Shows snapshots as they come."""

    def start(self) -> None: ...
    def show(self, snapshot: Snapshot) -> None: ...
    def stop(self) -> None: ...


def follow(kube: Kube, namespace: str, name: str, output: str, *, timeout_s: float | None = None) -> int:
    """Show what happens until the job has finished; without a name, for ever.

    Args:
        namespace: empty: all of them.
        name: empty: all jobs.
        output: text or json.
        timeout_s: None: as long as it takes.

    Returns:
        The exit code: 0 Succeeded, 1 Failed, 124 time-out, 130 Ctrl-C.

    Raises:
        KubeError: the job was deleted, or the API server refuses.
    """
    display = choose_display(namespace, name, output)
    display.start()
    ended = ""
    try:
        code = _follow(kube, namespace, name, display, timeout_s)
        if code == EXIT_TIMEOUT:
            ended = f"{name} has not finished within {timeout_s:g} s"
    except KeyboardInterrupt:
        code, ended = EXIT_INTERRUPTED, "stopped watching"
    finally:
        display.stop()
    if ended:
        click.echo(ended + ("; the job itself goes on" if name else ""), err=True)
    return code


def _follow(kube: Kube, namespace: str, name: str, display: Display, timeout_s: float | None) -> int:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    seen = False
    for snapshot in watch_jobs(kube, namespace, name, deadline=deadline):
        display.show(snapshot)
        if not name:
            continue
        job = snapshot.jobs.get((namespace, name))
        if job is not None:
            seen = True
            if snapshot.trouble is None and is_finished(job):
                return EXIT_SUCCEEDED if phase_of(job) == "Succeeded" else EXIT_FAILED
        elif snapshot.trouble is None:
            raise KubeError(f"RLJob {name} in namespace {namespace} {'was deleted' if seen else 'does not exist'}")
    return EXIT_TIMEOUT


def choose_display(namespace: str, name: str, output: str) -> Display:
    """A live page in a terminal, lines elsewhere, JSON where asked for."""
    from rich.console import Console

    if output == "json":
        return JsonLines()
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        return LivePage(console, namespace, name)
    return ChangeLines(with_namespace=not namespace)


class LivePage:
    """The page, or the table, drawn anew every second: ages grow while nothing happens."""

    def __init__(self, console: Any, namespace: str, name: str) -> None:
        from rich.live import Live

        self._namespace, self._name = namespace, name
        self._snapshot: Snapshot | None = None
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=1)

    def start(self) -> None:
        self._live.start()

    def show(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._live.refresh()

    def stop(self) -> None:
        # What is cut to the window's height while it moves is left behind whole.
        self._live.vertical_overflow = "visible"
        self._live.stop()

    def _render(self) -> Any:
        return drawn(live_page(self._snapshot, self._namespace, self._name, datetime.now(UTC)))


def live_page(snapshot: Snapshot | None, namespace: str, name: str, now: datetime) -> list[Block]:
    """What a terminal shows of a snapshot."""
    if snapshot is None:
        return [Rows((row("", Cell("asking the API server", "dim")),))]
    if name:
        job = snapshot.jobs.get((namespace, name))
        blocks = job_page(job, now, log_lines_shown=LIVE_LOG_LINES) if job else []
    else:
        blocks = job_table(list(snapshot.jobs.values()), now, all_namespaces=not namespace)
    if snapshot.trouble is not None:
        blocks = [Rows((row("", Cell(f"not up to date: {snapshot.trouble.message}", "bad")),)), *blocks]
    return blocks


class ChangeLines:
    """One line for each transition, and the training numbers once a minute.

    Args:
        with_namespace: name jobs with their namespaces.
        write: where lines go; default: standard output.
        clock: seconds, never backwards.
    """

    def __init__(
        self,
        *,
        with_namespace: bool,
        write: Callable[[str], None] = click.echo,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._with_namespace, self._write, self._clock = with_namespace, write, clock
        self._jobs: Mapping[Key, Job] = {}
        self._progress_s: dict[Key, float] = {}
        self._progress: dict[Key, str] = {}
        self._trouble: str | None = None

    def start(self) -> None: ...

    def show(self, snapshot: Snapshot) -> None:
        self._show_trouble(snapshot.trouble)
        for key in sorted(self._jobs.keys() - snapshot.jobs.keys()):
            self._say(key, "deleted")
        for key, job in snapshot.jobs.items():
            for line in changes(self._jobs.get(key), job):
                self._say(key, line)
            self._show_progress(key, job)
        self._jobs = snapshot.jobs

    def stop(self) -> None: ...

    def _show_trouble(self, trouble: KubeError | None) -> None:
        message = None if trouble is None else trouble.message
        if message is not None and self._trouble is None:
            self._write(f"{_stamp()} {message}; trying again")
        elif message is None and self._trouble is not None:
            self._write(f"{_stamp()} the cluster answers again")
        self._trouble = message

    def _show_progress(self, key: Key, job: Job) -> None:
        """At most once a minute, but always at the end."""
        line, now = progress_line(job), self._clock()
        due = is_finished(job) or now - self._progress_s.get(key, now - PROGRESS_EVERY_S) >= PROGRESS_EVERY_S
        if line and due and self._progress.get(key) != line:
            self._progress_s[key], self._progress[key] = now, line
            self._say(key, line)

    def _say(self, key: Key, line: str) -> None:
        self._write(f"{_stamp()} {'/'.join(key) if self._with_namespace else key[1]}: {line}")


class JsonLines:
    """One JSON object a line for each change of a job."""

    def __init__(self, write: Callable[[str], None] = click.echo) -> None:
        self._write = write
        self._versions: dict[Key, object] = {}

    def start(self) -> None: ...

    def show(self, snapshot: Snapshot) -> None:
        for key, job in snapshot.jobs.items():
            version = job["metadata"].get("resourceVersion")
            if self._versions.get(key) != version:
                self._versions[key] = version
                self._write(json.dumps(for_programs(job)))

    def stop(self) -> None: ...


def for_programs(job: Job) -> dict[str, Any]:
    """The object without the bookkeeping of server-side apply."""
    return {**job, "metadata": {key: value for key, value in job["metadata"].items() if key != "managedFields"}}


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
