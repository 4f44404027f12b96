"""Whom the driver listens to in a cluster: the operator (control.json), and the pod's own preStop hook."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rlcore.api import StopSpec
from rlcore.checkpoint import CheckpointInfo
from rlcore.driver.checkpoint_socket import CheckpointSocket
from rlcore.driver.control import Control, ControlFile
from rlcore.driver.driver import Attendant, Driver
from rlcore.driver.interrupt import Interrupt
from rlcore.metrics.attempt_status import AttemptBoard

logger = logging.getLogger("rlcore.driver")

PAUSE_POLL_S = 0.1
RETRY_EVERY_S = 5.0
"""Between two tries of a checkpoint that somebody waits for and that could not be written."""


class ClusterAttendant(Attendant):
    """Carries out what control.json says, and answers requests for checkpoints.

    Args:
        stop: the manifest's conditions, in force until control.json names others.
        control: to follow.
        board: that requests are answered on.
        requests: of the pod's preStop hook.

    Attributes:
        look_after: called before each step with what is in force: evaluators follow the cluster.
    """

    def __init__(
        self,
        stop: StopSpec,
        control: ControlFile,
        board: AttemptBoard,
        requests: CheckpointSocket,
    ) -> None:
        self._stop = stop
        self._control = control
        self._board = board
        self._requests = requests
        self.look_after: Callable[[Control, Driver, Interrupt], None] = lambda control, driver, interrupt: None
        self._answered: str | None = None
        self._retry_at_s = 0.0

    def between_steps(self, driver: Driver, interrupt: Interrupt) -> None:
        control = self._control.poll()
        driver.stop = control.stop or self._stop
        if driver.last_checkpoint is None:
            # Storage that cannot be written is found before hours of training, and a lost learner has a way back.
            driver.checkpoint(last=True)
        self.answer(control, driver)
        if control.pause:
            self._pause(driver, interrupt)
        self.look_after(control, driver, interrupt)

    def saved(self, checkpoint: CheckpointInfo) -> None:
        self._board.note_checkpoint(
            location=checkpoint.location, timesteps=checkpoint.timesteps, time_s=checkpoint.wall_time_s
        )

    def answer(self, control: Control, driver: Driver) -> None:
        """Saves a checkpoint for whoever waits for one, and says so."""
        request = control.checkpoint_request
        asked = request is not None and request != self._answered
        if not (asked or self._requests.asked) or time.monotonic() < self._retry_at_s:
            return
        if not driver.checkpoint(last=False):
            self._retry_at_s = time.monotonic() + RETRY_EVERY_S
            return
        assert driver.last_checkpoint is not None
        self._requests.answer(f"saved at {driver.last_checkpoint.timesteps} timesteps")
        if asked and request is not None:
            self._answered = request
            self._board.note_request(request)
            logger.info("checkpoint request answered: %s", request)

    def refuse(self, reason: str) -> None:
        """Tells the pod's preStop hook not to wait; other requests are answered later."""
        self._requests.answer(reason)

    def _pause(self, driver: Driver, interrupt: Interrupt) -> None:
        """Holds training up, with everything saved, until it may go on or the process is asked to stop."""
        logger.info("paused")
        saved = driver.checkpoint(last=False)
        self._board.set_phase("Paused", "paused by the operator" if saved else "paused, and not saved yet")
        while (control := self._control.poll()).pause and not interrupt.requested:
            self.answer(control, driver)
            time.sleep(PAUSE_POLL_S)
        if interrupt.requested:
            return
        logger.info("training goes on")
        self._board.set_phase("Running")
        driver.stop = control.stop or self._stop
