"""From an RLJob to the objects of one attempt: RayJob, ConfigMap, PersistentVolumeClaim. Pure."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from rlcore.api import RLJob
from rlcore.api.checkpoint import NewClaim
from rlcore.api.yaml_text import dump_yaml
from rljob_operator import names
from rljob_operator.pods import Context, head_template, learner_template, pool_template
from rljob_operator.pools import GroupSize, group_sizes, is_autoscaled
from rljob_operator.settings import Settings

ENTRYPOINT = "python -m rlcore.driver"
RAY_JOB_TTL_S = 60
"""The operator reads the result and deletes the RayJob well before."""

LIVE_FIELDS = frozenset(
    {
        "stop",
        "suspend",
        "budget",
        "restart_policy",
        "ttl_after_finished",
        "ttl_after_failed",
        "active_deadline",
        "provisioning_deadline",
        "stall_timeout",
    }
)
"""Fields of spec that apply to a running attempt; a change of any other one needs new pods."""

LIVE_POOL_FIELDS = frozenset({"min_replicas", "max_replicas"})


def spec_hash(job: RLJob) -> str:
    """Digest of what an attempt's pods are made from: inputs of the manifest, never rendered output.

    Fields that the manifest leaves out do not count, so that an operator with new defaults re-provisions nothing.
    """
    inputs = job.spec.model_dump(mode="json", exclude_unset=True, exclude=set(LIVE_FIELDS))
    evaluators = inputs.pop("evaluators", {})
    evaluators.pop("replicas", None)
    for pool in evaluators.get("pools", []):
        for field in LIVE_POOL_FIELDS:
            pool.pop(field, None)
    if evaluators:  # `kubectl scale` adds the field to a manifest that has none
        inputs["evaluators"] = evaluators
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]


def config_hash(config: Mapping[str, Any]) -> str:
    """Digest of resolved hyper-parameters."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def ray_job(
    job: RLJob, attempt: int, settings: Settings, *, unavailable: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """The RayJob of an attempt.

    Raises:
        ValueError: a podTemplate cannot be merged, or an affinity is none; the text names the field.
    """
    name = job.metadata.name
    labels = names.labels(name, attempt=attempt) | names.scheduler_labels(job.metadata.labels)
    spec: dict[str, Any] = {
        "entrypoint": ENTRYPOINT,
        "submissionMode": "HTTPMode",
        "backoffLimit": 0,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": RAY_JOB_TTL_S,
        "rayClusterSpec": ray_cluster_spec(job, attempt, settings, unavailable=unavailable),
    }
    if job.spec.runtime_env:
        spec["runtimeEnvYAML"] = yaml.safe_dump(job.spec.runtime_env, sort_keys=True)
    if is_queued(job):
        spec["suspend"] = True  # the queue admits it by taking this away
    return {
        "apiVersion": f"{names.RAY_GROUP}/{names.RAY_VERSION}",
        "kind": "RayJob",
        "metadata": {
            "name": names.ray_job_name(name, attempt),
            "namespace": job.metadata.namespace,
            "labels": labels,
            "annotations": {
                names.ANNOTATION_SPEC_HASH: spec_hash(job),
                names.ANNOTATION_RANGES: str(is_autoscaled(job.spec, enabled=True, queued=is_queued(job))).lower(),
            },
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


_TEMPLATE = re.compile(
    r"spec\.rayClusterSpec\.(?:headGroupSpec|workerGroupSpecs\[(\d+)\])\.template"
    r"(?:\.spec\.(affinity|nodeSelector|tolerations|topologySpreadConstraints|priorityClassName)\b)?"
)

_CLAIM_FIELDS = {
    "spec.resources[storage]": "size",
    "spec.resources.requests[storage]": "size",
    "spec.resources.requests.storage": "size",
    "spec.storageClassName": "storageClassName",
    "spec.accessModes": "accessMode",
}
_CLAIM = re.compile("|".join(map(re.escape, _CLAIM_FIELDS)))


def in_terms_of(job: RLJob, problem: str) -> str:
    """What is said of a RayJob or of a claim, with the fields of the RLJob that it comes from."""

    def field(found: re.Match[str]) -> str:
        pools = len(job.spec.evaluators.pools)
        index = None if found[1] is None else int(found[1])
        group = "head" if index is None else f"evaluators.pools[{index}]" if index < pools else "learner"
        return f"spec.{group}.{found[2] or 'podTemplate'}"

    if job.spec.checkpoint.storage.new_claim is not None:
        problem = _CLAIM.sub(lambda found: f"spec.checkpoint.storage.newClaim.{_CLAIM_FIELDS[found[0]]}", problem)
    return _TEMPLATE.sub(field, problem)


def is_queued(job: RLJob) -> bool:
    """Whether Kueue decides when the job starts."""
    return names.QUEUE_LABEL in job.metadata.labels


def ray_cluster_spec(
    job: RLJob, attempt: int, settings: Settings, *, unavailable: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Head, evaluator pools in the manifest's order, learner last."""
    autoscaled = is_autoscaled(job.spec, enabled=settings.autoscaler.enabled, queued=is_queued(job))
    context = Context(job, attempt, settings, autoscaled)
    sizes = group_sizes(job.spec, autoscaled=autoscaled, unavailable=unavailable)
    groups = []
    for pool in job.spec.evaluators.pools:
        evaluators = str(pool.evaluators_per_pod)
        resources = {"CPU": _number(pool.resources.cpu_cores), "evaluator": evaluators, f"pool-{pool.name}": evaluators}
        group = _group(pool.name, sizes[pool.name], resources, pool_template(context, pool))
        if autoscaled and settings.autoscaler.version == "v2":
            group["idleTimeoutSeconds"] = pool.idle_timeout_s
        groups.append(group)
    learner = job.spec.learner
    resources = {"CPU": _number(learner.resources.cpu_cores), names.LEARNER: "1"}
    if learner.gpus:
        resources["GPU"] = str(learner.gpus)
    groups.append(_group(names.LEARNER, sizes[names.LEARNER], resources, learner_template(context)))
    spec: dict[str, Any] = {
        "rayVersion": job.spec.ray_version or settings.ray_version,
        "headGroupSpec": {
            "rayStartParams": {},
            "resources": {"CPU": "0", names.HEAD: "1"},
            "template": head_template(context),
        },
        "workerGroupSpecs": groups,
    }
    if settings.auth_mode == "token":
        spec["authOptions"] = {"mode": "token"}
    if autoscaled:
        spec["enableInTreeAutoscaling"] = True
        spec["autoscalerOptions"] = context.autoscaler_options()
    return spec


def _group(name: str, size: GroupSize, resources: dict[str, str], template: dict[str, Any]) -> dict[str, Any]:
    return {
        "groupName": name,
        "replicas": size.replicas,
        "minReplicas": size.minimum,
        "maxReplicas": size.maximum,
        "rayStartParams": {},
        "resources": resources,
        "template": template,
    }


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def owner_reference(job: RLJob) -> dict[str, Any]:
    """The job as owner; deletion of the job is never blocked by what it owns."""
    return {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": names.KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def frozen_config(job: RLJob) -> dict[str, Any]:
    """Hyper-parameters with all defaults, as they are when the job first starts; and the optimizer by name."""
    config = job.spec.config.model_dump(mode="json", by_alias=True)
    return {"config": config, "optimizer": job.spec.resolved_optimizer}


def job_document(job: RLJob, frozen: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest that the driver reads: the user's fields, with the hyper-parameters of the first start."""
    spec = job.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": names.KIND,
        "metadata": {"name": job.metadata.name, "namespace": job.metadata.namespace, "uid": job.metadata.uid},
        "spec": {**spec, **frozen},
    }


def control_document(
    job: RLJob,
    attempt: int,
    sizes: Mapping[str, GroupSize],
    *,
    checkpoint_request: str | None,
    pause: bool,
    final_observed: str | None,
) -> dict[str, Any]:
    """What a running driver follows.

    Args:
        job: the manifest.
        attempt: its number.
        sizes: of each pool at present: where another one makes up for it, not what the manifest says.
        checkpoint_request: token of a checkpoint to write now.
        pause: whether not to train on after it.
        final_observed: token of the driver whose end the operator has stored.
    """
    pools = {
        pool.name: {"minReplicas": sizes[pool.name].minimum, "maxReplicas": sizes[pool.name].maximum}
        for pool in job.spec.evaluators.pools
    }
    return {
        "version": 1,
        "attempt": attempt,
        "stop": job.spec.stop.model_dump(mode="json", by_alias=True, exclude_unset=True),
        "evaluators": {"replicas": job.spec.evaluators.replicas, "pools": pools},
        "checkpointRequest": checkpoint_request,
        "pause": pause,
        "finalObserved": final_observed,
    }


def config_map(job: RLJob, document: Mapping[str, Any], control: Mapping[str, Any]) -> dict[str, Any]:
    """The ConfigMap that is mounted into the head pod."""
    name = job.metadata.name
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.config_map_name(name),
            "namespace": job.metadata.namespace,
            "labels": names.labels(name),
            "ownerReferences": [owner_reference(job)],
        },
        "data": {
            "job.yaml": _as_yaml(json.dumps(document)),
            "control.json": json.dumps(control, indent=1, sort_keys=True),
        },
    }


@functools.lru_cache(maxsize=1024)
def _as_yaml(document: str) -> str:
    """JSON as YAML. Every look at a job wants its ConfigMap, which seldom changes."""
    return dump_yaml(json.loads(document))


def claim(job: RLJob, settings: Settings) -> dict[str, Any] | None:
    """The claim to make for checkpoints; None where the manifest names a place of its own."""
    storage = job.spec.checkpoint.storage
    if storage.path or storage.uri or storage.persistent_volume_claim:
        return None
    default = settings.default_claim
    wanted = storage.new_claim or NewClaim(
        size=default.size, storage_class_name=default.storage_class_name, access_mode=default.access_mode
    )
    spec: dict[str, Any] = {
        "accessModes": [wanted.access_mode],
        "resources": {"requests": {"storage": wanted.size}},
    }
    if wanted.storage_class_name:
        spec["storageClassName"] = wanted.storage_class_name
    metadata: dict[str, Any] = {
        "name": names.claim_name(job.metadata.name),
        "namespace": job.metadata.namespace,
        "labels": names.labels(job.metadata.name),
    }
    if wanted.on_delete == "Delete":
        metadata["ownerReferences"] = [owner_reference(job)]
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
