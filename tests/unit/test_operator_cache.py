"""What the operator remembers of watches: late and doubled events, jobs made anew, evidence of pods that are gone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from rljob_operator.cache import KEPT_LOSSES, Cache, JobKey
from rljob_operator.observed import DriverReport
from rljob_operator.trim import trim_job, trim_pod, trim_ray_cluster, trim_ray_job

from tests.unit.operator_objects import NOW_S, at, pod, raw_job, ray_cluster, ray_job

KEY = JobKey("team", "pong")


def version(found: dict[str, Any], number: int, uid: str = "", **changes: Any) -> dict[str, Any]:
    """The same object at another resourceVersion."""
    result = copy.deepcopy({**found, **changes})
    result["metadata"] |= {"resourceVersion": str(number)} | ({"uid": uid} if uid else {})
    return result


def tell_pod(cache: Cache, found: dict[str, Any], *, deleted: bool = False) -> JobKey | None:
    return cache.take_pod(found, deleted=deleted, now_s=NOW_S)


# order --------------------


def test_news_older_than_what_is_known_are_left_aside():
    """A watch tells, a little later, what a write's answer told before."""
    cache = Cache()
    cache.take_job(version(raw_job(), 5, status={"phase": "Running"}), deleted=False)
    assert cache.take_job(version(raw_job(), 4, status={"phase": "Pending"}), deleted=False) == KEY
    assert cache.record(KEY).raw["status"] == {"phase": "Running"}
    cache.take_job(version(raw_job(), 6, status={"phase": "Failed"}), deleted=False)
    assert cache.record(KEY).raw["status"] == {"phase": "Failed"}


@pytest.mark.parametrize("odd", ["", "abc", None])
def test_versions_that_are_no_numbers_are_taken_as_they_come(odd):
    cache = Cache()
    cache.take_job(version(raw_job(), 5), deleted=False)
    later = version(raw_job(), 0, status={"phase": "Failed"})
    if odd is None:
        del later["metadata"]["resourceVersion"]
    else:
        later["metadata"]["resourceVersion"] = odd
    cache.take_job(later, deleted=False)
    assert cache.record(KEY).raw["status"] == {"phase": "Failed"}


def test_the_end_of_another_object_of_the_same_name_ends_nothing():
    cache = Cache()
    new = version(ray_job(raw_job()), 9, uid="new")
    cache.take_ray_job(new, deleted=False)
    cache.take_ray_job(version(new, 8, uid="old"), deleted=True)
    assert list(cache.record(KEY).ray_jobs) == ["pong-1"]
    cache.take_ray_job(version(new, 7, uid="old"), deleted=False)
    assert cache.record(KEY).ray_jobs["pong-1"]["metadata"]["uid"] == "new"
    cache.take_ray_job(version(new, 10, uid="new"), deleted=True)
    assert cache.record(KEY).ray_jobs == {}


def test_every_kind_is_found_by_its_labels_and_what_is_not_ours_is_not():
    cache, raw = Cache(), raw_job()
    made = ray_job(raw)
    assert cache.take_ray_job(made, deleted=False) == KEY
    assert cache.take_ray_cluster(ray_cluster(made), deleted=False) == KEY
    assert tell_pod(cache, pod()) == KEY
    stranger = pod("head", "stranger")
    del stranger["metadata"]["labels"]
    assert tell_pod(cache, stranger) is None
    record = cache.record(KEY)
    assert (list(record.ray_jobs), list(record.ray_clusters), list(record.pods)) == (
        ["pong-1"],
        ["pong-1-abcde"],
        ["head"],
    )


# a job of the same name --------------------


def known_job() -> Cache:
    """A cache that knows much of a job."""
    cache = Cache()
    cache.take_job(version(raw_job(), 5), deleted=False)
    cache.take_ray_job(ray_job(raw_job()), deleted=False)
    tell_pod(cache, pod(phase="Failed"))
    record = cache.record(KEY)
    record.report = DriverReport({"attempt": 1, "final": {"phase": "Succeeded"}}, NOW_S, NOW_S)
    record.frozen, record.applied = {"config": {}}, {"a": "b"}
    return cache


