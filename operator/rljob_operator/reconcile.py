"""The shell around `decide`: observe, decide, write the status, act. Safe to run at any time, any number of times."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from rlcore.api import RLJob
from rlcore.errors import UserError
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
)
from rljob_operator.cache import Cache, JobKey, JobRecord
from rljob_operator.decide import decide
from rljob_operator.draft import Decision, merge_patch
from rljob_operator.events import EventRecorder
from rljob_operator.kube import ApiError, Kube
from rljob_operator.metrics import PREEMPTIONS, RESTARTS, STATUS_WRITES
from rljob_operator.observed import Manifest, Observed
from rljob_operator.settings import Settings

logger = logging.getLogger("rljob_operator")

JOBS = f"apis/{names.GROUP}/{names.VERSION}"
RAY = f"apis/{names.RAY_GROUP}/{names.RAY_VERSION}"
CORE = "api/v1"

KUBERAY_CHECK_S = 10.0
REFUSED = (400, 422)
"""The object itself is wrong: trying again changes nothing."""


class Reconciler:
    """Works on one job at a time; what it knows beyond the cache is only what saves requests."""

    def __init__(self, kube: Kube, cache: Cache, events: EventRecorder, settings: Settings) -> None:
        self._kube, self._cache, self._events, self._settings = kube, cache, events, settings
        self._kuberay_seen_s = float("-inf")
        self._kuberay = False

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
        await self._write_status(key, record, decision)
        for event in decision.events:
            await self._events.emit(record.raw or observed.raw, event, observed.now_s)
        for action in decision.actions:
            await self._act(key, record, action)
        return decision.requeue_s

    # observe --------------------

    async def _observe(self, key: JobKey, record: JobRecord) -> Observed:
        raw = record.raw
        assert raw is not None
        job, problem = parse(raw)
        status = raw.get("status") or {}
        attempt = status.get("attempt")
        current = names.ray_job_name(key.name, attempt) if attempt else ""
        ray_jobs = dict(record.ray_jobs)
        if status.get("rayJob") and current and current not in ray_jobs:
            # Absence decides much, and a watch that has just begun may not have told yet.
            found = await self._kube.get(RAY, "rayjobs", key.namespace, current)
            if found is not None:
                self._cache.take_ray_job(found, deleted=False)
                ray_jobs = dict(record.ray_jobs)
        ours = {name: found for name, found in ray_jobs.items() if _is_owned(found, raw)}
        ray_job = ours.pop(current, None)
        cluster_name = ((ray_job or {}).get("status") or {}).get("rayClusterName")
        if attempt and record.frozen is None:
            record.frozen = await self._frozen(key, raw)
        report = record.report
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
            kuberay=await self._has_kuberay(),
            rejected=record.rejected[1] if record.rejected and record.rejected[0] == _generation(raw) else "",
            frozen=record.frozen,
            now_s=time.time(),
        )

    async def _frozen(self, key: JobKey, raw: Manifest) -> Mapping[str, Any] | None:
        """The hyper-parameters that the job's ConfigMap holds since its first start."""
        found = await self._kube.get(CORE, "configmaps", key.namespace, names.config_map_name(key.name))
        if found is None or not _is_owned(found, raw):
            return None
        try:
            spec = yaml.safe_load((found.get("data") or {}).get("job.yaml", ""))["spec"]
            return {"config": spec["config"], "optimizer": spec["optimizer"]}
        except (yaml.YAMLError, KeyError, TypeError):
            return None  # somebody edited it; the manifest still has what the user wrote

    async def _has_kuberay(self) -> bool:
        """Whether RayJobs are served: looked up every ten seconds while they are not, every minute while they are."""
        age_s = time.monotonic() - self._kuberay_seen_s
        if age_s > (60.0 if self._kuberay else KUBERAY_CHECK_S / 2):
            self._kuberay = await self._kube.exists(RAY)
            self._kuberay_seen_s = time.monotonic()
        return self._kuberay

    # write --------------------

    async def _write_status(self, key: JobKey, record: JobRecord, decision: Decision) -> None:
        assert record.raw is not None
        old = record.raw.get("status") or {}
        patch = merge_patch(old, decision.status)
        if not patch:
            return
        live = merge_patch(lasting(old), lasting(decision.status)) == {}
        # Nothing that is to be done depends on numbers alone, and they change all the time.
        if live and time.time() - record.written_s < self._settings.times.live_status_s and _has_numbers(old):
            return
        uid = record.raw["metadata"]["uid"]
        body = {"metadata": {"uid": uid}, "status": patch}
        try:
            written = await self._kube.patch(JOBS, names.PLURAL, key.namespace, key.name, body, subresource="status")
        except ApiError as error:
            if error.code == 404 or error.code == 409:
                return  # deleted, or made anew: the watch is about to say so
            raise
        record.written_s = time.time()
        STATUS_WRITES.labels(kind="live" if live else "transition").inc()
        _count(old, decision.status)
        self._cache.take_job(written, deleted=False)
        if old.get("phase") != decision.status.get("phase"):
            logger.info("job=%s/%s phase=%s", key.namespace, key.name, decision.status.get("phase"))

    # act --------------------

    async def _act(self, key: JobKey, record: JobRecord, action: Action) -> None:
        kube, namespace = self._kube, key.namespace
        match action:
            case ApplyConfigMap(manifest):
                await self._apply_once(record, "configmaps", manifest)
                if record.frozen is None:
                    spec = yaml.safe_load(manifest["data"]["job.yaml"])["spec"]
                    record.frozen = {"config": spec["config"], "optimizer": spec["optimizer"]}
            case ApplyClaim(manifest):
                # Most of a claim cannot be changed: one that is there is used as it is.
                found = await kube.get(CORE, "persistentvolumeclaims", namespace, manifest["metadata"]["name"])
                if found is None:
                    await self._apply_once(record, "persistentvolumeclaims", manifest)
            case CreateRayJob(manifest):
                await self._create_ray_job(key, record, manifest)
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

    async def _apply_once(self, record: JobRecord, resource: str, manifest: Manifest) -> None:
        name, digest = f"{resource}/{manifest['metadata']['name']}", _digest(manifest)
        if record.applied.get(name) != digest:
            await self._kube.apply(CORE, resource, manifest)
            record.applied[name] = digest

    async def _create_ray_job(self, key: JobKey, record: JobRecord, manifest: Manifest) -> None:
        assert record.raw is not None
        name = manifest["metadata"]["name"]
        try:
            created = await self._kube.create(RAY, "rayjobs", manifest)
            logger.info("job=%s/%s created RayJob %s", key.namespace, key.name, name)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                found = await self._kube.get(RAY, "rayjobs", key.namespace, name)
                if found is not None and not _is_owned(found, record.raw):
                    text = f"RayJob {name} is there already and belongs to something else; delete or rename it"
                    record.rejected = (_generation(record.raw), text)
                    raise ApiError(409, "NotOurs", text) from error
                created = found or {}
            elif error.code in REFUSED:
                record.rejected = (_generation(record.raw), error.message[:1000])
                raise
            else:
                if error.code == 404:
                    self._kuberay_seen_s = float("-inf")  # KubeRay was removed, or the namespace is being deleted
                raise
        if created:
            self._cache.take_ray_job(created, deleted=False)

    async def _ignore_gone(self, request: Any) -> None:
        try:
            await request
        except ApiError as error:
            if error.code != 404:
                raise


