"""Writes each iteration's result to the run directory: metrics.jsonl and TensorBoard events."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from rlcore.metrics import jsonl
from rlcore.metrics.append_file import AppendFile
from rlcore.metrics.result import IterationResult, finite_json
from rlcore.metrics.tensorboard_events import EventFile

logger = logging.getLogger("rlcore.metrics")

TENSORBOARD_DIRECTORY = "tensorboard"
TENSORBOARD_EVERY_S = 0.1
"""Fast iterations are a hundred a second: no plot shows so many points, and each costs as much as a gradient step."""


class MetricsRecorder:
    """Appends results to `directory`/metrics.jsonl and `directory`/tensorboard/.

    A metric that cannot be written (a full disk) is logged once and never stops training: the checkpoint, which needs
    the same disk, is the one to complain.

    Args:
        directory: the run directory; made if it is not there.
        resumed_iteration: results beyond it are dropped, for the run passes through them again; 0 drops all.
        resumed_timesteps: the same, for TensorBoard, whose x axis is timesteps.
        clock: seconds, monotonic. metrics.jsonl has every iteration; TensorBoard gets ten a second, and the last one.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        resumed_iteration: int = 0,
        resumed_timesteps: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = Path(directory)
        self._clock = clock
        self._events_due_s = float("-inf")
        self._skipped: IterationResult | None = None
        self._lines: AppendFile | None = None
        self._events: EventFile | None = None
        self._evaluated_at: object = None
        self._complained: set[str] = set()
        self._attempt("metrics.jsonl", lambda: self._open_lines(resumed_iteration))
        self._attempt("TensorBoard events", lambda: self._open_events(resumed_timesteps))

    def record(self, result: IterationResult) -> None:
        """Write one iteration."""
        self._attempt("metrics.jsonl", lambda: self._write_line(result))
        now_s = self._clock()
        evaluated = result.evaluation is not None and result.evaluation.get("timesteps") != self._evaluated_at
        if now_s < self._events_due_s and not evaluated:
            self._skipped = result
            return
        self._events_due_s, self._skipped = now_s + TENSORBOARD_EVERY_S, None
        self._attempt("TensorBoard events", lambda: self._write_events(result))

    def close(self) -> None:
        """Close the files; no error if they are closed."""
        last, self._skipped = self._skipped, None
        if last is not None:
            self._attempt("TensorBoard events", lambda: self._write_events(last))
        for file in (self._lines, self._events):
            if file is not None:
                self._attempt("metrics", file.close)
        self._lines = self._events = None

    def _open_lines(self, resumed_iteration: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / jsonl.METRICS_FILE
        jsonl.keep_until(path, resumed_iteration)
        self._lines = AppendFile(path)

    def _open_events(self, resumed_timesteps: int) -> None:
        directory = self._directory / TENSORBOARD_DIRECTORY
        earlier = directory.is_dir() and any(directory.iterdir())
        self._events = EventFile(directory, purge_from=resumed_timesteps + 1 if earlier else None)

    def _write_line(self, result: IterationResult) -> None:
        if self._lines is not None:
            self._lines.append(jsonl.to_line(result.to_json_dict()).encode())

    def _write_events(self, result: IterationResult) -> None:
        if self._events is None:
            return
        self._events.scalars(training_scalars(result), result.timesteps)
        evaluation = result.evaluation
        if evaluation is not None and evaluation.get("timesteps") != self._evaluated_at:
            self._evaluated_at = evaluation.get("timesteps")
            values = {f"evaluation/{key}": value for key, value in evaluation.items() if key != "timesteps"}
            self._events.scalars(_numbers(values), int(evaluation.get("timesteps") or result.timesteps))

    def _attempt(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except (OSError, ImportError) as error:
            if what not in self._complained:
                self._complained.add(what)
                logger.warning("%s of %s not written: %s; training goes on", what, self._directory, error)


def training_scalars(result: IterationResult) -> dict[str, float]:
    """TensorBoard tags and values of one iteration; what is None or not finite is left out."""
    values: dict[str, object] = {
        "train/episode_reward_mean": result.episode_reward_mean,
        "train/episode_reward_min": result.episode_reward_min,
        "train/episode_reward_max": result.episode_reward_max,
        "train/episode_length_mean": result.episode_length_mean,
        "train/episodes": result.episodes,
        "train/environment_failures": result.environment_failures,
        "train/evaluators": result.evaluators,
        "time/timesteps_per_s": result.timesteps_per_s,
        "time/sample_s": result.sample_time_s,
        "time/learn_s": result.learn_time_s,
        "time/wait_s": result.wait_time_s,
        "time/checkpoint_s": result.checkpoint_time_s,
        "time/evaluate_s": result.evaluate_time_s,
        "time/elapsed_s": result.elapsed_s,
    }
    values |= {f"learner/{key}": value for key, value in result.learner.items()}
    values |= {f"optimizer/{key}": value for key, value in result.optimizer.items()}
    return _numbers(values)


def _numbers(values: dict[str, object]) -> dict[str, float]:
    finite = {tag: finite_json(value) for tag, value in values.items()}
    return {tag: float(value) for tag, value in finite.items() if isinstance(value, (int, float))}
