"""Population based training: a driver of drivers (Jaderberg et al. 2017, arXiv 1711.09846).

while not done:
    every trial trains `interval` iterations        # each a driver with evaluators and a learner of its own
    the worst copy the best's checkpoints           # exploit
    their hyper-parameters change                   # explore
"""

from __future__ import annotations

import dataclasses
import logging
import time
from contextlib import ExitStack
from typing import Any

import numpy as np

from rlcore.api import RLJob
from rlcore.api.population import PopulationSpec
from rlcore.checkpoint import CheckpointInfo, CheckpointStore, write_completion
from rlcore.checkpoint.manifest import MANIFEST_FILE, CheckpointName
from rlcore.driver.build import check_job, require_judge
from rlcore.driver.driver import Outcome
from rlcore.driver.finished import open_store
from rlcore.driver.interrupt import Interrupt, Interrupted
from rlcore.driver.outputs import Outputs
from rlcore.driver.pbt import config_with, exploits, explored, first_values, require_possible
from rlcore.driver.plan import Machine
from rlcore.driver.population_state import Member, PopulationState
from rlcore.driver.population_summary import draw_population, exploit_line, round_line, summary_lines, values_text
from rlcore.driver.ray_session import ray_session, this_machine
from rlcore.driver.run_directory import CHECKPOINTS, RunDirectory
from rlcore.driver.session import RunReport, job_seed
from rlcore.driver.stop import stop_reason
from rlcore.driver.trial import TrialReport
from rlcore.driver.trial_runner import LocalTrials, RemoteTrials, TrialRunner
from rlcore.errors import CheckpointError, NonFiniteError, UserError
from rlcore.metrics.recorder import MetricsRecorder

logger = logging.getLogger("rlcore.driver")

TRIALS = "trials"
# Tells the seeds of two trials apart, whatever else is added to them.
SEED_STEP = 1_000_003


