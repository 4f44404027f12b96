"""Trains one job from its newest checkpoint to its end: what a laptop and a cluster have in common.

What they do not have in common is a `Place`: where Ray comes from, how many evaluators there are and how they are made,
and whom the driver listens to between two steps.
"""

from __future__ import annotations

import json
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from rlcore.api import RLJob
from rlcore.api.algorithms.offline import OfflineConfig
from rlcore.checkpoint import CheckpointInfo, CheckpointStore, write_completion
from rlcore.driver.build import Parts, check_job
from rlcore.driver.driver import Attendant, Driver, Outcome
from rlcore.driver.evaluation import EvaluationResult, EvaluationRunner
from rlcore.driver.interrupt import Interrupt, Interrupted
from rlcore.driver.outputs import Display, Outputs
from rlcore.driver.plan import Plan
from rlcore.driver.run_directory import RunDirectory
from rlcore.errors import CheckpointError, LearnerLostError
from rlcore.evaluation.world import Spaces
from rlcore.metrics.recorder import MetricsRecorder
from rlcore.metrics.result import IterationResult

logger = logging.getLogger("rlcore.driver")

SEED_FILE = "seed.json"


@dataclass(frozen=True)
class RunReport:
    """What a run leaves behind.

    Attributes:
        directory: its files.
        outcome: how it ended; None where the job was complete before.
        completion: the record of a complete job, None for an interrupted one.
        restarted_timesteps: timesteps of unfinished episodes that resumes had to begin anew.
        interrupt: the signal that ended it, None for none.
    """

    directory: RunDirectory
    outcome: Outcome | None
    completion: dict[str, Any] | None
    restarted_timesteps: int
    interrupt: Interrupt | None


class Place(ABC):
    """Where a job trains, and what that changes.

    Attributes:
        attendant: whom the driver listens to between steps.
    """

    attendant: Attendant = Attendant()

    @abstractmethod
    def connect(self, stack: ExitStack, interrupt: Interrupt, display: Display) -> Plan:
        """Starts or joins Ray for as long as the stack lives, and plans the job on what is there."""

    @abstractmethod
    def describe(self, plan: Plan) -> str:
        """One line: what trains, with what."""

    @abstractmethod
    def build(self, plan: Plan, seed: int, spaces: dict[str, Spaces]) -> Parts:
        """The running parts of a job whose policies have these spaces."""

    @abstractmethod
    def evaluation(self, parts: Parts) -> EvaluationRunner | None:
        """The evaluation beside training, None for no evaluation."""

    def observers(self) -> list[Callable[[IterationResult], object]]:
        """Who else wants to know of each iteration."""
        return []

    def recover(self, error: LearnerLostError, driver: Driver, interrupt: Interrupt) -> CheckpointInfo | None:
        """A new learner, back at the newest checkpoint; None where a signal ended the wait for it.

        Raises:
            LearnerLostError: `error` itself where there is none to be had; another one where the new one is lost too.
        """
        raise error


@dataclass(frozen=True)
class Session:
    """One job in training.

    Attributes:
        job: what to train.
        place: where.
        outputs: whom to tell.
        directory: for results.
        store: of checkpoints.
        interrupt: how it is asked to stop.
    """

    job: RLJob
    place: Place
    outputs: Outputs
    directory: RunDirectory
    store: CheckpointStore
    interrupt: Interrupt

    def train(self) -> RunReport:
        """Trains until the job is complete or interrupted.

        Raises:
            UserError: anything that the user can mend.
            Interrupted: a signal came before training began.
        """
        with ExitStack() as stack:
            driver, recording = self._start(stack)
            return self._drive(driver, recording, stack)

    def _start(self, stack: ExitStack) -> tuple[Driver, Recording]:
        job, place, display = self.job, self.place, self.outputs.display
        spaces = check_job(job.spec)
        plan = place.connect(stack, self.interrupt, display)
        for note in plan.notes:
            display.message(note)
        display.message(place.describe(plan))
        url = self.outputs.server.url
        display.message(f"metrics: {url}/metrics, status: {url}/status")

        parts = place.build(plan, job_seed(job, self.store), spaces)
        stack.callback(parts.optimizer.stop)
        evaluation = place.evaluation(parts)
        if evaluation is not None:
            stack.callback(evaluation.stop)
        recording = Recording(self.directory)
        stack.callback(recording.stop)
        outputs = self.outputs
        observers: list[Callable[[IterationResult], object]] = [
            recording.record,
            outputs.exporter.observe,
            outputs.board.observe,
            display.update,
            *place.observers(),
        ]
        driver = Driver(
            job.spec,
            parts.optimizer,
            evaluation,
            self.store,
            lambda result: [observe(result) for observe in observers],
            attendant=place.attendant,
        )
        resumed = driver.resume()
        if resumed is not None:
            display.message(f"resumed at {resumed.timesteps:,} timesteps (iteration {resumed.iteration:,})")
        recording.begin(resumed)
        self.directory.write_manifest(job)
        return driver, recording

    def _drive(self, driver: Driver, recording: Recording, stack: ExitStack) -> RunReport:
        interrupt, board, display = self.interrupt, self.outputs.board, self.outputs.display
        interrupt.patient = True
        if interrupt.requested:
            # It came where an exception cannot be raised, such as a destructor.
            raise Interrupted(interrupt)
        display.start()
        stack.callback(display.stop)
        board.set_phase("Running")
        try:
            outcome = self._run(driver, recording)
            completion = self._complete(driver, outcome) if outcome.complete else None
        except BaseException as error:
            board.set_phase("Failed", str(error))
            raise
        board.set_phase("Succeeded" if outcome.complete else "Stopping", outcome.reason)
        stopped = interrupt if interrupt.requested and not outcome.complete else None
        return RunReport(self.directory, outcome, completion, driver.counters.restarted_timesteps, stopped)

    def _run(self, driver: Driver, recording: Recording) -> Outcome:
        """Trains to the end, with as many learners as it takes."""
        lost: LearnerLostError | None = None
        while True:
            try:
                if lost is not None:
                    self.outputs.board.set_phase("Recovering", lost.message)
                    checkpoint = self.place.recover(lost, driver, self.interrupt)
                    if checkpoint is None:
                        return driver.outcome(complete=False, reason=self.interrupt.name)
                    recording.begin(checkpoint)
                    self.outputs.board.set_phase("Running")
                return driver.run(self.interrupt)
            except LearnerLostError as error:
                if error is lost:
                    raise
                lost = error

    def _complete(self, driver: Driver, outcome: Outcome) -> dict[str, Any]:
        """Writes that the job is done, before the last evaluation too: whatever happens to that, it is."""
        completion = completion_record(self.job, driver, outcome, None)
        write_completion(self.store, completion)
        try:
            evaluation = driver.final_evaluation(self.interrupt)
        except LearnerLostError as error:
            logger.warning("no last evaluation: %s", error.message)
            evaluation = None
        if evaluation is not None:
            completion = completion_record(self.job, driver, outcome, evaluation)
            write_completion(self.store, completion)
        return completion


