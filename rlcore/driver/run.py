"""Runs one job from its manifest to its end: what `rlcore run` and a cluster's head pod both call."""

from __future__ import annotations

import json
import secrets
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlcore.api import RLJob
from rlcore.checkpoint import CheckpointStore, RunLock, read_completion, write_completion
from rlcore.driver.build import build
from rlcore.driver.driver import Driver, Outcome
from rlcore.driver.evaluation import EvaluationResult, EvaluationRunner
from rlcore.driver.identity import identity
from rlcore.driver.interrupt import Interrupt, Interrupted, catch_interrupts
from rlcore.driver.plan import Plan, make_plan
from rlcore.driver.ray_session import cluster_machine, ray_session, this_machine
from rlcore.driver.run_directory import RunDirectory, move_aside, run_directory
from rlcore.driver.stop import stop_reason
from rlcore.errors import CheckpointError
from rlcore.metrics.exporter import MetricsExporter
from rlcore.metrics.recorder import MetricsRecorder
from rlcore.metrics.result import IterationResult
from rlcore.metrics.server import MetricsServer
from rlcore.metrics.status import StatusBoard

SEED_FILE = "seed.json"


@dataclass(frozen=True)
class RunOptions:
    """How to run a job here.

    Attributes:
        root: directory that holds run directories.
        in_process: no Ray at all.
        fresh: move an earlier run aside and start over.
        strict: what cannot be had as asked for is an error.
        port: of the metrics and status endpoint; 0 takes a free one.
        host: that the endpoint binds to.
    """

    root: Path = Path("runs")
    in_process: bool = False
    fresh: bool = False
    strict: bool = False
    port: int = 0
    host: str = "127.0.0.1"


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


class Display(Protocol):
    """Shows a person how it goes."""

    def message(self, text: str) -> None:
        """One line."""

    def start(self) -> None:
        """Training begins."""

    def update(self, result: IterationResult) -> None:
        """An iteration is over."""

    def stop(self) -> None:
        """Training is over."""


def run_job(job: RLJob, options: RunOptions, display: Display) -> RunReport:
    """Trains a job until it is complete or interrupted, from its newest checkpoint if there is one.

    Raises:
        UserError: anything that the user can mend.
        Interrupted: a signal came before training began.
    """
    directory = run_directory(job, options.root)
    with ExitStack() as stack:
        interrupt = stack.enter_context(catch_interrupts())
        if options.fresh:
            # A half-moved run is nobody's wish: a signal waits for its end.
            interrupt.patient = True
            for aside in set_aside(job, directory):
                display.message(f"the earlier run is kept in {aside}")
            interrupt.patient = False
            if interrupt.requested:
                raise Interrupted(interrupt)
        for path in directory.locked_paths:
            stack.enter_context(RunLock(path))
        store = open_store(job, directory)
        completion = read_completion(store)
        if completion is not None and is_complete(job, completion):
            return RunReport(directory, None, completion, 0, None)
        return _train(job, options, display, directory, store, stack, interrupt)


def open_store(job: RLJob, directory: RunDirectory) -> CheckpointStore:
    """The job's checkpoints."""
    return CheckpointStore(directory.checkpoints, keep=job.spec.checkpoint.keep, identity=identity(job))


def set_aside(job: RLJob, directory: RunDirectory) -> list[str]:
    """Renames what an earlier run left, so that a new one starts empty; returns the new names.

    Raises:
        UserError: another process runs there; nothing was moved.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    moved: list[str | None] = []
    with ExitStack() as locks:
        for path in directory.locked_paths:
            if path.exists():
                locks.enter_context(RunLock(path))
        if directory.checkpoints_are_elsewhere:
            moved.append(open_store(job, directory).move_aside(stamp))
        moved.append(move_aside(directory, stamp))
    return [name for name in moved if name is not None]


def is_complete(job: RLJob, completion: dict[str, Any]) -> bool:
    """Whether a finished run still satisfies the job's stop conditions (they may have been raised since)."""
    return (
        stop_reason(
            job.spec.stop,
            timesteps=completion["timesteps"],
            iterations=completion["iterations"],
            episode_reward_mean=completion["episode_reward_mean"],
            elapsed_s=completion["elapsed_s"],
        )
        is not None
    )


def _train(
    job: RLJob,
    options: RunOptions,
    display: Display,
    directory: RunDirectory,
    store: CheckpointStore,
    stack: ExitStack,
    interrupt: Interrupt,
) -> RunReport:
    spec = job.spec
    board = StatusBoard(
        job=job.metadata.name,
        algorithm=spec.algorithm,
        environment=spec.environment.id,
        checkpoint_location=directory.checkpoints,
    )
    exporter = MetricsExporter(job=job.metadata.name, algorithm=spec.algorithm, environment=spec.environment.id)
    server = MetricsServer(exporter.registry, board.snapshot, host=options.host, port=options.port)
    server.start()
    stack.callback(server.stop)

    machine = this_machine()
    if not options.in_process:
        display.message("starting Ray")
        stack.enter_context(ray_session(cores=machine.cores))
        interrupt.take_over()
        machine = cluster_machine(machine)
    plan = make_plan(spec, machine, strict=options.strict)
    for note in plan.notes:
        display.message(note)
    display.message(describe(job, plan, in_process=options.in_process))
    display.message(f"metrics: {server.url}/metrics, status: {server.url}/status")

    parts = build(spec, plan, job_seed(job, store), use_ray=not options.in_process)
    stack.callback(parts.optimizer.stop)
    evaluation = None
    if spec.evaluation.every:
        evaluation = EvaluationRunner(parts.config, spec.evaluation.episodes, remote=not options.in_process)
        stack.callback(evaluation.stop)
    observers = [exporter.observe, board.observe, display.update]
    driver = Driver(spec, parts.optimizer, evaluation, store, lambda result: [o(result) for o in observers])
    resumed = driver.resume()
    if resumed is not None:
        display.message(f"resumed at {resumed.timesteps:,} timesteps (iteration {resumed.iteration:,})")
    recorder = MetricsRecorder(
        directory.path,
        resumed_iteration=resumed.iteration if resumed else 0,
        resumed_timesteps=resumed.timesteps if resumed else 0,
    )
    stack.callback(recorder.close)
    observers.insert(0, recorder.record)
    directory.write_manifest(job)
    return _drive(job, display, directory, store, stack, board, driver, interrupt)


def _drive(
    job: RLJob,
    display: Display,
    directory: RunDirectory,
    store: CheckpointStore,
    stack: ExitStack,
    board: StatusBoard,
    driver: Driver,
    interrupt: Interrupt,
) -> RunReport:
    interrupt.patient = True
    if interrupt.requested:
        # It came where an exception cannot be raised, such as a destructor.
        raise Interrupted(interrupt)
    display.start()
    stack.callback(display.stop)
    board.set_phase("Running")
    try:
        outcome = driver.run(interrupt)
        completion = None
        if outcome.complete:
            # Written before the last evaluation too: whatever happens to that, the job is done.
            completion = completion_record(job, driver, outcome, None)
            write_completion(store, completion)
            evaluation = driver.final_evaluation(interrupt)
            if evaluation is not None:
                completion = completion_record(job, driver, outcome, evaluation)
                write_completion(store, completion)
    except BaseException as error:
        board.set_phase("Failed", str(error))
        raise
    board.set_phase("Succeeded" if outcome.complete else "Stopping", outcome.reason)
    stopped = interrupt if interrupt.requested and not outcome.complete else None
    return RunReport(directory, outcome, completion, driver.counters.restarted_timesteps, stopped)


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
