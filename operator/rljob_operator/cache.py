"""What watches have told so far, by job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rljob_operator import names
from rljob_operator.losses import lost_pod
from rljob_operator.observed import DriverReport, LostPod, Manifest
from rljob_operator.trim import trim_job, trim_pod, trim_ray_cluster, trim_ray_job

KEPT_LOSSES = 50


class JobKey(NamedTuple):
    """Where a job is."""

    namespace: str
    name: str


@dataclass
class JobRecord:
    """All that is known of one job.

    Attributes:
        raw: the RLJob, None where it is not there (any more).
        lost: pods seen to end, by uid, newest last.
        report: the driver's last answer.
        frozen: hyper-parameters of its first start, once known.
        applied: digest of what was applied last, by object name.
        rejected: (generation, text) of a RayJob that the API server refused.
        written_s: when its status was last written.
    """

    raw: Manifest | None = None
    ray_jobs: dict[str, Manifest] = field(default_factory=dict)
    ray_clusters: dict[str, Manifest] = field(default_factory=dict)
    pods: dict[str, Manifest] = field(default_factory=dict)
    lost: dict[str, LostPod] = field(default_factory=dict)
    report: DriverReport | None = None
    frozen: Mapping[str, Any] | None = None
    applied: dict[str, str] = field(default_factory=dict)
    rejected: tuple[int, str] | None = None
    written_s: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of it."""
        return self.raw is None and not (self.ray_jobs or self.ray_clusters or self.pods)


class Cache:
    """Records by job; filled by watches, which may tell things twice, late, and in any order between kinds."""

    def __init__(self) -> None:
        self.records: dict[JobKey, JobRecord] = {}

    def record(self, key: JobKey) -> JobRecord:
        """The record of a job, made if need be."""
        return self.records.setdefault(key, JobRecord())

    def drop_if_empty(self, key: JobKey) -> None:
        """Forgets a job of which nothing is left."""
        record = self.records.get(key)
        if record is not None and record.is_empty:
            del self.records[key]

    def take_job(self, raw: Manifest, *, deleted: bool) -> JobKey:
        """An RLJob was seen."""
        key = JobKey(raw["metadata"]["namespace"], raw["metadata"]["name"])
        record = self.record(key)
        if deleted:
            record.raw = None
        elif not _is_older(raw, record.raw):
            if record.raw is not None and record.raw["metadata"]["uid"] != raw["metadata"]["uid"]:
                # Another job of the same name: nothing that was known of the old one is true of it.
                self.records[key] = record = JobRecord(
                    ray_jobs=record.ray_jobs, ray_clusters=record.ray_clusters, pods=record.pods
                )
            record.raw = trim_job(raw)
        return key

    def take_ray_job(self, raw: Manifest, *, deleted: bool) -> JobKey | None:
        """A RayJob of ours was seen."""
        return self._take("ray_jobs", trim_ray_job(raw), deleted=deleted)

    def take_ray_cluster(self, raw: Manifest, *, deleted: bool) -> JobKey | None:
        """A RayCluster of ours was seen."""
        return self._take("ray_clusters", trim_ray_cluster(raw), deleted=deleted)

    def take_pod(self, raw: Manifest, *, deleted: bool, now_s: float) -> JobKey | None:
        """A training pod was seen; one that ended leaves its evidence, since KubeRay deletes it at once."""
        pod = trim_pod(raw)
        key = self._take("pods", pod, deleted=deleted)
        if key is None:
            return None
        ends = deleted or pod["metadata"].get("deletionTimestamp") is not None
        loss = lost_pod(pod, deleted=ends, now_s=now_s)
        if loss is not None:
            losses = self.record(key).lost
            before = losses.get(loss.uid)
            if before is None or before.failure_class == "Deleted":
                losses[loss.uid] = loss
            while len(losses) > KEPT_LOSSES:
                del losses[next(iter(losses))]
        return key

    def known(self, kind: str) -> dict[tuple[str, str], str]:
        """(namespace, name) -> uid of all RayJobs, RayClusters or pods ("ray_jobs", "ray_clusters", "pods")."""
        return {
            (key.namespace, name): str(found["metadata"].get("uid"))
            for key, record in self.records.items()
            for name, found in getattr(record, kind).items()
        }

    def drop(self, kind: str, namespace: str, name: str, uid: str) -> JobKey | None:
        """Forgets an object whose end no watch told of; the job it belonged to."""
        for key, record in self.records.items():
            objects: dict[str, Manifest] = getattr(record, kind)
            found = objects.get(name) if key.namespace == namespace else None
            if found is not None and found["metadata"].get("uid") == uid:
                del objects[name]
                return key
        return None

    def _take(self, kind: str, raw: Manifest, *, deleted: bool) -> JobKey | None:
        metadata = raw["metadata"]
        job = (metadata.get("labels") or {}).get(names.LABEL_JOB)
        if not job:
            return None
        key = JobKey(metadata["namespace"], job)
        objects: dict[str, Manifest] = getattr(self.record(key), kind)
        name = metadata["name"]
        if not deleted:
            if not _is_older(raw, objects.get(name)):
                objects[name] = raw
        elif name in objects and objects[name]["metadata"]["uid"] == metadata["uid"]:
            del objects[name]
        return key


def _is_older(raw: Manifest, known: Manifest | None) -> bool:
    """Whether a watch tells what a write's answer told before."""
    if known is None or known["metadata"].get("uid") != raw["metadata"].get("uid"):
        return False
    try:
        return int(raw["metadata"]["resourceVersion"]) < int(known["metadata"]["resourceVersion"])
    except (KeyError, ValueError):
        return False