def parse(raw: Manifest) -> tuple[RLJob | None, str]:
    """An RLJob of the API server, or why it is none."""
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
        return None, "; ".join(_problem(details) for details in error.errors())
    except UserError as error:
        return None, str(error)


def _problem(details: Any) -> str:
    path = ""
    for part in details["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return f"{path}: {details['msg']}"


def lasting(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status without the numbers that change all the time."""
    result = {key: value for key, value in status.items() if key not in ("training", "checkpoint", "cost")}
    result["hasNumbers"] = _has_numbers(status)
    return result


def _has_numbers(status: Mapping[str, Any]) -> bool:
    return bool(status.get("training"))


def _count(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    preempted = (new.get("preemptions") or 0) - (old.get("preemptions") or 0)
    if preempted > 0:
        PREEMPTIONS.inc(preempted)
    before = {a["number"] for a in old.get("attempts") or [] if a.get("endedAt")}
    for attempt in new.get("attempts") or []:
        if attempt.get("endedAt") and attempt["number"] not in before and attempt.get("reason") != "Succeeded":
            RESTARTS.labels(reason=attempt.get("reason") or "Unknown").inc()


def _is_owned(found: Manifest, job: Manifest) -> bool:
    uid = job["metadata"].get("uid")
    return any(owner.get("uid") == uid for owner in found["metadata"].get("ownerReferences") or [])


def _generation(raw: Manifest) -> int:
    return int(raw["metadata"].get("generation") or 0)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
