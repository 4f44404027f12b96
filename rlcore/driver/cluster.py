"""One attempt of a job in a cluster: what `python -m rlcore.driver` runs in the head pod.

The very same session as `rlcore run`, with the operator on the other side: it reads /status, writes control.json, and
is told how the attempt ended before the process exits.
"""

from __future__ import annotations

import logging
import os
import re
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from rlcore.api import RLJob, load_job
from rlcore.api.fields import DNS_LABEL
from rlcore.checkpoint import CheckpointStore, FailureRecord, Owner, Ownership, read_completion, write_failure
from rlcore.checkpoint.storage import open_storage
from rlcore.driver.checkpoint_socket import CheckpointSocket
from rlcore.driver.cluster_settings import ClusterSettings
from rlcore.driver.control import ControlFile
from rlcore.driver.final_status import EXIT_FENCED, failed, succeeded, wait_until_observed
from rlcore.driver.finished import is_complete, open_store
from rlcore.driver.interrupt import Interrupt, Interrupted, catch_interrupts
from rlcore.driver.log_archive import archive_logs
from rlcore.driver.logs import LogDisplay, LogTail, configure_logging
from rlcore.driver.outputs import Outputs
from rlcore.driver.run_directory import MANIFEST_FILE
from rlcore.errors import FencedError, ManifestError, UserError
from rlcore.metrics.attempt_status import AttemptBoard, FinalStatus
from rlcore.metrics.exporter import MetricsExporter
from rlcore.metrics.server import MetricsServer

if TYPE_CHECKING:
    from rlcore.driver.cluster_place import ClusterPlace

logger = logging.getLogger("rlcore.driver")


def main() -> int:
    """Runs the attempt that the environment describes; returns the exit code (see final_status.py)."""
    started_ns = time.time_ns()
    tail = configure_logging()
    with catch_interrupts() as interrupt:
        try:
            settings = ClusterSettings.from_environment(os.environ)
            return Attempt(settings, Owner(settings.attempt, started_ns, settings.pod_uid), tail, interrupt).run()
        except Interrupted:
            logger.info("stopped by %s before training began", interrupt.name)
            return interrupt.exit_code
        except UserError as error:
            # Before there was anybody to tell: no status endpoint, or not even an attempt.
            logger.error("%s", error)
            return failed(error, "").exit_code


