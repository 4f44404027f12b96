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
from rljob_operator.provision import is_queued

KUEUE_GROUPS = 7
"""Worker groups of a RayJob: a Workload has eight pod sets, and one is the head's."""


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
        job = RLJob.model_validate(document, by_alias=True, by_name=False, context={"manifest": True})
        return (None, problem) if (problem := _unsupported(job)) else (job, "")
    except ValidationError as error:
        from rlcore.api.explain import explain_value  # which makes the whole schema

        return None, "; ".join(explain_value(error, document))
    except UserError as error:
        return None, str(error)


def _unsupported(job: RLJob) -> str:
    """What the schema allows and no cluster runs; better said now than by a driver on paid nodes."""
    groups = len(job.spec.evaluators.pools) + 1
    if is_queued(job) and groups > KUEUE_GROUPS:
        return (
            f"spec.evaluators.pools: {groups - 1} pools and the learner are more than the {KUEUE_GROUPS} groups of "
            f"pods that Kueue admits; join pools, or remove the label {names.QUEUE_LABEL}"
        )
    if job.spec.learner.replicas > 1:
        return (
            f"spec.learner.replicas: {job.spec.resolved_optimizer} uses the devices of one learner; set it to 1, and "
            "spec.learner.gpus to the GPUs of that pod"
        )
    if job.spec.population is not None:
        return "spec.population: a population does not train in a cluster yet; remove it to train a single trial"
    return ""


def as_it_was(raw: Manifest, spec: Mapping[str, Any]) -> RLJob | None:
    """The job by the spec of its running attempt, once its manifest is invalid; suspend is obeyed all the same."""
    now = raw.get("spec") or {}
    return parse({**raw, "spec": {**spec, "suspend": now.get("suspend") is True}})[0]
