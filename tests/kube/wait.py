"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    check: Callable[[], T], deadline_s: float = 30, interval_s: float = 0.1, what: str = "the condition"
) -> T:
    """The first true value that check returns; an exception counts as not yet.

    Raises AssertionError at the deadline, with the last value or exception.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        cause: Exception | None = None
        try:
            value = check()
            if value:
                return value
            last = f"last value: {value!r}"
        except Exception as error:
            cause, last = error, f"last error: {type(error).__name__}: {error}"
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what}: not within {deadline_s:g} s; {last}") from cause
        time.sleep(interval_s)
