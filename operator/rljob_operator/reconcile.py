"""The shell around `decide`: observe, decide, write the status, act. Safe to run at any time, any number of times."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from typing import Any

import yaml

from rlcore.api import RLJob
from rljob_operator import names
from rljob_operator.actions import (
    Action,
    ApplyClaim,
    ApplyConfigMap,
    CreateRayJob,
    DeleteJob,
    DeleteRayJob,
    ForceDeletePod,
    PatchRayCluster,
    TouchPod,
    TryRayJob,
)
from rljob_operator.cache import Cache, JobKey, JobRecord, Rejection
from rljob_operator.decide import decide
from rljob_operator.draft import Decision, merge_patch
from rljob_operator.endings import IN_ORDER
from rljob_operator.events import EventRecorder
from rljob_operator.kube import ApiError, Kube
from rljob_operator.metrics import PREEMPTIONS, RESTARTS, STATUS_WRITES
from rljob_operator.observed import Manifest, Observed
from rljob_operator.provision import spec_hash
from rljob_operator.refusals import NAME_TAKEN, REFUSED, note_accepted, note_refusal
from rljob_operator.served import Served
from rljob_operator.settings import Settings
from rljob_operator.timestamps import to_seconds
from rljob_operator.understood import as_it_was, understood

logger = logging.getLogger("rljob_operator")

JOBS = f"apis/{names.GROUP}/{names.VERSION}"
RAY = f"apis/{names.RAY_GROUP}/{names.RAY_VERSION}"
CORE = "api/v1"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml takes a tenth of the time
AT_ONCE_S = 0.05
"""What was refused is written down."""


class Reconciler:
    """Works on one job at a time; what it knows beyond the cache is only what saves requests."""

    def __init__(self, kube: Kube, cache: Cache, events: EventRecorder, served: Served, settings: Settings) -> None:
        self._kube, self._cache, self._events = kube, cache, events
        self._served, self._settings = served, settings

    async def reconcile(self, key: JobKey) -> float | None:
        """Brings one job forward; seconds until it must be looked at again, None: never.

        Raises:
            ApiError: a request failed; nothing is lost, the job is to be looked at again.
        """
        record = self._cache.records.get(key)
        if record is None or record.raw is None:
            self._cache.drop_if_empty(key)
            return None
        observed = await self._observe(key, record)
        decision = decide(observed, self._settings)
        if not await self._write_status(key, record, decision):
            return decision.requeue_s  # deleted: the watch is about to say so
        for event in decision.events:
            self._events.emit(record.raw or observed.raw, event, observed.now_s)
        for action in decision.actions:
            try:
                await self._act(key, record, action)
            except ApiError as error:
                news = note_refusal(record, action, error)
                if news is None:
                    raise
                if news:
                    logger.warning("job=%s/%s refused: %s", key.namespace, key.name, error)
                return AT_ONCE_S if news else decision.requeue_s
        return decision.requeue_s

    # observe --------------------

    async def _observe(self, key: JobKey, record: JobRecord) -> Observed:
        raw = record.raw
        assert raw is not None
        job, problem = understood(record)
        status = raw.get("status") or {}
        attempt = status.get("attempt")
        current = names.ray_job_name(key.name, attempt) if attempt else ""
        ray_jobs = dict(record.ray_jobs)
        if status.get("rayJob") and current not in ray_jobs and not (status.get("attempts") or [{}])[-1].get("endedAt"):
            # Absence decides much, and a watch that has just begun may not have told yet.
            found = await self._kube.get(RAY, "rayjobs", key.namespace, current)
            if found is not None:
                self._cache.take_ray_job(found, deleted=False)
                ray_jobs = dict(record.ray_jobs)
            else:
                await self._served.look()  # is it the RayJob that is gone, or KubeRay?
        ours = {name: found for name, found in ray_jobs.items() if _is_owned(found, raw)}
        ray_job = ours.pop(current, None)
        cluster_name = ((ray_job or {}).get("status") or {}).get("rayClusterName")
        if attempt and record.frozen is None:
            record.frozen = await self._frozen(key, raw)
        if job is None and attempt:
            job = await self._as_it_was(key, record)
        report, rejected = record.report, await self._rejection(key, record, current)
        return Observed(
            raw=raw,
            job=job,
            problem=problem,
            ray_job=ray_job,
            old_ray_jobs=tuple(ours.values()),
            ray_cluster=record.ray_clusters.get(str(cluster_name)),
            pods=tuple(record.pods.values()),
            lost=tuple(record.lost.values()),
            report=report if report is not None and report.attempt == attempt else None,
            kuberay=self._served.kuberay,
            rejected=rejected.message if rejected else "",
            rejected_reason=rejected.reason if rejected else "",
            forbidden=record.forbidden,
            try_again=rejected is not None and time.time() - rejected.time_s > self._settings.times.try_refused_again_s,
            drivers_answer=self._cache.others_answer(key, time.time()),
            accepted=job is None or record.accepted == spec_hash(job),
            frozen=record.frozen,
            now_s=time.time(),
        )

    async def _rejection(self, key: JobKey, record: JobRecord, ray_job: str) -> Rejection | None:
        """What the API server has against this very manifest, as far as is known."""
        found = record.rejected
        assert record.raw is not None
        if found is None or found.generation != _generation(record.raw):
            return None
        if found.reason == NAME_TAKEN and await self._is_free(key, ray_job):
            record.rejected = None
        return record.rejected

    async def _is_free(self, key: JobKey, ray_job: str) -> bool:
        """Whether nothing of somebody else's has a name that the job needs."""
        wanted = ((RAY, "rayjobs", ray_job), (CORE, "configmaps", names.config_map_name(key.name)))
        record = self._cache.records[key]
        assert record.raw is not None
        for group, resource, name in wanted:
            found = await self._kube.get(group, resource, key.namespace, name)
            if found is not None and not _is_owned(found, record.raw):
                return False
        return True

    async def _as_it_was(self, key: JobKey, record: JobRecord) -> RLJob | None:
        """What a running attempt was made from, where the manifest is not valid any more."""
        assert record.raw is not None
        if record.valid is not None:
            return as_it_was(record.raw, record.valid.spec.model_dump(mode="json", by_alias=True, exclude_unset=True))
        found = await self._kube.get(CORE, "configmaps", key.namespace, names.config_map_name(key.name))
        try:
            return as_it_was(record.raw, yaml.load(((found or {}).get("data") or {})["job.yaml"], _LOADER)["spec"])
        except (yaml.YAMLError, KeyError, TypeError):
            return None

    async def _frozen(self, key: JobKey, raw: Manifest) -> Mapping[str, Any] | None:
        """The hyper-parameters that the job's ConfigMap holds since its first start."""
        found = await self._kube.get(CORE, "configmaps", key.namespace, names.config_map_name(key.name))
        if found is None or not _is_owned(found, raw):
            return None
        try:
            return _frozen_in((found.get("data") or {}).get("job.yaml", ""))
        except (yaml.YAMLError, KeyError, TypeError):
            return None  # somebody edited it; the manifest still has what the user wrote

    # write --------------------

    async def _write_status(self, key: JobKey, record: JobRecord, decision: Decision) -> bool:
        """Writes what is new; whether the job is still there."""
        assert record.raw is not None
        old = record.raw.get("status") or {}
        patch = merge_patch(old, decision.status)
        if not patch:
            return True
        if not record.written_s:  # by the operator that was here before
            record.written_s = to_seconds((old.get("training") or {}).get("observedAt")) or 0.0
        live = merge_patch(lasting(old), lasting(decision.status)) == {}
        # Nothing that is to be done depends on numbers alone, and they change all the time.
        if live and time.time() - record.written_s < self._settings.times.live_status_s and _has_numbers(old):
            return True
        uid = record.raw["metadata"]["uid"]
        # With the version it was decided by: a write that comes late must not undo what a successor wrote.
        body = {"metadata": {"uid": uid, "resourceVersion": record.raw["metadata"]["resourceVersion"]}, "status": patch}
        try:
            written = await self._kube.patch(JOBS, names.PLURAL, key.namespace, key.name, body, subresource="status")
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        record.written_s = time.time()
        STATUS_WRITES.labels(kind="live" if live else "transition").inc()
        _count(old, decision.status)
        self._cache.take_job(written, deleted=False)
        if old.get("phase") != decision.status.get("phase"):
            logger.info("job=%s/%s phase=%s", key.namespace, key.name, decision.status.get("phase"))
        return True

    # act --------------------

    async def _act(self, key: JobKey, record: JobRecord, action: Action) -> None:
        kube, namespace = self._kube, key.namespace
        match action:
            case ApplyConfigMap(manifest):
                await self._apply_once(key, record, manifest)
                if record.frozen is None:
                    record.frozen = _frozen_in(manifest["data"]["job.yaml"])
            case ApplyClaim(manifest):
                await self._create_claim(namespace, manifest)
            case CreateRayJob(manifest):
                await self._create_ray_job(key, record, manifest)
            case TryRayJob(manifest):
                await self._try_ray_job(record, manifest)
            case DeleteRayJob(name, uid):
                logger.info("job=%s/%s deletes RayJob %s", namespace, key.name, name)
                await kube.delete(RAY, "rayjobs", namespace, name, uid=uid)
            case PatchRayCluster(name, patch):
                try:
                    changed = await kube.patch(RAY, "rayclusters", namespace, name, patch)
                    self._cache.take_ray_cluster(changed, deleted=False)
                except ApiError as error:
                    if error.code not in (404, *REFUSED):
                        raise
                    # A test failed: the groups are not what they were. Their watch tells, then it is decided anew.
                    logger.info("job=%s/%s resize put off: %s", namespace, key.name, error)
            case TouchPod(name):
                annotation = {"metadata": {"annotations": {names.ANNOTATION_TOUCHED: _digest(record.applied)}}}
                pod = record.pods.get(name)
                touched = ((pod or {}).get("metadata", {}).get("annotations") or {}).get(names.ANNOTATION_TOUCHED)
                if touched != _digest(record.applied):
                    await self._ignore_gone(kube.patch(CORE, "pods", namespace, name, annotation))
            case ForceDeletePod(name, uid):
                logger.warning("job=%s/%s force-deletes pod %s of a dead node", namespace, key.name, name)
                await kube.delete(CORE, "pods", namespace, name, uid=uid, grace_s=0)
            case DeleteJob(uid):
                logger.info("job=%s/%s deleted: its time to live is over", namespace, key.name)
                await kube.delete(JOBS, names.PLURAL, namespace, key.name, uid=uid)

    async def _apply_once(self, key: JobKey, record: JobRecord, manifest: Manifest) -> None:
        assert record.raw is not None
        name, digest = manifest["metadata"]["name"], _digest(manifest)
        if record.applied.get(name) == digest:
            return
        if name not in record.applied:
            found = await self._kube.get(CORE, "configmaps", key.namespace, name)
            if found is not None and not _is_owned(found, record.raw):
                raise _not_ours(key, found, "ConfigMap")
        await self._kube.apply(CORE, "configmaps", manifest)
        record.applied[name] = digest

    async def _create_claim(self, namespace: str, manifest: Manifest) -> None:
        """Most of a claim cannot be changed: one that is there is used as it is."""
        try:
            await self._kube.create(CORE, "persistentvolumeclaims", manifest)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return
            name = manifest["metadata"]["name"]
            # A quota that is used up speaks before anybody looks whether the name is taken.
            if error.code != 403 or await self._kube.get(CORE, "persistentvolumeclaims", namespace, name) is None:
                raise

    async def _create_ray_job(self, key: JobKey, record: JobRecord, manifest: Manifest) -> None:
        assert record.raw is not None
        name = manifest["metadata"]["name"]
        try:
            created: Manifest | None = await self._kube.create(RAY, "rayjobs", manifest)
            logger.info("job=%s/%s created RayJob %s", key.namespace, key.name, name)
        except ApiError as error:
            if error.code == 404:
                self._served.doubt()  # it was removed, or the namespace is being deleted
            if error.reason != "AlreadyExists":
                raise
            created = await self._kube.get(RAY, "rayjobs", key.namespace, name)
            if created is not None and not _is_owned(created, record.raw):
                raise _not_ours(key, created, "RayJob") from error
        note_accepted(record, manifest)
        if created:
            self._cache.take_ray_job(created, deleted=False)

    async def _try_ray_job(self, record: JobRecord, manifest: Manifest) -> None:
        """Whether it could be made: a name or a quota that is used up says nothing of the manifest."""
        try:
            await self._kube.create(RAY, "rayjobs", manifest, on_trial=True)
        except ApiError as error:
            if error.code not in (403, 409):
                raise
        note_accepted(record, manifest)

    async def _ignore_gone(self, request: Any) -> None:
        try:
            await request
        except ApiError as error:
            if error.code != 404:
                raise