@pytest.mark.parametrize("order", ["deleted first", "made first", "deleted and nobody told"])
def test_nothing_that_was_known_of_a_job_is_true_of_the_next_one_of_its_name(order):
    """Above all not its success."""
    cache = known_job()
    old, new = version(raw_job(), 6), version(raw_job(), 9, uid="new")
    events = {
        "deleted first": [(old, True), (new, False)],
        "made first": [(new, False), (old, True)],
        "deleted and nobody told": [(new, False)],
    }[order]
    for found, deleted in events:
        cache.take_job(found, deleted=deleted)
    record = cache.record(KEY)
    assert record.raw["metadata"]["uid"] == "new"
    assert (record.report, record.frozen, record.lost, record.applied) == (None, None, {}, {})
    assert list(record.ray_jobs) == ["pong-1"], "what the old one made is still to be seen going"


def test_a_late_answer_does_not_bring_a_deleted_job_back():
    """The status was being written while the job was deleted."""
    cache = known_job()
    cache.take_job(version(raw_job(), 6), deleted=True)
    cache.take_job(version(raw_job(), 7, status={"phase": "Running"}), deleted=False)
    assert cache.record(KEY).raw is None
    cache.take_job(version(raw_job(), 8, uid="new"), deleted=False)
    assert cache.record(KEY).raw["metadata"]["uid"] == "new"


def test_pods_of_the_old_job_are_no_losses_of_the_new_one():
    cache = known_job()
    cache.take_job(version(raw_job(), 6), deleted=True)
    tell_pod(cache, pod("learner", "gone-in-between", phase="Failed"))
    new = version(raw_job(), 9, uid="new")
    new["metadata"]["creationTimestamp"] = at(100)
    cache.take_job(new, deleted=False)
    tell_pod(cache, pod("learner", "gone-afterwards", phase="Failed", made_at=99))
    assert cache.record(KEY).lost == {}
    tell_pod(cache, pod("learner", "ours", phase="Failed", made_at=101))
    assert list(cache.record(KEY).lost) == ["uid-ours"]


def test_a_job_of_which_nothing_is_left_is_forgotten():
    cache = Cache()
    cache.take_job(raw_job(), deleted=False)
    tell_pod(cache, pod())
    cache.take_job(version(raw_job(), 2), deleted=True)
    cache.drop_if_empty(KEY)
    assert KEY in cache.records
    tell_pod(cache, pod(), deleted=True)
    cache.drop_if_empty(KEY)
    assert cache.records == {}
    cache.drop_if_empty(KEY)


# evidence --------------------


def test_a_pod_that_is_gone_leaves_its_evidence():
    cache = Cache()
    failed = pod(phase="Failed", terminated={"exitCode": 137, "reason": "OOMKilled"})
    tell_pod(cache, failed)
    tell_pod(cache, version(failed, 2), deleted=True)
    record = cache.record(KEY)
    assert record.pods == {}
    assert [loss.failure_class for loss in record.lost.values()] == ["OutOfMemory"]


def test_the_first_evidence_counts():
    """KubeRay deletes failed pods: that is not why they were lost."""
    cache = Cache()
    tell_pod(cache, pod(phase="Failed", terminated={"exitCode": 1}))
    tell_pod(cache, pod(phase="Failed", terminated={"exitCode": 1}, deleted_at=5), deleted=True)
    assert cache.record(KEY).lost["uid-head"].failure_class == "Crashed"


def test_what_a_deletion_was_for_may_be_told_later():
    cache = Cache()
    tell_pod(cache, pod(deleted_at=5))
    preempted = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}]
    tell_pod(cache, version(pod(deleted_at=5, conditions=preempted), 2))
    assert cache.record(KEY).lost["uid-head"].failure_class == "Preempted"


def test_how_a_deleted_pod_ends_is_the_deletions_doing():
    """Its first process forwards no SIGTERM: it is killed when its grace is over."""
    cache = Cache()
    tell_pod(cache, pod(deleted_at=5))
    for reason in ("Error", "OOMKilled"):
        killed = pod(phase="Failed", deleted_at=5, terminated={"exitCode": 137, "reason": reason, "finishedAt": at(65)})
        tell_pod(cache, version(killed, 2))
    assert cache.record(KEY).lost["uid-head"].failure_class == "Deleted"


def test_evidence_is_bounded_and_keeps_its_order():
    cache = Cache()
    for index in range(KEPT_LOSSES + 10):
        tell_pod(cache, pod("evaluator", f"e{index}", pool="spot", phase="Failed"))
    lost = list(cache.record(KEY).lost)
    assert len(lost) == KEPT_LOSSES
    assert (lost[0], lost[-1]) == ("uid-e10", f"uid-e{KEPT_LOSSES + 9}")


