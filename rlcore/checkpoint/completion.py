"""The record that a job leaves when it is finished, so that it is never trained twice."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from rlcore.checkpoint.manifest import COMPLETION_FILE
from rlcore.checkpoint.store import CheckpointStore, require_same_job
from rlcore.errors import CheckpointError

logger = logging.getLogger("rlcore.checkpoint")


def write_completion(store: CheckpointStore, record: Mapping[str, Any]) -> None:
    """Write the final status of a finished job beside its checkpoints, whole or not at all.

    The store's identity is added as "identity", so that another job of the same name does not take it for its own.
    NaN and infinities become null: a whole run's result is not lost to one number that JSON lacks.

    Raises:
        CheckpointError: it could not be written.
    """
    data = json.dumps(_finite({**record, "identity": store.identity}), indent=2, allow_nan=False).encode() + b"\n"
    try:
        store.guard()
        store.storage.publish(COMPLETION_FILE, data)
    except OSError as error:
        raise CheckpointError(
            f"the job is finished, and {store.location}/{COMPLETION_FILE} cannot be written: {error}",
            hint="free some space or restore access, then run again: it resumes at its end and writes the record",
        ) from error


def read_completion(store: CheckpointStore) -> dict[str, Any] | None:
    """The record of a finished job; None where there is none, or (with a warning) where it cannot be understood.

    Raises:
        CheckpointError: it belongs to another job, or the storage cannot be read.
    """
    try:
        data = store.storage.read(COMPLETION_FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(
            f"cannot read {store.location}/{COMPLETION_FILE}: {error}",
            hint="check that spec.checkpoint.storage can be reached and read, then run again",
        ) from error
    try:
        record = json.loads(data)
    except ValueError:
        record = None
    # rlcore's first records have no identity.
    if not isinstance(record, dict) or not isinstance(record.get("identity", {}), dict):
        logger.warning("%s/%s is not a completion record and is ignored", store.location, COMPLETION_FILE)
        return None
    if "identity" in record:
        require_same_job(f"{store.location}/{COMPLETION_FILE}", record["identity"], _finite(store.identity))
    return record


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