def lasting(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status without the numbers that change all the time."""
    result = {key: value for key, value in status.items() if key not in ("training", "checkpoint", "cost")}
    result["hasNumbers"] = _has_numbers(status)
    return result


def _has_numbers(status: Mapping[str, Any]) -> bool:
    return bool(status.get("training"))


def _frozen_in(text: str) -> dict[str, Any]:
    """The hyper-parameters in job.yaml of a ConfigMap. Raises YAMLError, KeyError, TypeError."""
    spec = yaml.load(text, _LOADER)["spec"]
    return {"config": spec["config"], "optimizer": spec["optimizer"]}


def _count(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    preempted = (new.get("preemptions") or 0) - (old.get("preemptions") or 0)
    if preempted > 0:
        PREEMPTIONS.inc(preempted)
    before = {a["number"] for a in old.get("attempts") or [] if a.get("endedAt")}
    for attempt in new.get("attempts") or []:
        is_new = attempt.get("endedAt") and attempt["number"] not in before
        if is_new and attempt.get("reason") not in IN_ORDER:
            RESTARTS.labels(reason=attempt.get("reason") or "Unknown").inc()


def _not_ours(key: JobKey, found: Manifest, kind: str) -> ApiError:
    """Why an object that is there already is not the one to make."""
    name = found["metadata"]["name"]
    labels = found["metadata"].get("labels") or {}
    if labels.get(names.LABEL_MANAGED_BY) == names.FIELD_MANAGER and labels.get(names.LABEL_JOB) == key.name:
        return ApiError(409, "Conflict", f"{kind} {name} of an earlier job of this name is not gone yet")
    text = f"metadata.name: {kind} {name} is there already and belongs to something else: delete it, or rename the job"
    return ApiError(409, NAME_TAKEN, text)


def _is_owned(found: Manifest, job: Manifest) -> bool:
    uid = job["metadata"].get("uid")
    return any(owner.get("uid") == uid for owner in found["metadata"].get("ownerReferences") or [])


def _generation(raw: Manifest) -> int:
    return int(raw["metadata"].get("generation") or 0)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
