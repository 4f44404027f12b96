"""The record that a failed attempt leaves beside the checkpoints, for whoever decides about the next one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rlcore.checkpoint.storage import Storage


@dataclass(frozen=True)
class FailureRecord:
    """How an attempt failed.

    Attributes:
        attempt: its number, from 1.
        token: of the driver, as in owner.json.
        exit_code: of the driver's process.
        failure_class: ConfigInvalid, ApplicationFailed, OutOfMemory or EvaluatorsLost.
        message: what a person needs to know.
        log_tail: the last lines of the driver's log.
        time_s: when, in seconds since 1970.
    """

    attempt: int
    token: str
    exit_code: int
    failure_class: str
    message: str
    log_tail: str
    time_s: float


def failure_file(attempt: int) -> str:
    """Name of an attempt's record."""
    return f"failure-{attempt}.json"


def write_failure(storage: Storage, record: FailureRecord) -> None:
    """Writes the record, whole or not at all.

    Raises:
        OSError: the storage cannot be written.
    """
    storage.publish(failure_file(record.attempt), json.dumps(asdict(record), indent=2).encode() + b"\n")