@dataclass(frozen=True)
class Attempt:
    """One driver process.

    Attributes:
        settings: of the pod.
        owner: this driver's claim on the checkpoints.
        tail: the last lines of its log.
        interrupt: how it is asked to stop.
    """

    settings: ClusterSettings
    owner: Owner
    tail: LogTail
    interrupt: Interrupt

    def run(self) -> int:
        """Trains, tells the operator how it ended, and returns the exit code.

        Raises:
            Interrupted: a signal came before training began.
            UserError: the status endpoint cannot be opened.
        """
        control = ControlFile(self.settings.config)
        with ExitStack() as stack:
            loaded = self._load()
            job = loaded if isinstance(loaded, RLJob) else None
            outputs = self._outputs(job, stack)
            board = outputs.board
            assert isinstance(board, AttemptBoard)
            try:
                if isinstance(loaded, ManifestError):
                    raise loaded
                final = self._train(loaded, control, outputs, board)
            except Exception as error:
                self.interrupt.patient = True
                final = failed(error, self.owner.token)
                self._log(error, final)
                self._record(job, final)
            if final is None:
                return self.interrupt.exit_code
            if final.exit_code == EXIT_FENCED:
                board.set_phase("Failed", final.message)
                return EXIT_FENCED
            board.set_final(final)
            self.interrupt.patient = True
            wait_until_observed(final, lambda: control.poll().final_observed, self.interrupt)
            return final.exit_code

    def _load(self) -> RLJob | ManifestError:
        """The job, or what is wrong with its manifest: the operator shall hear of that over /status too."""
        try:
            return load_job(self.settings.config / MANIFEST_FILE)
        except ManifestError as error:
            return error

    def _outputs(self, job: RLJob | None, stack: ExitStack) -> Outputs:
        names = {
            "job": job.metadata.name if job else self._name() or "unknown",
            "algorithm": job.spec.algorithm if job else "unknown",
            "environment": job.spec.environment.id if job else "unknown",
        }
        board = AttemptBoard(**names, attempt=self.settings.attempt, token=self.owner.token)
        exporter = MetricsExporter(**names)
        server = MetricsServer(exporter.registry, board.snapshot, host=self.settings.address, port=self.settings.port)
        server.start()
        stack.callback(server.stop)
        return Outputs(LogDisplay(), board, exporter, server)

    def _train(self, job: RLJob, control: ControlFile, outputs: Outputs, board: AttemptBoard) -> FinalStatus | None:
        """The final status of a complete job, None for one that a signal stopped.

        Raises:
            UserError, FencedError, Interrupted.
        """
        directory = self.settings.run_directory(job)
        store = open_store(job, directory)
        ownership = Ownership(store.storage, self.owner)
        ownership.claim()
        store.guard = ownership.check
        completion = read_completion(store)
        if completion is not None and is_complete(control.poll().stop or job.spec.stop, completion):
            logger.info("complete already: %s", completion["reason"])
            board.note_completion(completion)
            self._note_checkpoint(store, board)
            return succeeded(str(completion["reason"]), self.owner.token)
        # Heavy imports only for a job that is to be trained.
        from rlcore.driver.cluster_attendant import ClusterAttendant
        from rlcore.driver.cluster_place import ClusterPlace
        from rlcore.driver.session import Session

        with ExitStack() as stack:
            requests = CheckpointSocket(self.settings.usable_runtime())
            stack.callback(requests.close)
            place = ClusterPlace(job, control, board, ClusterAttendant(job.spec.stop, control, board, requests))
            stack.callback(self._archive, place, store)
            report = Session(job, place, outputs, directory, store, self.interrupt).train()
        if report.interrupt is not None:
            logger.info("stopped by %s", report.interrupt.name)
            return None
        assert report.completion is not None
        return succeeded(str(report.completion["reason"]), self.owner.token)

    def _archive(self, place: ClusterPlace, store: CheckpointStore) -> None:
        if place.ray_logs is None:
            return
        try:
            store.guard()
        except (FencedError, OSError):
            return  # another driver's logs are there by now, or nothing can be written
        archive_logs(place.ray_logs, store.storage, self.settings.attempt)

    @staticmethod
    def _note_checkpoint(store: CheckpointStore, board: AttemptBoard) -> None:
        for info in store.list()[-1:]:
            board.note_checkpoint(location=info.location, timesteps=info.timesteps, time_s=info.wall_time_s)

    def _log(self, error: Exception, final: FinalStatus) -> None:
        # A user's mistake needs no traceback.
        logger.error("%s", final.message, exc_info=None if isinstance(error, UserError) else error)

    def _record(self, job: RLJob | None, final: FinalStatus) -> None:
        """Leaves the failure beside the checkpoints, if there is a place for it."""
        if final.exit_code == EXIT_FENCED:
            return  # what is there is another driver's now
        record = FailureRecord(
            attempt=self.settings.attempt,
            token=self.owner.token,
            exit_code=final.exit_code,
            failure_class=final.failure_class,
            message=final.message,
            log_tail=self.tail.text(),
            time_s=time.time(),
        )
        try:
            location = self._location(job)
            if location is not None:
                write_failure(open_storage(location), record)
        except (OSError, UserError) as error:
            logger.warning("the failure record is not written: %s", error)

    def _location(self, job: RLJob | None) -> str | None:
        """Where the job's checkpoints are; of a manifest that is not valid only a claim's place is known."""
        if job is not None:
            return self.settings.run_directory(job).checkpoints
        name = self._name()
        return str(self.settings.checkpoints / name) if self.settings.checkpoints and name else None

    def _name(self) -> str | None:
        """metadata.name of a manifest that may be wrong everywhere else."""
        try:
            name = yaml.safe_load((self.settings.config / MANIFEST_FILE).read_bytes())["metadata"]["name"]
        except (OSError, yaml.YAMLError, ValueError, KeyError, TypeError):
            return None
        return name if isinstance(name, str) and re.fullmatch(DNS_LABEL, name) else None
