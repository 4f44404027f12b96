"""One trial of a population: a whole driver with evaluators and a learner of its own, trained round by round.

The same object lives in the population's process, or in a Ray actor: then its evaluators are that actor's children,
and end with it.
"""

from __future__ import annotations

import dataclasses
import os
from contextlib import ExitStack
from dataclasses import dataclass

from rlcore.api import RLJob
from rlcore.checkpoint import CheckpointInfo
from rlcore.driver.build import build
from rlcore.driver.driver import Driver
from rlcore.driver.evaluation import EvaluationRunner
from rlcore.driver.finished import open_store
from rlcore.driver.interrupt import Interrupt
from rlcore.driver.plan import Machine, make_plan
from rlcore.driver.run_directory import RunDirectory
from rlcore.driver.session import Recording
from rlcore.errors import NonFiniteError
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.metrics.jsonl import read_results
from rlcore.metrics.result import IterationResult
from rlcore.optimizers import PolicyOptimizer


@dataclass(frozen=True)
class TrialReport:
    """What a trial has to say after a round.

    Attributes:
        trial: its number.
        iteration: iterations made.
        timesteps: sampled.
        episodes: that ended.
        score: mean reward of its last episodes, None without any.
        finished: which stop condition holds for it, None for none.
        interrupted: it was asked to stop before the round was over.
        checkpoint: its newest.
        result: of its last iteration, which an earlier process may have made; None where nobody knows it any more.
        restarted_timesteps: of unfinished episodes that resumes began anew.
        diverged: what became infinite or NaN, None where nothing did; such a trial has no score.
    """

    trial: int
    iteration: int
    timesteps: int
    episodes: int
    score: float | None
    finished: str | None
    interrupted: bool
    checkpoint: CheckpointInfo | None
    result: IterationResult | None
    restarted_timesteps: int
    diverged: str | None = None


class Trial:
    """Trains one member.

    Args:
        number: of the trial.
        directory: its run directory.
        machine: its share of this machine.
        use_ray: its evaluators are actors.
        interrupt: how it is asked to stop; None: its own, see `ask_to_stop`.
    """

    def __init__(
        self,
        number: int,
        directory: RunDirectory,
        machine: Machine,
        *,
        use_ray: bool,
        interrupt: Interrupt | None = None,
    ) -> None:
        self._number, self._directory, self._machine, self._use_ray = number, directory, machine, use_ray
        self._interrupt = interrupt or Interrupt()
        self._running: tuple[tuple[RLJob, int], Driver, PolicyOptimizer] | None = None
        self._stack = ExitStack()

    def train(self, job: RLJob, copies: int, iterations: int) -> TrialReport:
        """Trains this job until it has made so many iterations or a stop condition holds, and saves it.

        Args:
            job: of this trial, with its hyper-parameters.
            copies: how often it became a copy of another trial; after one more it goes on from its newest checkpoint.
            iterations: since the population's beginning.

        Raises:
            UserError: what environments, policies or the checkpoint storage raised.
        """
        driver = self._driver(job, copies)
        stop = job.spec.stop
        driver.stop = stop.model_copy(update={"iterations": min(iterations, stop.iterations or iterations)})
        try:
            outcome = driver.run(self._interrupt)
        except NonFiniteError as error:
            # Not every hyper-parameter that is tried is a good one: the others train on.
            self.close()
            counters = driver.counters
            progress = (counters.iteration, driver.timesteps, counters.episodes.total)
            return TrialReport(
                self._number, *progress, None, None, False, None, None, counters.restarted_timesteps, error.message
            )
        driver.stop = stop
        returns = driver.counters.episodes.returns
        result = outcome.result or self._recorded(driver.counters.iteration)
        checkpoint = outcome.checkpoint
        return TrialReport(
            trial=self._number,
            iteration=driver.counters.iteration,
            timesteps=checkpoint.timesteps if checkpoint else 0,
            episodes=driver.counters.episodes.total,
            score=float(returns.mean()) if len(returns) else None,
            finished=driver.stop_reason(),
            interrupted=not outcome.complete,
            checkpoint=checkpoint,
            result=result,
            restarted_timesteps=driver.counters.restarted_timesteps,
        )

    def _recorded(self, iteration: int) -> IterationResult | None:
        """The result that an earlier process left of this iteration."""
        if not self._directory.metrics.exists():
            return None
        known = {field.name for field in dataclasses.fields(IterationResult)}
        for line in read_results(self._directory.metrics):
            if line.get("iteration") == iteration and set(line) == known:
                return IterationResult(**line)
        return None

    def ask_to_stop(self, signal: int) -> None:
        """The step under way is finished and saved."""
        self._interrupt.signal = signal

    def children(self) -> list[int]:
        """Process ids of its evaluators."""
        return [] if self._running is None else self._running[2].foreach_evaluator(_process_id)

    def close(self) -> None:
        """Ends evaluators and learner, and closes the files."""
        self._running = None
        self._stack.close()

    def _driver(self, job: RLJob, copies: int) -> Driver:
        """The driver of this job, from the newest checkpoint where it is not running yet."""
        if self._running is not None and self._running[0] == (job, copies):
            return self._running[1]
        self.close()
        spec, stack = job.spec, self._stack
        assert spec.seed is not None
        parts = build(spec, make_plan(spec, self._machine), spec.seed, use_ray=self._use_ray)
        stack.callback(parts.optimizer.stop)
        evaluation = None
        if spec.evaluation.every:
            evaluation = EvaluationRunner(parts.config, spec.evaluation.episodes, remote=self._use_ray)
            stack.callback(evaluation.stop)
        recording = Recording(self._directory)
        stack.callback(recording.stop)
        store = open_store(job, self._directory)
        driver = Driver(spec, parts.optimizer, evaluation, store, recording.record)
        recording.begin(driver.resume())
        self._directory.write_manifest(job)
        self._running = ((job, copies), driver, parts.optimizer)
        return driver


def _process_id(_evaluator: PolicyEvaluator) -> int:
    return os.getpid()