class Recording:
    """The run directory's metrics; begun anew where training goes back to a checkpoint."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._recorder: MetricsRecorder | None = None

    def begin(self, checkpoint: CheckpointInfo | None) -> None:
        """Goes on behind this checkpoint; what was recorded after it is dropped."""
        self.stop()
        self._recorder = MetricsRecorder(
            self._directory.path,
            resumed_iteration=checkpoint.iteration if checkpoint else 0,
            resumed_timesteps=checkpoint.timesteps if checkpoint else 0,
        )

    def record(self, result: IterationResult) -> None:
        """One iteration."""
        if self._recorder is not None:
            self._recorder.record(result)

    def stop(self) -> None:
        """Closes the files."""
        if self._recorder is not None:
            self._recorder.close()


def completion_record(
    job: RLJob, driver: Driver, outcome: Outcome, evaluation: EvaluationResult | None
) -> dict[str, Any]:
    """The final status of a complete job; numbers with the units of IterationResult."""
    returns = driver.counters.episodes.returns
    return {
        "job": job.metadata.name,
        "reason": outcome.reason,
        "timesteps": outcome.checkpoint.timesteps if outcome.checkpoint else 0,
        "iterations": driver.counters.iteration,
        "episodes": driver.counters.episodes.total,
        "episode_reward_mean": float(returns.mean()) if len(returns) else None,
        "elapsed_s": driver.counters.elapsed_s,
        "evaluation": evaluation.to_dict() if evaluation else None,
        "checkpoint": outcome.checkpoint.location if outcome.checkpoint else None,
    }


def describe(job: RLJob, plan: Plan, *, in_process: bool) -> str:
    """One line: what trains, with what."""
    spec = job.spec
    if isinstance(spec.config, OfflineConfig):
        return (
            f"{spec.algorithm} for {spec.environment.id} from {spec.config.input}, learned on {', '.join(plan.devices)}"
        )
    where = "in this process" if in_process or not plan.evaluators else f"by {plan.evaluators} evaluators"
    devices = ", ".join(plan.devices)
    return (
        f"{spec.algorithm} on {spec.environment.id} with {spec.resolved_optimizer}: sampled {where}, "
        f"{plan.envs_per_evaluator} environments each, learned on {devices}"
    )


def job_seed(job: RLJob, store: CheckpointStore) -> int:
    """The manifest's seed, or one that is drawn once and kept beside the checkpoints, so that a resume has it too.

    Raises:
        CheckpointError: the storage cannot be read or written.
    """
    if job.spec.seed is not None:
        return job.spec.seed
    try:
        try:
            return int(json.loads(store.storage.read(SEED_FILE))["seed"])
        except FileNotFoundError:
            seed = secrets.randbelow(2**31)
            store.storage.publish(SEED_FILE, json.dumps({"seed": seed}).encode())
            return seed
    except OSError as error:
        raise CheckpointError(
            f"cannot keep the run's seed in {store.location}/{SEED_FILE}: {error}",
            hint="free some space or restore access there, then run again",
        ) from error
