"""The driver's loop: step, record, evaluate, checkpoint, until a stop condition holds or someone asks to stop.

The driver handles references and counters; no experience passes through it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlcore.algorithms import ALGORITHMS
from rlcore.api import RLJobSpec
from rlcore.checkpoint import CheckpointInfo, CheckpointStore
from rlcore.driver.evaluation import EvaluationResult, EvaluationRunner
from rlcore.driver.interrupt import Interrupt
from rlcore.driver.stop import FEWEST_EPISODES, stop_reason
from rlcore.errors import CheckpointError, NoEvaluatorsError
from rlcore.evaluation.episodes import Episode, EpisodeWindow
from rlcore.evaluation.evaluator_set import GlobalState
from rlcore.evaluation.policy_evaluator import PolicyEvaluator, unfinished_timesteps
from rlcore.metrics.result import IterationResult
from rlcore.optimizers import PolicyOptimizer, Progress
from rlcore.optimizers.learner import Learner
from rlcore.optimizers.remote_learner import RemoteLearner

logger = logging.getLogger("rlcore.driver")

# Failed checkpoints in a row that training goes on after; the next one ends the run.
TOLERATED_CHECKPOINT_FAILURES = 2
# How long the last evaluation may take after training is over.
FINAL_EVALUATION_S = 300.0


@dataclass
class Outcome:
    """How a run ended.

    Attributes:
        complete: a stop condition holds.
        reason: which, or which signal.
        result: the last iteration's, None if there was none.
        checkpoint: the newest.
    """

    complete: bool
    reason: str
    result: IterationResult | None
    checkpoint: CheckpointInfo | None


@dataclass
class Counters:
    """The driver's own part of a checkpoint."""

    iteration: int = 0
    elapsed_s: float = 0.0
    environment_failures: int = 0
    restarted_timesteps: int = 0
    episodes: EpisodeWindow = field(default_factory=EpisodeWindow)

    def get_state(self) -> dict[str, Any]:
        """Arrays and numbers to go on from."""
        return {
            "iteration": self.iteration,
            "elapsed_s": self.elapsed_s,
            "environment_failures": self.environment_failures,
            "restarted_timesteps": self.restarted_timesteps,
            "episodes": self.episodes.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self.iteration = state["iteration"]
        self.elapsed_s = state["elapsed_s"]
        self.environment_failures = state["environment_failures"]
        self.restarted_timesteps = state["restarted_timesteps"]
        self.episodes.set_state(state["episodes"])


class Attendant:
    """Whom the driver listens to between two steps; here nobody, and a cluster has one of its own."""

    def between_steps(self, driver: Driver, interrupt: Interrupt) -> None:
        """Called before each step; may change `driver.stop`, save a checkpoint, or hold training up."""

    def saved(self, checkpoint: CheckpointInfo) -> None:
        """A checkpoint is complete, or was resumed from."""


class Driver:
    """Runs an optimizer.

    Args:
        spec: the manifest.
        optimizer: with its evaluators and learner.
        evaluation: beside training, None for no evaluation.
        store: of checkpoints.
        on_result: called once an iteration.
        attendant: see there.
        clock: seconds, monotonic.

    Attributes:
        stop: the conditions that end training; they may change while it runs.
    """

    def __init__(
        self,
        spec: RLJobSpec,
        optimizer: PolicyOptimizer,
        evaluation: EvaluationRunner | None,
        store: CheckpointStore,
        on_result: Callable[[IterationResult], object],
        attendant: Attendant | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self.stop = spec.stop
        self._attendant = attendant or Attendant()
        self._optimizer = optimizer
        self._evaluation = evaluation
        self._store = store
        self._on_result = on_result
        self._clock = clock
        self.counters = Counters()
        self.last_evaluation: EvaluationResult | None = None
        self.last_checkpoint: CheckpointInfo | None = None
        self.last_result: IterationResult | None = None
        # What learns from records has no episodes of its own, and in self-play one side's gain is the other's loss.
        self._judged_by_evaluation = not optimizer.plays or ALGORITHMS[spec.algorithm].graph.plays_both_seats
        self._checkpoint_failures = 0
        self._checkpoint_due_s = clock() + spec.checkpoint.every_s
        self._checkpoint_time_s = self._evaluate_time_s = 0.0

    # the loop --------------------

    def run(self, interrupt: Interrupt) -> Outcome:
        """Trains until a stop condition holds or `interrupt` is requested; saves a checkpoint either way.

        Raises:
            UserError: what environments, policies or the checkpoint storage raised; the last good checkpoint is kept.
        """
        while True:
            self._attendant.between_steps(self, interrupt)
            reason = self.stop_reason()
            if reason is not None or interrupt.requested:
                self.checkpoint(last=True)
                return self.outcome(complete=reason is not None, reason=reason or interrupt.name)
            try:
                self._iterate()
            except NoEvaluatorsError:
                if not interrupt.requested:
                    raise
                continue  # nobody was left to finish the step; what was learned before it is saved
            self._evaluate_if_due()
            if self._clock() >= self._checkpoint_due_s:
                self.checkpoint(last=False)

    def stop_reason(self) -> str | None:
        """Why training is complete, or None."""
        returns = self.counters.episodes.returns
        settled = len(returns) >= FEWEST_EPISODES
        return stop_reason(
            self.stop,
            timesteps=self._optimizer.timesteps_sampled,
            iterations=self.counters.iteration,
            episode_reward_mean=float(returns.mean()) if settled else None,
            elapsed_s=self.counters.elapsed_s,
        )

    def _iterate(self) -> None:
        started = self._clock()
        self._optimizer.step()
        progress = self._optimizer.collect_metrics()
        for failure in progress.failures:
            logger.warning("environment failed, replaced: %s", failure)
        self.counters.iteration += 1
        self.counters.environment_failures += len(progress.failures)
        if self._judged_by_evaluation:
            self.counters.episodes.count(len(progress.episodes))
        else:
            self.counters.episodes.extend(progress.episodes)
        seconds = self._clock() - started
        # Without Ray the evaluation took training's time: it counts, so that the shares and the wall clock are true.
        self.counters.elapsed_s += seconds + self._evaluate_time_s
        if self._evaluation is not None:
            self._take_evaluation(self._evaluation.poll())
        self.last_result = self._result(progress, seconds)
        self._checkpoint_time_s = self._evaluate_time_s = 0.0
        self._on_result(self.last_result)

    def _take_evaluation(self, evaluation: EvaluationResult | None) -> None:
        if evaluation is None:
            return
        self.last_evaluation = evaluation
        if self._judged_by_evaluation:
            pairs = zip(evaluation.episode_returns, evaluation.episode_lengths, strict=True)
            self.counters.episodes.replace([Episode(total, length) for total, length in pairs])
            if not self._optimizer.plays:
                self.counters.episodes.count(len(evaluation.episode_returns))

    def _result(self, progress: Progress, seconds: float) -> IterationResult:
        window = self.counters.episodes
        returns = window.returns
        times = progress.times_s
        learn_s = sum(times.get(stage, 0.0) for stage in ("load", "sgd", "apply", "broadcast"))
        return IterationResult(
            iteration=self.counters.iteration,
            timesteps=self._optimizer.timesteps_sampled,
            timesteps_this_iteration=progress.timesteps_sampled,
            episodes=window.total,
            episode_reward_mean=float(returns.mean()) if len(returns) else None,
            episode_reward_min=float(returns.min()) if len(returns) else None,
            episode_reward_max=float(returns.max()) if len(returns) else None,
            episode_length_mean=window.mean_length,
            timesteps_per_s=progress.timesteps_sampled / max(seconds, 1e-9),
            # Gradients that evaluators compute are their work too: more evaluators make more of both.
            sample_time_s=times.get("sample", 0.0) + times.get("grad", 0.0),
            learn_time_s=learn_s,
            wait_time_s=times.get("wait", 0.0),
            checkpoint_time_s=self._checkpoint_time_s,
            evaluate_time_s=self._evaluate_time_s,
            elapsed_s=self.counters.elapsed_s,
            learner=flatten_stats(progress),
            optimizer={**progress.counts, "policy_staleness": progress.staleness},
            evaluators=len(self._optimizer.evaluators.indices),
            environment_failures=self.counters.environment_failures,
            checkpoint_timesteps=self.last_checkpoint.timesteps if self.last_checkpoint else None,
            evaluation=self.last_evaluation.to_dict() if self.last_evaluation else None,
        )

    def outcome(self, *, complete: bool, reason: str) -> Outcome:
        """How the run ended, with the newest result and checkpoint."""
        return Outcome(complete, reason, self.last_result, self.last_checkpoint)

    # evaluation --------------------

    def _evaluate_if_due(self) -> None:
        every = self._spec.evaluation.every
        if self._evaluation is not None and every and self.counters.iteration % every == 0:
            started = self._clock()
            self._evaluation.start(self.global_state())
            self._evaluate_time_s = self._clock() - started

    def final_evaluation(self, interrupt: Interrupt) -> EvaluationResult | None:
        """The newest weights' evaluation, waited for; given up when it takes too long or somebody asks to stop."""
        if self._evaluation is None:
            return None
        deadline_s = self._clock() + FINAL_EVALUATION_S
        started = False
        while not interrupt.requested and self._clock() < deadline_s:
            self.last_evaluation = self._evaluation.poll(wait_s=0.2) or self.last_evaluation
            if self.last_evaluation and self.last_evaluation.timesteps == self._optimizer.timesteps_sampled:
                break
            if not self._evaluation.busy:
                if started:
                    break
                self._evaluation.start(self.global_state())
                started = True
        newest = self.last_evaluation
        return newest if newest and newest.timesteps == self._optimizer.timesteps_sampled else None

    @property
    def timesteps(self) -> int:
        """Sampled since the beginning of the job."""
        return self._optimizer.timesteps_sampled

    @property
    def learner(self) -> Learner | RemoteLearner:
        """The optimizer's."""
        return self._optimizer.learner

    def set_fragment_size(self, size: int) -> None:
        """Evaluators give fragments of so many timesteps from now on."""
        self._optimizer.set_fragment_size(size)

    def global_state(self) -> GlobalState:
        """The newest weights and filters."""
        optimizer = self._optimizer
        filters = {policy_id: filter_.get_state() for policy_id, filter_ in optimizer.filters.items()}
        learner = optimizer.learner
        frozen = {} if optimizer.self_play is None else optimizer.self_play.opponents
        return GlobalState(learner.get_weights(), learner.get_version(), optimizer.timesteps_sampled, filters, frozen)

    # checkpoints --------------------

    def checkpoint(self, *, last: bool) -> bool:
        """Saves everything; whether it is saved. A failure is tolerated twice in a row, but not for the run's last one.

        Raises:
            CheckpointError: it could not be written.
        """
        optimizer = self._optimizer
        if self.last_checkpoint is not None and self.last_checkpoint.iteration == self.counters.iteration:
            return True
        started = self._clock()
        self._checkpoint_due_s = started + self._spec.checkpoint.every_s
        state = {
            "driver": self.counters.get_state(),
            "optimizer": optimizer.save(),
            "evaluators": optimizer.foreach_evaluator(PolicyEvaluator.save),
        }
        try:
            self.last_checkpoint = self._store.save(
                state, timesteps=optimizer.timesteps_sampled, iteration=self.counters.iteration
            )
        except CheckpointError as error:
            self._checkpoint_failures += 1
            if last or self._checkpoint_failures > TOLERATED_CHECKPOINT_FAILURES:
                raise
            logger.warning("checkpoint failed, training goes on: %s", error)
            return False
        self._checkpoint_failures = 0
        self._checkpoint_time_s = self._clock() - started
        self._attendant.saved(self.last_checkpoint)
        logger.info(
            "checkpoint: timesteps=%d seconds=%.3f bytes=%d",
            self.last_checkpoint.timesteps,
            self._checkpoint_time_s,
            self.last_checkpoint.size_bytes,
        )
        return True

    def resume(self) -> CheckpointInfo | None:
        """Goes on from the newest good checkpoint, if there is one.

        Raises:
            CheckpointError: it belongs to another job.
        """
        found = self._store.latest()
        if found is None:
            return None
        info, state = found
        assert isinstance(state, dict)
        self.counters.set_state(state["driver"])
        self._optimizer.restore(state["optimizer"])
        self.counters.restarted_timesteps += self._restore_evaluators(state["evaluators"])
        self.last_checkpoint = info
        self._attendant.saved(info)
        return info

    def _restore_evaluators(self, states: list[dict[str, Any] | None]) -> int:
        """Gives evaluators their states back; returns the timesteps of unfinished episodes that begin anew."""
        optimizer = self._optimizer
        evaluators = optimizer.evaluators
        # Filters first: observations that wait in an evaluator were not filtered yet.
        filters = {policy_id: filter_.get_state() for policy_id, filter_ in optimizer.filters.items()}
        evaluators.foreach(PolicyEvaluator.set_filters, filters)
        count = len(evaluators.indices)
        # Of fewer or more evaluators none goes on: each one's share of the batch is another one now.
        arguments: list[Any] = states if len(states) == count else [None] * count
        restored = evaluators.foreach_with_index(_restore, [(a, optimizer.timesteps_sampled) for a in arguments])
        lost = sum(timesteps or 0 for timesteps in restored)
        if arguments is not states:
            logger.warning("%d evaluators in the checkpoint, %d now: episodes begin anew", len(states), count)
            lost += sum(unfinished_timesteps(state) for state in states if state is not None)
        return int(lost)


def _restore(evaluator: PolicyEvaluator, state_and_salt: tuple[dict[str, Any] | None, int]) -> int:
    return evaluator.restore(*state_and_salt)


def flatten_stats(progress: Progress) -> dict[str, float]:
    """Learner statistics by name; with several policies by `policy/name`."""
    if len(progress.learner) == 1:
        return dict(next(iter(progress.learner.values())))
    return {f"{policy}/{name}": value for policy, stats in progress.learner.items() for name, value in stats.items()}
