"""What watches have told so far, by job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlcore.api import RLJob
from rljob_operator import names
from rljob_operator.losses import DELETED, DISRUPTIONS, lost_pod
from rljob_operator.observed import DriverReport, LostPod, Manifest, is_older_than
from rljob_operator.trim import trim_job, trim_pod, trim_ray_cluster, trim_ray_job

KEPT_LOSSES = 500
ANSWERED_S = 60.0


class JobKey(NamedTuple):
    """Where a job is."""

    namespace: str
    name: str


class Rejection(NamedTuple):
    """The API server found something wrong with what is made from a manifest."""

    generation: int
    reason: str
    message: str
    time_s: float = 0.0


@dataclass
class JobRecord:
    """All that is known of one job.

    Attributes:
        raw: the RLJob, None where it is not there (any more).
        lost: pods seen to end, by uid, in the order in which they were.
        report: the driver's last answer.
        valid: the RLJob as it last was valid.
        parsed: the RLJob understood, or why it cannot be, after the version that this is of.
        frozen: hyper-parameters of its first start, once known.
        applied: digest of what was applied last, by object name.
        rejected: what the API server refused to make, of the manifest's generation.
        forbidden: why nothing may be made for now.
        accepted: digest of the manifest whose RayJob the API server took, made or on trial.
        written_s: when its status was last written.
        gone: uid of the job that had this name before: late answers tell of it still.
    """

    raw: Manifest | None = None
    ray_jobs: dict[str, Manifest] = field(default_factory=dict)
    ray_clusters: dict[str, Manifest] = field(default_factory=dict)
    pods: dict[str, Manifest] = field(default_factory=dict)
    lost: dict[str, LostPod] = field(default_factory=dict)
    report: DriverReport | None = None
    valid: RLJob | None = None
    parsed: tuple[object, tuple[RLJob | None, str]] | None = None
    frozen: Mapping[str, Any] | None = None
    applied: dict[str, str] = field(default_factory=dict)
    rejected: Rejection | None = None
    forbidden: str = ""
    accepted: str = ""
    written_s: float = 0.0
    gone: str = ""

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

    def hear(self, kind: str, raw: Manifest, *, deleted: bool, now_s: float) -> JobKey | None:
        """Takes what a watch told: "jobs", "ray_jobs", "ray_clusters" or "pods".

        Returns the job to look at; None where decisions read nothing that is new.
        """
        news = deleted or self._says_more(kind, raw)
        match kind:
            case "jobs":
                key: JobKey | None = self.take_job(raw, deleted=deleted)
            case "ray_jobs":
                key = self.take_ray_job(raw, deleted=deleted)
            case "ray_clusters":
                key = self.take_ray_cluster(raw, deleted=deleted)
            case _:
                key = self.take_pod(raw, deleted=deleted, now_s=now_s)
        return key if news else None

    def _says_more(self, kind: str, raw: Manifest) -> bool:
        metadata, labels = raw["metadata"], raw["metadata"].get("labels") or {}
        job = metadata["name"] if kind == "jobs" else labels.get(names.LABEL_JOB, "")
        record = self.records.get(JobKey(metadata["namespace"], job))
        if record is None:
            return True
        known = record.raw if kind == "jobs" else getattr(record, kind).get(metadata["name"])
        return known is None or _read(kind, _TRIM[kind](raw)) != _read(kind, known)

    def take_job(self, raw: Manifest, *, deleted: bool) -> JobKey:
        """An RLJob was seen."""
        key = JobKey(raw["metadata"]["namespace"], raw["metadata"]["name"])
        known, uid = self.record(key).raw, raw["metadata"]["uid"]
        same = known is not None and known["metadata"]["uid"] == uid
        if deleted:
            if same:
                self._begin_anew(key)
        elif uid != self.record(key).gone and not _is_older(raw, known):
            if known is not None and not same:
                self._begin_anew(key)
            self.record(key).raw = trim_job(raw)
        return key

    def _begin_anew(self, key: JobKey) -> None:
        """A job is gone, and nothing that was known of it is true of the next one of its name; what it made lingers."""
        old = self.records[key]
        assert old.raw is not None
        self.records[key] = JobRecord(
            ray_jobs=old.ray_jobs, ray_clusters=old.ray_clusters, pods=old.pods, gone=str(old.raw["metadata"]["uid"])
        )

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
        record = self.record(key)
        foreign = bool(record.gone) if record.raw is None else is_older_than(pod, record.raw)
        if loss is not None and not foreign:
            if loss.uid not in record.lost and loss.role == names.HEAD:
                record.applied.clear()  # the next head needs its ConfigMap, which somebody may have deleted
            _take_loss(record.lost, loss)
        return key

    def others_answer(self, key: JobKey, now_s: float) -> bool:
        """Whether a driver of another job has answered of late."""
        return any(
            record.report is not None and now_s - record.report.received_s < ANSWERED_S
            for other, record in self.records.items()
            if other != key
        )

    def known(self, kind: str) -> dict[tuple[str, str], str]:
        """(namespace, name) -> uid of all there are of a kind: "jobs", "ray_jobs", "ray_clusters" or "pods"."""
        if kind == "jobs":
            return {
                (key.namespace, key.name): str(record.raw["metadata"]["uid"])
                for key, record in self.records.items()
                if record.raw is not None
            }
        return {
            (key.namespace, name): str(found["metadata"].get("uid"))
            for key, record in self.records.items()
            for name, found in getattr(record, kind).items()
        }

    def drop(self, kind: str, namespace: str, name: str, uid: str, *, now_s: float) -> JobKey | None:
        """Forgets an object whose end no watch told of; the job it belonged to, None where it is known no more."""
        if kind == "jobs":
            record = self.records.get(JobKey(namespace, name))
            if record is None or record.raw is None or record.raw["metadata"]["uid"] != uid:
                return None
            return self.take_job(record.raw, deleted=True)
        for key, record in self.records.items():
            objects: dict[str, Manifest] = getattr(record, kind)
            found = objects.get(name) if key.namespace == namespace else None
            if found is not None and found["metadata"].get("uid") == uid:
                if kind == "pods":
                    return self.take_pod(found, deleted=True, now_s=now_s)
                return self._take(kind, found, deleted=True)
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


_TRIM = {"jobs": trim_job, "ray_jobs": trim_ray_job, "ray_clusters": trim_ray_cluster, "pods": trim_pod}


def _read(kind: str, found: Manifest) -> tuple[Any, ...]:
    """What decisions read of a trimmed object; a job's status is written by nobody but the operator."""
    metadata = {key: value for key, value in found["metadata"].items() if key != "resourceVersion"}
    return metadata, found["spec"], None if kind == "jobs" else found["status"]


def _take_loss(losses: dict[str, LostPod], loss: LostPod) -> None:
    """Keeps the first evidence: what comes later is the deletion's doing, unless it tells what the deletion was for."""
    before = losses.get(loss.uid)
    if before is None or (before.failure_class == DELETED and loss.failure_class in DISRUPTIONS):
        losses[loss.uid] = loss
    while len(losses) > KEPT_LOSSES:
        del losses[next(iter(losses))]


def _is_older(raw: Manifest, known: Manifest | None) -> bool:
    """Whether something newer of that name is known: from a write's answer, or made anew since.

    Watches tell of each object in order, but of two objects of one name in any.
    """
    if known is None:
        return False
    try:
        return int(raw["metadata"]["resourceVersion"]) < int(known["metadata"]["resourceVersion"])
    except (KeyError, ValueError):
        return False
