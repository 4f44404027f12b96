"""Runs one job on this machine, from its manifest to its end: what `rlcore run` calls."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rlcore.api import RLJob
from rlcore.checkpoint import RunLock, read_completion
from rlcore.driver.build import Parts, build
from rlcore.driver.evaluation import EvaluationRunner
from rlcore.driver.finished import is_complete, open_store
from rlcore.driver.interrupt import Interrupt, Interrupted, catch_interrupts
from rlcore.driver.outputs import Display, Outputs
from rlcore.driver.plan import Plan, make_plan
from rlcore.driver.population import Population
from rlcore.driver.ray_session import cluster_machine, ray_session, this_machine
from rlcore.driver.run_directory import RunDirectory, move_aside, run_directory
from rlcore.driver.session import Place, RunReport, Session, describe
from rlcore.evaluation.world import Spaces
from rlcore.metrics.exporter import MetricsExporter
from rlcore.metrics.server import MetricsServer
from rlcore.metrics.status import StatusBoard

__all__ = ["Display", "RunOptions", "RunReport", "run_job"]


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
        if completion is not None and is_complete(job.spec.stop, completion):
            return RunReport(directory, None, completion, 0, None)
        outputs = _outputs(job, options, display, directory, stack)
        if job.spec.population is not None:
            return Population(job, outputs, directory, store, interrupt, in_process=options.in_process).train()
        return Session(job, ThisMachine(job, options), outputs, directory, store, interrupt).train()


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


class ThisMachine(Place):
    """An embedded local Ray (or the cluster at RAY_ADDRESS), or no Ray at all."""

    def __init__(self, job: RLJob, options: RunOptions) -> None:
        self._job, self._options = job, options

    def connect(self, stack: ExitStack, interrupt: Interrupt, display: Display) -> Plan:
        machine = this_machine()
        if not self._options.in_process:
            display.message("starting Ray")
            stack.enter_context(ray_session(cores=machine.cores))
            interrupt.take_over()
            machine = cluster_machine(machine)
        return make_plan(self._job.spec, machine, strict=self._options.strict)

    def describe(self, plan: Plan) -> str:
        return describe(self._job, plan, in_process=self._options.in_process)

    def build(self, plan: Plan, seed: int, spaces: dict[str, Spaces]) -> Parts:
        return build(self._job.spec, plan, seed, use_ray=not self._options.in_process, spaces=spaces)

    def evaluation(self, parts: Parts) -> EvaluationRunner | None:
        spec = self._job.spec.evaluation
        if not spec.every:
            return None
        return EvaluationRunner(parts.config, spec.episodes, remote=not self._options.in_process)


def _outputs(job: RLJob, options: RunOptions, display: Display, directory: RunDirectory, stack: ExitStack) -> Outputs:
    names = {
        "job": job.metadata.name,
        "algorithm": job.spec.algorithm,
        "environment": job.spec.environment.id,
    }
    board = StatusBoard(**names, checkpoint_location=directory.checkpoints)
    exporter = MetricsExporter(**names)
    server = MetricsServer(exporter.registry, board.snapshot, host=options.host, port=options.port)
    server.start()
    stack.callback(server.stop)
    return Outputs(display, board, exporter, server)
