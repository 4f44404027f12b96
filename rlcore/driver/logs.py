"""The driver's log in a cluster: key=value lines on stderr, and their tail in memory for the failure record."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import deque
from collections.abc import Callable

from rlcore.metrics.result import IterationResult

TAIL_LINES = 60
TAIL_BYTES = 16 * 1024
ITERATION_EVERY_S = 1.0
FIELDS = "rlcore_fields"
"""Attribute of a log record with more keys and values."""

logger = logging.getLogger("rlcore.driver")


class KeyValueFormatter(logging.Formatter):
    """`time=... level=info logger=rlcore.driver message="..."`, a record's own fields, and its traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        stamp = f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z"
        head = f"time={stamp} level={record.levelname.lower()} logger={record.name}"
        fields = {"message": record.getMessage(), **getattr(record, FIELDS, {})}
        lines = [" ".join([head, *(_field(key, str(value)) for key, value in fields.items())])]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        return "\n".join(lines)


class LogTail(logging.Handler):
    """Keeps the last lines of the log."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self.setFormatter(KeyValueFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))

    def text(self) -> str:
        """The last lines, oldest first; the end of them where they are long."""
        return "\n".join(self._lines)[-TAIL_BYTES:]


def configure_logging() -> LogTail:
    """Sends all logs to stderr as key=value lines; returns their tail."""
    tail, stderr = LogTail(), logging.StreamHandler(sys.stderr)
    stderr.setFormatter(KeyValueFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[stderr, tail], force=True)
    logging.getLogger("rlcore").setLevel(logging.INFO)
    return tail


class LogDisplay:
    """A run's progress as log lines, one an iteration and one a second at most.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_at_s: float | None = None
        self._newest: IterationResult | None = None

    def message(self, text: str) -> None:
        """One line."""
        logger.info("%s", text)

    def start(self) -> None:
        """Training begins."""
        logger.info("training begins")

    def update(self, result: IterationResult) -> None:
        """An iteration is over."""
        self._newest = result
        now_s = self._clock()
        if self._logged_at_s is None or now_s - self._logged_at_s >= ITERATION_EVERY_S:
            self._log(result)
            self._logged_at_s, self._newest = now_s, None

    def stop(self) -> None:
        """Training is over; its last iteration is always logged."""
        if self._newest is not None:
            self._log(self._newest)

    def _log(self, result: IterationResult) -> None:
        reward = result.episode_reward_mean
        fields = {
            "iteration": result.iteration,
            "timesteps": result.timesteps,
            "episodes": result.episodes,
            "episode_reward_mean": "none" if reward is None else f"{reward:.2f}",
            "timesteps_per_s": f"{result.timesteps_per_s:.0f}",
            "evaluators": result.evaluators,
        }
        logger.info("trained", extra={FIELDS: fields})


def _field(key: str, value: str) -> str:
    plain = value and not any(character in value for character in ' "=\n\\')
    return f"{key}={value if plain else json.dumps(value, ensure_ascii=False)}"