class Population:
    """Trains a population to its end.

    Args:
        job: with spec.population.
        outputs: whom to tell.
        directory: of the job; trials have theirs in it.
        store: the job's own checkpoints, where the best trial's is kept.
        interrupt: how it is asked to stop.
        in_process: no Ray: trials train in turn.
    """

    def __init__(
        self,
        job: RLJob,
        outputs: Outputs,
        directory: RunDirectory,
        store: CheckpointStore,
        interrupt: Interrupt,
        *,
        in_process: bool,
    ) -> None:
        assert job.spec.population is not None
        require_possible(job.spec)
        require_judge(job.spec)
        self._job, self._outputs, self._directory, self._store = job, outputs, directory, store
        self._spec: PopulationSpec = job.spec.population
        self._interrupt, self._in_process = interrupt, in_process
        self._seed = job_seed(job, store)
        self._directories = {number: self._trial_directory(number) for number in range(self._spec.size)}
        self._state = self._load() or self._begin()
        self._rng = np.random.default_rng()
        self._rng.bit_generator.state = self._state.rng
        self._checkpoint: CheckpointInfo | None = None
        self._reports: dict[int, TrialReport] = {}

    def train(self) -> RunReport:
        """Trains until a stop condition holds or it is interrupted; the best trial's checkpoint is the job's.

        Raises:
            UserError: anything that the user can mend.
            Interrupted: a signal came before training began.
        """
        display, board = self._outputs.display, self._outputs.board
        with ExitStack() as stack:
            runner = self._start(stack)
            recorder = MetricsRecorder(
                self._directory.path,
                resumed_iteration=self._state.round * self._spec.interval,
                resumed_timesteps=self._state.members[self._state.best].timesteps,
            )
            stack.callback(recorder.close)
            self._directory.write_manifest(self._job)
            self._interrupt.patient = True
            if self._interrupt.requested:
                raise Interrupted(self._interrupt)
            display.start()
            stack.callback(display.stop)
            board.set_phase("Running")
            try:
                reason = None
                while reason is None and not self._interrupt.requested:
                    reason = self._round(runner, recorder)
                completion = self._complete(reason) if reason is not None else None
            except BaseException as error:
                board.set_phase("Failed", str(error))
                raise
            board.set_phase("Succeeded" if reason else "Stopping", reason or self._interrupt.name)
        for line in summary_lines(self._state):
            display.message(line)
        best = self._reports.get(self._state.best)
        result, why = best.result if best else None, reason or self._interrupt.name
        outcome = Outcome(reason is not None, why, result, self._checkpoint)
        stopped = self._interrupt if reason is None else None
        return RunReport(self._directory, outcome, completion, self._state.restarted_timesteps, stopped)

    # a round --------------------

    def _round(self, runner: TrialRunner, recorder: MetricsRecorder) -> str | None:
        """One round: train, judge, decide; why training is complete, or None. An interrupted one goes on later."""
        state, spec = self._state, self._spec
        self._copy_pending()
        iterations = (state.round + 1) * spec.interval
        jobs = {number: (self._trial_job(number), member.copies) for number, member in enumerate(state.members)}
        started, reports = time.monotonic(), {}
        for report in runner.train(jobs, iterations):
            reports[report.trial] = report
            if report.result is not None:
                self._outputs.display.update(report.result)
        state.elapsed_s += time.monotonic() - started
        self._note(reports)
        self._require_a_survivor(reports)
        if len(reports) < spec.size or any(report.interrupted for report in reports.values()):
            state.save(self._directory.path)
            self._publish_best()
            self._record(recorder, runner)  # a resume drops it: it goes through that iteration again
            return None
        self._record(recorder, runner)
        self._outputs.display.message(round_line(state))
        reason = self._stop_reason(reports)
        if reason is None:
            self._decide()
        state.round += 1
        state.rng = dict(self._rng.bit_generator.state)
        self._publish_best()
        state.save(self._directory.path)
        draw_population(self._directory.path, state)
        return reason

    def _require_a_survivor(self, reports: dict[int, TrialReport]) -> None:
        """Says which trials diverged; the next round they are copies of better ones, unless there is none.

        Raises:
            NonFiniteError: all of them diverged.
        """
        diverged = {number: report.diverged for number, report in reports.items() if report.diverged is not None}
        for number, what in diverged.items():
            values = values_text(self._state.members[number].values)
            self._outputs.display.message(f"trial {number} diverged with {values}: {what}")
        if len(diverged) == self._spec.size:
            raise NonFiniteError(
                f"every trial of the population diverged; the last: {what}",
                hint="narrow the ranges in spec.population.mutations",
            )

    def _note(self, reports: dict[int, TrialReport]) -> None:
        self._reports.update(reports)
        for number, report in reports.items():
            member = self._state.members[number]
            member.score, member.iteration, member.timesteps = report.score, report.iteration, report.timesteps
        self._state.restarted_timesteps = sum(report.restarted_timesteps for report in self._reports.values())

    def _record(self, recorder: MetricsRecorder, runner: TrialRunner) -> None:
        """The best trial's result, with the population's own numbers, is the job's."""
        state = self._state
        scores = [member.score for member in state.members if member.score is not None]
        report = self._reports.get(state.best)
        if report is None or report.result is None:
            return
        figures: dict[str, float] = {
            "population_round": state.round + 1,
            "population_best_trial": state.best,
            "population_timesteps": sum(report.timesteps for report in self._reports.values()),
            "population_copies": sum(member.copies for member in state.members),
            "trials_lost": runner.losses,
        }
        if scores:
            figures |= {"population_median": float(np.median(scores)), "population_worst": float(min(scores))}
        recorded = dataclasses.replace(
            report.result, iteration=report.iteration, elapsed_s=state.elapsed_s, optimizer=figures
        )
        recorder.record(recorded)
        self._outputs.exporter.observe(recorded)
        self._outputs.board.observe(recorded)

    def _decide(self) -> None:
        """Exploit and explore; what is decided is done before the next round."""
        state, config = self._state, self._job.spec.config
        for loser, source in exploits(self._spec, [member.score for member in state.members], self._rng).items():
            member, model = state.members[loser], state.members[source]
            before = member.values
            member.values = explored(self._spec, config, model.values, self._rng)
            member.source = source
            entry = {
                "round": state.round + 1,
                "event": "copy",
                "trial": loser,
                "source": source,
                "iteration": member.iteration,
                "timesteps": model.timesteps,
                "score": member.score,
                "source_score": model.score,
                "before": before,
                "values": member.values,
            }
            state.lineage.append(entry)
            self._outputs.display.message(exploit_line(entry))

    def _copy_pending(self) -> None:
        """Copies what was decided; safe to be done again where it was cut off."""
        pending = [number for number, member in enumerate(self._state.members) if member.source is not None]
        for number in pending:
            member = self._state.members[number]
            assert member.source is not None
            self._copy(member.source, number)
        for number in pending:
            member = self._state.members[number]
            member.copies, member.source = member.copies + 1, None
        if pending:
            self._state.save(self._directory.path)

    def _copy(self, source: int, target: int) -> None:
        found = self._trial_store(source).latest()
        if found is None:
            raise CheckpointError(f"trial {source} has no checkpoint that trial {target} could copy")
        info, tree = found
        # The copy plays episodes of its own: with the source's it would sample the very same experience.
        tree["evaluators"] = [None] * len(tree["evaluators"])
        save_as_newest(self._trial_store(target), tree, info)

    def _publish_best(self) -> None:
        """The best trial's newest checkpoint becomes the job's."""
        found = self._trial_store(self._state.best).latest()
        if found is not None:
            self._checkpoint = save_as_newest(self._store, found[1], found[0])

    # the end --------------------

    def _stop_reason(self, reports: dict[int, TrialReport]) -> str | None:
        best = self._state.members[self._state.best]
        stop = self._job.spec.stop
        reason = stop_reason(
            stop.model_copy(update={"timesteps": None, "iterations": None}),
            timesteps=best.timesteps,
            iterations=best.iteration,
            episode_reward_mean=best.score,
            elapsed_s=self._state.elapsed_s,
        )
        if reason is None and all(report.finished for report in reports.values()):
            reason = reports[self._state.best].finished
        return reason

    def _complete(self, reason: str) -> dict[str, Any]:
        state = self._state
        best, report = state.members[state.best], self._reports[state.best]
        result = report.result
        completion = {
            "job": self._job.metadata.name,
            "reason": f"trial {state.best}: {reason}",
            "timesteps": best.timesteps,
            "iterations": best.iteration,
            "episodes": report.episodes,
            "episode_reward_mean": best.score,
            "elapsed_s": state.elapsed_s,
            "evaluation": result.evaluation if result else None,
            "checkpoint": self._checkpoint.location if self._checkpoint else None,
            "population": {"best_trial": state.best, "values": best.values, "rounds": state.round},
        }
        write_completion(self._store, completion)
        return completion

    # set-up --------------------

    def _start(self, stack: ExitStack) -> TrialRunner:
        display, machine = self._outputs.display, this_machine()
        check_job(self._trial_job(0).spec)
        share = Machine(cores=machine.cores // self._spec.size, gpus=machine.gpus // self._spec.size)
        concurrent = self._spec.concurrent_trials or self._spec.size
        if self._in_process:
            runner: TrialRunner = LocalTrials(self._directories, Machine(cores=1, gpus=machine.gpus), self._interrupt)
            how = "in turn, in this process"
        else:
            display.message("starting Ray")
            stack.enter_context(ray_session(cores=machine.cores))
            self._interrupt.take_over()
            if share.cores == 0:  # each samples in its own process, and needs a core for it
                concurrent = min(concurrent, machine.cores)
            runner = RemoteTrials(self._directories, share, concurrent, self._interrupt)
            how = f"{concurrent} at once, evaluators of each: {share.cores or 'none, it samples itself'}"
        stack.callback(runner.stop)
        spec = self._job.spec
        display.message(f"population of {self._spec.size} trials of {spec.algorithm} on {spec.environment.id}: {how}")
        url = self._outputs.server.url
        display.message(f"metrics: {url}/metrics, status: {url}/status")
        if self._state.round:
            display.message(f"resumed after round {self._state.round:,}")
        return runner

    def _begin(self) -> PopulationState:
        rng = np.random.default_rng([self._seed, 3])
        values = first_values(self._spec, self._job.spec.config, rng)
        lineage = [
            {"round": 0, "event": "birth", "trial": number, "source": None, "iteration": 0, "timesteps": 0, "values": v}
            for number, v in enumerate(values)
        ]
        state = PopulationState(dict(rng.bit_generator.state), [Member(v) for v in values], lineage=lineage)
        self._directory.path.mkdir(parents=True, exist_ok=True)
        state.save(self._directory.path)
        return state

    def _load(self) -> PopulationState | None:
        state = PopulationState.load(self._directory.path)
        if state is None:
            return None
        names = [mutation.parameter for mutation in self._spec.mutations]
        there = list(state.members[0].values)
        if len(state.members) != self._spec.size or there != names:
            raise UserError(
                f"{self._directory.path} has a population of {len(state.members)} trials with {', '.join(there)}; the "
                f"manifest asks for {self._spec.size} with {', '.join(names)}",
                hint="start over with --fresh, or restore spec.population",
                permanent=True,
            )
        return state

    def _trial_directory(self, number: int) -> RunDirectory:
        path = self._directory.path / TRIALS / str(number)
        if self._directory.checkpoints_are_elsewhere:
            return RunDirectory(path, f"{self._directory.checkpoints}/{TRIALS}/{number}")
        return RunDirectory(path, str(path / CHECKPOINTS))

    def _trial_store(self, number: int) -> CheckpointStore:
        return open_store(self._job, self._directories[number])

    def _trial_job(self, number: int) -> RLJob:
        """The job as this trial trains it."""
        member = self._state.members[number]
        changes = {
            "population": None,
            "config": config_with(self._job.spec.config, member.values),
            "seed": (self._seed + SEED_STEP * (number + 1)) % 2**31,
        }
        return self._job.model_copy(update={"spec": self._job.spec.model_copy(update=changes)})


def save_as_newest(store: CheckpointStore, tree: Any, like: CheckpointInfo) -> CheckpointInfo:
    """Saves a state that may be older than what is there, which is then removed: `latest` gives this one.

    Raises:
        CheckpointError: it cannot be written, or what is newer cannot be removed.
    """
    for info in store.list():
        if (info.timesteps, info.iteration) > (like.timesteps, like.iteration):
            _remove(store, info.name)
    return store.save(tree, timesteps=like.timesteps, iteration=like.iteration)


def _remove(store: CheckpointStore, name: str) -> None:
    assert CheckpointName.parse(name) is not None
    try:
        store.storage.remove_directory(name, first=MANIFEST_FILE)
    except OSError as error:
        raise CheckpointError(f"cannot remove {store.location}/{name}: {error}") from error
