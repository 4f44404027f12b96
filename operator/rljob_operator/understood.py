"""What people wrote, understood: the RLJob of an object of the API server, or why it is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from rlcore.api import RLJob
from rlcore.errors import UserError
from rljob_operator import names
from rljob_operator.cache import JobRecord
from rljob_operator.observed import Manifest


def understood(record: JobRecord) -> tuple[RLJob | None, str]:
    """`parse` of a record's RLJob, which takes milliseconds, once for each generation."""
    raw = record.raw
    assert raw is not None
    version = (raw["metadata"].get("generation"), raw["metadata"].get("labels"))
    if record.parsed is None or record.parsed[0] != version:
        record.parsed = (version, parse(raw))
    job, problem = record.parsed[1]
    if job is not None:
        record.valid = job
    return job, problem


def parse(raw: Manifest) -> tuple[RLJob | None, str]:
    """An RLJob of the API server, or what is wrong with it, as `rlcore validate` says it."""
    metadata = raw["metadata"]
    document = {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": names.KIND,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "labels": metadata.get("labels") or {},
        },
        "spec": raw.get("spec") or {},
    }
    try:
        return RLJob.model_validate(document, by_alias=True, by_name=False, context={"manifest": True}), ""
    except ValidationError as error:
        from rlcore.api.explain import explain_value  # which makes the whole schema

        return None, "; ".join(explain_value(error, document))
    except UserError as error:
        return None, str(error)


def as_it_was(raw: Manifest, spec: Mapping[str, Any]) -> RLJob | None:
    """The job by the spec of its running attempt, once its manifest is invalid; suspend is obeyed all the same."""
    now = raw.get("spec") or {}
    return parse({**raw, "spec": {**spec, "suspend": now.get("suspend") is True}})[0]