# resync --------------------


def test_what_no_watch_told_of_is_dropped_by_its_uid():
    cache = Cache()
    cache.take_job(raw_job(), deleted=False)
    tell_pod(cache, pod())
    assert cache.known("pods") == {("team", "head"): "uid-head"}
    assert cache.known("jobs") == {("team", "pong"): "uid-pong"}
    assert cache.drop("pods", "team", "head", "another", now_s=NOW_S) is None
    assert cache.drop("pods", "other", "head", "uid-head", now_s=NOW_S) is None
    assert cache.drop("pods", "team", "head", "uid-head", now_s=NOW_S) == KEY
    assert cache.known("pods") == {}
    assert cache.record(KEY).lost["uid-head"].failure_class == "Deleted", "its end leaves evidence all the same"
    assert cache.drop("jobs", "team", "pong", "another", now_s=NOW_S) is None
    assert cache.drop("jobs", "team", "pong", "uid-pong", now_s=NOW_S) == KEY
    assert cache.record(KEY).raw is None


# news --------------------


def hear(cache: Cache, kind: str, found: dict[str, Any], *, deleted: bool = False) -> JobKey | None:
    return cache.hear(kind, found, deleted=deleted, now_s=NOW_S)


def test_only_what_decisions_read_is_news():
    cache, raw = Cache(), raw_job()
    assert hear(cache, "jobs", raw) == KEY
    assert hear(cache, "jobs", version(raw, 2)) is None
    assert hear(cache, "jobs", version(raw, 3, status={"phase": "Running"})) is None, "its status is the operator's own"
    assert hear(cache, "jobs", version(raw, 4, spec={**raw["spec"], "suspend": True})) == KEY
    annotated = version(raw, 5, spec={**raw["spec"], "suspend": True})
    annotated["metadata"]["annotations"] = {"rlcore.io/restart": "1"}
    assert hear(cache, "jobs", annotated) == KEY
    assert hear(cache, "jobs", version(annotated, 6), deleted=True) == KEY


def test_news_of_what_the_job_made():
    cache, made = Cache(), ray_job(raw_job())
    assert hear(cache, "ray_jobs", made) == KEY
    assert hear(cache, "ray_jobs", version(made, 2)) is None
    assert hear(cache, "ray_jobs", version(made, 3, status={"jobDeploymentStatus": "Running"})) == KEY
    assert hear(cache, "pods", pod()) == KEY
    assert hear(cache, "pods", version(pod(), 2)) is None
    assert hear(cache, "pods", version(pod(phase="Failed"), 3)) == KEY
    assert hear(cache, "pods", version(pod(phase="Failed"), 4), deleted=True) == KEY
    assert hear(cache, "ray_clusters", ray_cluster(made)) == KEY


# memory --------------------


def test_the_large_rest_of_objects_is_not_kept():
    raw = raw_job(annotations={"kubectl.kubernetes.io/last-applied-configuration": "x" * 9999, "mine": "1"})
    raw["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    assert trim_job(raw)["metadata"]["annotations"] == {"mine": "1"}
    assert "managedFields" not in trim_job(raw)["metadata"]
    made = ray_job(raw_job(), jobStatus="RUNNING")
    trimmed = trim_ray_job(made)
    assert trimmed["status"]["jobStatus"] == "RUNNING"
    assert "template" not in str(trimmed)
    cluster = trim_ray_cluster(ray_cluster(made))
    assert [group["groupName"] for group in cluster["spec"]["workerGroupSpecs"]] == ["spot", "base", "learner"]
    assert cluster["spec"]["enableInTreeAutoscaling"] is True
    found = pod(deleted_at=1)
    found["spec"]["volumes"] = [{"name": "x"}]
    assert trim_pod(found)["spec"] == {"nodeName": "node-1", "containers": [{"name": "ray-head", "image": None}]}
    assert trim_pod(found)["metadata"]["deletionGracePeriodSeconds"] == 60


def test_trimming_twice_changes_nothing():
    made = ray_job(raw_job(), jobStatus="RUNNING")
    for trim, found in (
        (trim_job, raw_job()),
        (trim_ray_job, made),
        (trim_ray_cluster, ray_cluster(made)),
        (trim_pod, pod()),
    ):
        assert trim(trim(found)) == trim(found)
