"""Manifests that the API server takes and of which nothing can be made: the operator says which field is wrong, makes
no RayJob, and goes on as soon as the manifest is mended.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from rlcore.api.yaml_tree import parse_documents
from tests.controlplane.operated import Job, Manifest
from tests.kube.cluster import ROOT
from tests.kube.wait import eventually

pytestmark = pytest.mark.timeout(240)

SLOW = {"timestepsPerS": 1_000}
SPEC: Manifest = parse_documents((ROOT / "examples" / "cartpole-ppo.yaml").read_text())[0].value["spec"]


class Case(NamedTuple):
    """Fields of spec that are wrong, and what is said of them."""

    spec: dict[str, Any]
    reason: str
    field: str
    words: str


def config(**fields: Any) -> dict[str, Any]:
    return {"config": {**SPEC["config"], **fields}}


def pod(template: Any, **fields: Any) -> dict[str, Any]:
    """Evaluators with a podTemplate."""
    return {"evaluators": {"pools": [{"name": "a", "maxReplicas": 1, "podTemplate": template, **fields}]}}


POINTS = [{"timesteps": 10, "value": 0.1}, {"timesteps": 0, "value": 0.2}]
MUTATION = {"parameter": "gamma", "values": [0.9, 0.99]}
TEMPLATE = "spec.evaluators.pools[0].podTemplate"
INVALID = "InvalidManifest"

CASES = {
    # Fields that do not go together, or not in a way that a rule of the CRD can say.
    "batch-below-default": Case(
        {"config": {"trainBatchSize": 64}}, INVALID, "spec.config.minibatchSize", "128 (the default) is more than"
    ),
    "schedule-backwards": Case(
        config(clipRangeSchedule=POINTS), INVALID, "spec.config.clipRangeSchedule[1].timesteps", "must increase"
    ),
    "unknown-mutation": Case(
        {"population": {"mutations": [{"parameter": "gama", "values": [1]}]}},
        INVALID,
        "spec.population.mutations[0].parameter",
        '"gama" is not a number of PPO',
    ),
    "same-mutation-twice": Case(
        {"population": {"mutations": [MUTATION, MUTATION]}},
        INVALID,
        "spec.population.mutations[1].parameter",
        "already in mutations[0]",
    ),
    "price-of-nothing": Case(
        {"budget": {"pricePerHour": {"spot": 1}}}, INVALID, "spec.budget.pricePerHour.spot", "there is no such pool"
    ),
    "no-time": Case({"stop": {"wallClock": "0s"}}, INVALID, "spec.stop.wallClock", "0s is out of range"),
    "short-stall": Case({"stallTimeout": "5s"}, INVALID, "spec.stallTimeout", "5s is out of range"),
    "old-ray": Case({"rayVersion": "2.40.0"}, INVALID, "spec.rayVersion", "2.40.0 is older than 2.52.0"),
    "policy-name": Case(
        {"multiAgent": {"policies": {"a b": {}}, "mapping": "m:f"}}, INVALID, 'spec.multiAgent.policies["a b"]', "name"
    ),
    # Pod templates that cannot be merged.
    "containers-as-map": Case(
        pod({"spec": {"containers": {"name": "x"}}}), "InvalidPodTemplate", f"{TEMPLATE}.spec.containers", "list"
    ),
    "nameless-container": Case(
        pod({"spec": {"containers": [{"image": "x"}]}}),
        "InvalidPodTemplate",
        f"{TEMPLATE}.spec.containers[0]",
        "needs name",
    ),
    "labels-as-list": Case(
        {"head": {"podTemplate": {"metadata": {"labels": ["a"]}}}},
        "InvalidPodTemplate",
        "spec.head.podTemplate.metadata.labels",
        "",
    ),
    # What the API server's schema of RayJobs refuses.
    "misspelled-field": Case(
        pod({"spec": {"nodeSelecter": {"a": "b"}}}), "RayJobRejected", f"{TEMPLATE}.spec.nodeSelecter", "unknown field"
    ),
    "text-for-truth": Case(
        {"learner": {"podTemplate": {"spec": {"hostNetwork": "yes"}}}},
        "RayJobRejected",
        "spec.learner.podTemplate.spec.hostNetwork",
        "boolean",
    ),
    "affinity": Case(
        {"head": {"affinity": {"nodeAffinity": {"required": []}}}},
        "RayJobRejected",
        "spec.head.affinity.nodeAffinity.required",
        "unknown field",
    ),
    "spread": Case(
        pod({}, topologySpreadConstraints=[{"maxSkew": "one", "topologyKey": "zone", "whenUnsatisfiable": "X"}]),
        "RayJobRejected",
        "spec.evaluators.pools[0].topologySpreadConstraints[0].maxSkew",
        "integer",
    ),
    # What the API server's own rules for claims refuse.
    "no-storage": Case(
        {"checkpoint": {"storage": {"newClaim": {"size": "0"}}}},
        "ClaimRejected",
        "spec.checkpoint.storage.newClaim.size",
        "greater than zero",
    ),
}


def is_refused(job: Job, case: Case) -> None:
    """Waits until the operator says what is wrong, and checks that it makes nothing of it."""
    status = job.comes(
        lambda s: any(c["type"] == "Valid" and c["status"] == "False" for c in s.get("conditions", [])), "Valid=False"
    )
    valid = job.condition("Valid")
    assert valid["reason"] == case.reason
    assert case.field in valid["message"]
    assert case.words in valid["message"]
    assert valid["observedGeneration"] == job.get()["metadata"]["generation"]
    assert status["phase"] == "Pending"
    (told,) = job.told(case.reason)
    assert case.field in told
    assert not job.list("rayjobs")


@pytest.mark.parametrize("name", CASES)
def test_the_field_is_named_and_no_rayjob_made_until_the_manifest_is_mended(job: Job, name: str) -> None:
    case = CASES[name]
    job.apply(script=SLOW, **case.spec)
    is_refused(job, case)
    job.apply(script=SLOW)
    status = job.reaches("Running")
    assert job.condition("Valid")["status"] == "True"
    assert status["attempt"] == 1
    assert status.get("restarts", 0) == 0


def test_a_name_that_something_else_has_is_waited_for(job: Job) -> None:
    foreign = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": f"{job.name}-1", "namespace": job.namespace},
        "spec": {"entrypoint": "true", "clusterSelector": {"ray.io/cluster": "elsewhere"}, "suspend": False},
    }
    job.cluster.kubectl("apply", "-f", "-", input=json.dumps(foreign))
    uid = job.get("rayjob", f"{job.name}-1")["metadata"]["uid"]
    job.apply(script=SLOW)
    job.comes(lambda s: any(c["reason"] == "NameTaken" for c in s.get("conditions", [])), "NameTaken")
    valid = job.condition("Valid")
    assert valid["status"] == "False"
    assert valid["message"].startswith(f"metadata.name: RayJob {job.name}-1 is there already")
    assert job.told("NameTaken")
    assert job.get("rayjob", f"{job.name}-1")["metadata"]["uid"] == uid
    job.kubectl("delete", "rayjob", f"{job.name}-1", "--timeout=30s")
    job.reaches("Running")
    assert job.condition("Valid")["status"] == "True"


def test_a_config_map_of_somebody_else_is_left_alone(job: Job) -> None:
    job.kubectl("create", "configmap", f"{job.name}-run", "--from-literal=mine=1")
    job.apply(script=SLOW)
    job.comes(lambda s: any(c["reason"] == "NameTaken" for c in s.get("conditions", [])), "NameTaken")
    assert f"ConfigMap {job.name}-run is there already" in job.condition("Valid")["message"]
    found = job.get("configmap", f"{job.name}-run")
    assert found["data"] == {"mine": "1"}
    assert "ownerReferences" not in found["metadata"]
    assert not job.list("rayjobs")
    job.kubectl("delete", "configmap", f"{job.name}-run")
    job.reaches("Running")


def test_an_invalid_job_can_be_suspended_and_deleted(job: Job) -> None:
    case = CASES["misspelled-field"]
    job.apply(script=SLOW, **case.spec)
    is_refused(job, case)
    job.patch({"suspend": True})
    job.reaches("Suspended")
    job.apply(script=SLOW, suspend=False)
    job.reaches("Running")
    job.kubectl("delete", "rlj", job.name, "--timeout=20s")


def test_what_is_invalid_from_the_start_can_be_mended_even_where_nothing_may_change_later(job: Job) -> None:
    job.apply(script=SLOW, config={"trainBatchSize": 64})
    is_refused(job, CASES["batch-below-default"])
    job.apply(script=SLOW, config={"trainBatchSize": 64, "minibatchSize": 64})
    job.reaches("Running")
    with pytest.raises(Exception, match="config cannot change after creation"):
        job.apply(script=SLOW, config={"trainBatchSize": 128, "minibatchSize": 64})


LATER = {
    "manifest": ({"stop": {"wallClock": "0s"}}, "spec.stop.wallClock"),
    "merge": ({"head": {"podTemplate": {"spec": {"containers": {"name": "x"}}}}}, "spec.head.podTemplate"),
    "api": ({"head": {"podTemplate": {"spec": {"nodeSelecter": {}}}}}, "spec.head.podTemplate.spec.nodeSelecter"),
}


@pytest.mark.parametrize("name", LATER)
def test_a_mistake_made_later_costs_a_running_job_nothing(job: Job, name: str) -> None:
    spec, field = LATER[name]
    job.apply(script=SLOW)
    job.comes(lambda s: s.get("phase") == "Running" and s["evaluators"].get("ready") == 2, "training")
    before = sorted(pod["metadata"]["uid"] for pod in job.list("pods"))
    job.apply(script=SLOW, **spec)
    eventually(lambda: job.condition("Valid")["status"] == "False", what="Valid=False")
    assert field in job.condition("Valid")["message"]
    timesteps = job.status["training"]["timesteps"]
    job.comes(lambda s: s["phase"] == "Running" and s["training"]["timesteps"] > timesteps, "training on")
    assert sorted(pod["metadata"]["uid"] for pod in job.list("pods")) == before
    job.apply(script=SLOW)
    eventually(lambda: job.condition("Valid")["status"] == "True", what="Valid=True")
    assert job.status["attempt"] == 1
    assert sorted(pod["metadata"]["uid"] for pod in job.list("pods")) == before
