"""An event loop whose clock jumps: where it would wait, the time is over at once. No test sleeps."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for nothing: the time that it was to wait is put onto the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("it waits for ever")
        self.now_s += max(0.0, timeout)
        return super().select(0)


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine in its own time."""
    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(work)


def now_s() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()
