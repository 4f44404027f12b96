"""Shows how a job is going: a live display in a terminal, one line every other second elsewhere."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.live import Live

from rlcore.metrics.bottleneck import time_shares
from rlcore.metrics.eta import ProgressPoint, StopConditions, estimates
from rlcore.metrics.progress_view import View, frame, log_line, starting_frame
from rlcore.metrics.result import IterationResult

LOG_EVERY_S = 2.0
WINDOW = 30
"""Iterations that the ETA and the time shares are computed over."""


class Progress:
    """Progress of one job on `console`.

        progress = Progress(job_name, spec.stop)
        progress.start()
        try:
            for result in results:
                progress.update(result)
        finally:
            progress.stop()

    Args:
        stop: the job's stop conditions; see StopConditions for the attributes.
        clock: seconds from any start, never backwards.
    """

    def __init__(
        self,
        job_name: str,
        stop: StopConditions,
        console: Console | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job_name, self._stop, self._clock = job_name, stop, clock
        self._console = console or Console()
        self._recent: deque[IterationResult] = deque(maxlen=WINDOW)
        self._reward_at_start: float | None = None
        self._updated_s = 0.0
        self._message = ""
        self._logged_s: float | None = None
        self._unlogged = False
        self._lock = threading.Lock()  # the live display draws from a thread of its own
        self._live: Live | None = None

    def start(self) -> None:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=4)
            self._live.start()

    def message(self, text: str) -> None:
        """Say something that happened; it stays above the display."""
        with self._lock:
            self._message = text
        self._console.print(text, markup=False, highlight=False, soft_wrap=self._live is None)

    def update(self, result: IterationResult) -> None:
        """Take in one iteration."""
        with self._lock:
            self._recent.append(result)
            self._updated_s = self._clock()
            if self._reward_at_start is None:
                self._reward_at_start = result.episode_reward_mean
            self._unlogged = True
        due = self._logged_s is None or self._updated_s - self._logged_s >= LOG_EVERY_S
        if self._live is None and due:
            self._log()

    def stop(self) -> None:
        """Leave the last state on the screen, or log it if the last line does not hold it; no error if stopped."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        elif self._unlogged:
            self._log()
        self._unlogged = False

    def _log(self) -> None:
        self._logged_s, self._unlogged = self._updated_s, False
        self._console.print(log_line(self._view()), markup=False, highlight=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        with self._lock:
            return frame(self._view()) if self._recent else starting_frame(self._job_name, self._message)

    def _view(self) -> View:
        points = [
            ProgressPoint(result.elapsed_s, result.timesteps, result.iteration, result.episode_reward_mean)
            for result in self._recent
        ]
        return View(
            job_name=self._job_name,
            estimates=tuple(estimates(self._stop, points, self._reward_at_start)),
            result=self._recent[-1],
            time_shares=time_shares(result.stage_times_s() for result in self._recent),
            age_s=self._clock() - self._updated_s,
            reward_goal=self._stop.episode_reward,
        )
