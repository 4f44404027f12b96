"""Ctrl-C and SIGTERM: before training they end the start-up, in training the step under way is finished and saved.

A second one leaves at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """Raised by a signal where there is nothing to finish: no error, so that no `except Exception` swallows it."""

    def __init__(self, interrupt: Interrupt) -> None:
        super().__init__(interrupt.name)
        self.interrupt = interrupt


class Interrupt:
    """Whether the process was asked to stop.

    Attributes:
        signal: the number of the signal that asked, None so far.
        patient: a signal is only noted, for whoever looks at `requested`; else it raises Interrupted.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.patient = False

    @property
    def requested(self) -> bool:
        """Whether to stop after the step under way."""
        return self.signal is not None

    @property
    def name(self) -> str:
        """SIGINT or SIGTERM."""
        return signal.Signals(self.signal).name if self.signal is not None else ""

    @property
    def exit_code(self) -> int:
        """What shells expect of a process that a signal ended: 128 + its number."""
        return 128 + (self.signal or 0)

    def take_over(self) -> None:
        """Handles both signals from now on; again after Ray's C++ side put its own handler in front."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # Ray's C++ handler, where it saw the signal first, gives the process three seconds before it aborts it.
        signal.alarm(0)
        if self.requested:
            # Asked twice: whoever asks does not want to wait. The last checkpoint is whole all the same.
            os._exit(128 + number)
        self.signal = number
        if not self.patient:
            raise Interrupted(self)


@contextmanager
def catch_interrupts() -> Iterator[Interrupt]:
    """Catches SIGINT and SIGTERM for the time of the block; must be entered in the main thread."""
    interrupt = Interrupt()
    previous = {number: signal.getsignal(number) for number in SIGNALS}
    interrupt.take_over()
    try:
        yield interrupt
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
