"""Why pods are not ready, as a table: what Kubernetes says, and what people are told."""

from __future__ import annotations

from typing import Any

import pytest
from rljob_operator.waiting import ORDER, why_cluster_waits, why_nothing_is_made, why_pod_waits, why_pods_wait

from tests.unit.operator_objects import pod, unscheduled

PENDING: dict[str, Any] = {"phase": "Pending"}

CASES: list[tuple[str, dict[str, Any], str | None, str]] = [
    ("ready", pod(), None, ""),
    ("ended", pod(phase="Failed"), None, ""),
    ("being deleted", pod(phase="Pending", deleted_at=0), None, ""),
    ("made", pod(**PENDING), "WaitingForPods", "its containers start"),
    ("runs", pod(ready=False), "WaitingForPods", "Ray is not ready in it yet"),
    ("no node", pod(**PENDING, conditions=[unscheduled("0/3 nodes: 3 Insufficient cpu")]), "Unschedulable", "3 Insuff"),
    ("no node, unsaid", pod(**PENDING, conditions=[unscheduled("")]), "Unschedulable", "no node takes it"),
    (
        "claim not bound",
        pod(**PENDING, conditions=[unscheduled("pod has unbound immediate PersistentVolumeClaims")]),
        "UnboundClaim",
        "StorageClass",
    ),
    (
        "claim missing",
        pod(**PENDING, conditions=[unscheduled('persistentvolumeclaim "ckpt" not found')]),
        "UnboundClaim",
        "ckpt",
    ),
    *(
        (reason, pod(**PENDING, waiting={"reason": reason, "message": "back-off"}), "ImagePull", "image rlcore:1")
        for reason in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
    ),
    (
        "secret",
        pod(**PENDING, waiting={"reason": "CreateContainerConfigError", "message": 'secret "keys" not found'}),
        "MissingSecret",
        "secret keys is missing; create it",
    ),
    (
        "config map",
        pod(**PENDING, waiting={"reason": "CreateContainerConfigError", "message": 'configmap "f" not found'}),
        "MissingSecret",
        "configmap f is missing",
    ),
    (
        "key of a secret",
        pod(**PENDING, waiting={"reason": "CreateContainerConfigError", "message": "couldn't find key A in Secret b"}),
        "MissingSecret",
        "key A",
    ),
    ("creating", pod(**PENDING, waiting={"reason": "ContainerCreating"}), "WaitingForPods", "containers start"),
]


@pytest.mark.parametrize(("found", "reason", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_why_a_pod_waits(found, reason, text):
    wait = why_pod_waits(found)
    if reason is None:
        assert wait is None
    else:
        assert wait is not None
        assert wait.reason == reason
        assert wait.message.startswith("pod head: ")
        assert text in wait.message


def test_init_containers_wait_too():
    found = pod(**PENDING)
    found["status"]["initContainerStatuses"] = [
        {"name": "wait-gcs-ready", "image": "i:2", "state": {"waiting": {"reason": "ErrImagePull"}}}
    ]
    wait = why_pod_waits(found)
    assert wait is not None
    assert (wait.reason, "image i:2" in wait.message) == ("ImagePull", True)


def test_an_image_is_named_even_where_its_status_names_none():
    found = pod(**PENDING, waiting={"reason": "ErrImagePull"})
    found["spec"]["containers"] = [{"name": "ray-head", "image": "spec:1"}]
    del found["status"]["containerStatuses"][0]["image"]
    wait = why_pod_waits(found)
    assert wait is not None
    assert "image spec:1" in wait.message


def test_the_most_telling_reason_comes_first():
    starts = pod(name="a", **PENDING)
    nowhere = pod(name="b", **PENDING, conditions=[unscheduled()])
    pulls = pod(name="c", **PENDING, waiting={"reason": "ErrImagePull"})
    found = why_pods_wait([starts, nowhere, pulls, pod(name="d")])
    assert found is not None
    assert found.reason == "ImagePull"
    assert why_pods_wait([pod(), pod(name="e")]) is None
    assert why_pods_wait([]) is None


@pytest.mark.parametrize(
    ("conditions", "reason", "text"),
    [
        ([], None, ""),
        ([{"type": "ReplicaFailure", "status": "False"}], None, ""),
        (
            [{"type": "ReplicaFailure", "status": "True", "message": 'pods "x" is forbidden: exceeded quota: compute'}],
            "QuotaExceeded",
            "exceeded quota: compute",
        ),
        (
            [{"type": "ReplicaFailure", "status": "True", "message": "admission webhook denied the request: no"}],
            "PodsRefused",
            "mend the manifest",
        ),
        ([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}], "WaitingForPods", "FailedCreate"),
    ],
)
def test_why_kuberay_makes_no_pods(conditions, reason, text):
    wait = why_cluster_waits({"status": {"conditions": conditions}})
    assert (wait.reason if wait else None) == reason
    assert text in (wait.message if wait else "")
    assert why_cluster_waits(None) is None


def test_every_reason_of_a_pod_has_its_place_in_the_order():
    reasons = {reason for _, _, reason, _ in CASES if reason is not None}
    assert {reason for reason in reasons if reason[0].isupper()} <= set(ORDER)


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ("exceeded quota: jobs, requested: count/rayjobs.ray.io=1", "QuotaExceeded"),
        ("denied by a webhook", "Forbidden"),
    ],
)
def test_why_not_even_a_ray_job_is_made(refusal, reason):
    wait = why_nothing_is_made(refusal)
    assert wait.reason == reason
    assert refusal in wait.message
