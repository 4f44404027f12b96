"""Trains a round of trials: in turn in this process, or side by side as Ray actors that are replaced when lost."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from rlcore.api import RLJob
from rlcore.driver.interrupt import Interrupt
from rlcore.driver.plan import Machine
from rlcore.driver.run_directory import RunDirectory
from rlcore.driver.trial import Trial, TrialReport
from rlcore.errors import UserError
from rlcore.evaluation.evaluator_set import lost_errors, unwrap

logger = logging.getLogger("rlcore.driver")

POLL_S = 0.5
CLOSE_DEADLINE_S = 10.0
# Losses in a row of one trial, without a finished round in between, after which a crash is no accident any more.
CONSECUTIVE_LOSSES = 3


class TrialRunner(Protocol):
    """Trains trials.

    Attributes:
        losses: trials whose process died, and was replaced.
    """

    losses: int

    def train(self, jobs: Mapping[int, tuple[RLJob, int]], iterations: int) -> Iterator[TrialReport]:
        """Trains each trial's (job, copies) to so many iterations; reports in the order in which they are done."""

    def stop(self) -> None:
        """Ends all trials."""


class LocalTrials:
    """Trials in this process, one after the other.

    Args:
        directories: number -> run directory.
        machine: what each may use.
        interrupt: ends the trial under way, and the round with it.
    """

    def __init__(self, directories: Mapping[int, RunDirectory], machine: Machine, interrupt: Interrupt) -> None:
        self.losses = 0
        self._interrupt = interrupt
        self._trials = {
            number: Trial(number, directory, machine, use_ray=False, interrupt=interrupt)
            for number, directory in directories.items()
        }

    def train(self, jobs: Mapping[int, tuple[RLJob, int]], iterations: int) -> Iterator[TrialReport]:
        """See TrialRunner."""
        for number, (job, copies) in jobs.items():
            if self._interrupt.requested:
                return
            yield self._trials[number].train(job, copies, iterations)

    def stop(self) -> None:
        """See TrialRunner."""
        for trial in self._trials.values():
            trial.close()


class RemoteTrials:
    """Trials as Ray actors, each with actors of its own.

    Args:
        directories: number -> run directory.
        machine: each trial's share.
        concurrent: trials that train at once.
        interrupt: ends the trials under way, and the round with them.
    """

    def __init__(
        self, directories: Mapping[int, RunDirectory], machine: Machine, concurrent: int, interrupt: Interrupt
    ) -> None:
        import ray

        self.losses = 0
        self._directories, self._machine, self._concurrent = directories, machine, concurrent
        self._interrupt = interrupt
        # A second thread answers `ask_to_stop` while the first one trains.
        self._make = ray.remote(num_cpus=0, num_gpus=machine.gpus, max_concurrency=2)(Trial)
        self._actors: dict[int, Any] = {}
        self._losses_in_a_row: dict[int, int] = {}

    def train(self, jobs: Mapping[int, tuple[RLJob, int]], iterations: int) -> Iterator[TrialReport]:
        """See TrialRunner."""
        import ray
        from ray.exceptions import RayTaskError

        waiting = deque(jobs)
        running: dict[Any, int] = {}
        asked = False
        while running or (waiting and not self._interrupt.requested):
            while waiting and len(running) < self._concurrent and not self._interrupt.requested:
                number = waiting.popleft()
                running[self._actor(number).train.remote(*jobs[number], iterations)] = number
            if self._interrupt.requested and not asked:
                asked = True
                for number in running.values():
                    self._actors[number].ask_to_stop.remote(self._interrupt.signal)
            for reference in ray.wait(list(running), num_returns=1, timeout=POLL_S)[0]:
                number = running.pop(reference)
                try:
                    report: TrialReport = ray.get(reference)
                except lost_errors() as error:
                    self._lost(number, error)
                    waiting.appendleft(number)
                except RayTaskError as error:
                    raise unwrap(error) from error
                else:
                    self._losses_in_a_row[number] = 0
                    yield report

    def actors(self) -> dict[int, Any]:
        """Number -> the trial's actor, of those that live."""
        return dict(self._actors)

    def _actor(self, number: int) -> Any:
        if number not in self._actors:
            self._actors[number] = self._make.remote(number, self._directories[number], self._machine, use_ray=True)
        return self._actors[number]

    def _lost(self, number: int, error: Exception) -> None:
        """Forgets a dead trial's actor; the next one goes on from its newest checkpoint."""
        self.losses += 1
        self._losses_in_a_row[number] = self._losses_in_a_row.get(number, 0) + 1
        del self._actors[number]
        if self._losses_in_a_row[number] > CONSECUTIVE_LOSSES:
            raise UserError(
                f"trial {number} died {CONSECUTIVE_LOSSES + 1} times in a row: {error}",
                hint="out of memory? lower spec.population.concurrentTrials",
            ) from error
        reason = str(error).partition("\n")[0]
        logger.warning("trial lost, goes on from its checkpoint: trial=%d reason=%s", number, reason)

    def stop(self) -> None:
        """See TrialRunner."""
        import ray

        closing = [actor.close.remote() for actor in self._actors.values()]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_DEADLINE_S)
        for actor in self._actors.values():
            ray.kill(actor)
        self._actors.clear()
