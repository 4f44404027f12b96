"""Golden manifests: what the operator makes of an RLJob, whole, as files that a person can read.

A test fails where anything differs and names the field. Where the difference is meant, write the files anew and look at
what changed:

    RLCORE_RENEW_GOLDEN=1 .venv/bin/python -m pytest tests/unit/test_operator_provision.py

Mind that `rlcore.io/spec-hash` may only change where the manifest did: another one re-provisions every running job.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rljob_operator import names
from rljob_operator.pods import Context, head_template, learner_template, pool_template
from rljob_operator.pools import group_sizes
from rljob_operator.provision import (
    claim,
    config_map,
    control_document,
    frozen_config,
    job_document,
    ray_job,
    spec_hash,
)
from rljob_operator.settings import Settings

from rlcore.api import RLJob, load_job
from tests.unit.operator_objects import BASE, SPOT, job, raw_job, understood

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
RENEW = "RLCORE_RENEW_GOLDEN"

GPU_LEARNER: dict[str, Any] = {"gpus": 2, "resources": {"cpu": 8, "memory": "32Gi"}}


def example() -> RLJob:
    """examples/cartpole-ppo.yaml, as the API server hands it on."""
    found = load_job(ROOT / "examples" / "cartpole-ppo.yaml")
    metadata = found.metadata.model_copy(update={"namespace": "team", "uid": "uid-cartpole"})
    return found.model_copy(update={"metadata": metadata})


def settings(**values: Any) -> Settings:
    return Settings.model_validate({"image": "rlcore-cpu:1", "gpuImage": "rlcore-gpu:1", **values})


def everything() -> RLJob:
    """Every field of a manifest that pods are made from."""
    return job(
        "all",
        image="mine:1",
        imagePullPolicy="Always",
        imagePullSecrets=[{"name": "registry"}],
        rayVersion="2.55.0",
        runtimeEnv={"pip": ["ale-py"], "env_vars": {"A": "1"}},
        serviceAccountName="workers",
        headServiceAccountName="head",
        envFrom=[
            {"secretRef": {"name": "keys"}},
            {"configMapRef": {"name": "flags", "optional": True}, "prefix": "F_"},
        ],
        checkpoint={"storage": {"uri": "s3://bucket/runs"}},
        head={
            "resources": {"cpu": "1500m", "memory": "4Gi", "extra": {"ephemeral-storage": "20Gi"}},
            "priorityClassName": "high",
            "podTemplate": {
                "metadata": {"annotations": {"team": "rl"}, "labels": {"team": "rl", "rlcore.io/job": "not-this"}},
                "spec": {
                    "containers": [
                        {
                            "name": "ray-head",
                            "env": [
                                {"name": "RLCORE_ATTEMPT", "$patch": "delete"},
                                {"name": "HTTP_PROXY", "value": "p"},
                            ],
                            "volumeMounts": [{"name": "code", "mountPath": "/code"}],
                        },
                        {"name": "logs", "image": "fluent-bit:3"},
                    ],
                    "volumes": [{"name": "code", "configMap": {"name": "my-modules"}}],
                    "tolerations": [{"key": "team", "operator": "Exists"}],
                    "terminationGracePeriodSeconds": 120,
                    "securityContext": {"fsGroup": None, "runAsUser": 1000},
                },
            },
        },
        evaluators={
            "pools": [
                {
                    **BASE,
                    "image": "envs:1",
                    "nodeSelector": {"disk": "ssd"},
                    "tolerations": [{"key": "batch", "value": "true", "effect": "NoExecute", "tolerationSeconds": 5}],
                    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
                    "topologySpreadConstraints": [
                        {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
                    ],
                    "idleTimeout": "2m",
                }
            ]
        },
    )


CASES: dict[str, tuple[RLJob, Settings]] = {
    "cartpole": (example(), Settings()),
    "mixed-gke": (job("mixed", learner=GPU_LEARNER), settings(placement={"preset": "gke"})),
    "eks-preemptible-learner": (
        job("eks", learner={**GPU_LEARNER, "preemptible": True}),
        settings(placement={"preset": "eks", "preemptible": {"tolerations": [{"key": "spot", "operator": "Exists"}]}}),
    ),
    "everything": (everything(), settings(placement={"preset": "aks"})),
    "queued": (
        job("queued", labels={names.QUEUE_LABEL: "gpus", "kueue.x-k8s.io/priority-class": "low", "mine": "1"}),
        settings(defaultClaim={"size": "1Ti", "storageClassName": "fast", "accessMode": "ReadWriteMany"}),
    ),
    "plain": (
        job("plain", checkpoint={"storage": {"newClaim": {"size": "5Gi", "onDelete": "Delete"}}}),
        settings(autoscaler={"enabled": False}, authMode="disabled"),
    ),
}


def made(job: RLJob, settings: Settings, attempt: int = 3) -> list[dict[str, Any]]:
    """Everything that an attempt is made of."""
    found = ray_job(job, attempt, settings)
    autoscaled = bool(found["spec"]["rayClusterSpec"].get("enableInTreeAutoscaling"))
    control = control_document(
        job,
        attempt,
        group_sizes(job.spec, autoscaled=autoscaled),
        checkpoint_request=None,
        pause=False,
        final_observed=None,
    )
    objects = [found, config_map(job, job_document(job, frozen_config(job)), control), claim(job, settings)]
    return [manifest for manifest in objects if manifest is not None]


def differences(golden: Any, found: Any, path: str = "") -> Iterator[str]:
    """Fields that differ, each on a line."""
    if isinstance(golden, dict) and isinstance(found, dict):
        for key in sorted({*golden, *found}):
            where = f"{path}.{key}" if path else key
            if key not in found:
                yield f"{where} is missing, was {golden[key]!r}"
            elif key not in golden:
                yield f"{where} is new: {found[key]!r}"
            else:
                yield from differences(golden[key], found[key], where)
    elif isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        for index, (old, new) in enumerate(zip(golden, found, strict=True)):
            yield from differences(old, new, f"{path}[{index}]")
    elif golden != found:
        yield f"{path} is {found!r}, was {golden!r}"


class _Readable(yaml.SafeDumper):
    """Texts of several lines as blocks; no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _as_block(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _as_block)


@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    path, objects = GOLDEN / f"{name}.yaml", made(*CASES[name])
    if os.environ.get(RENEW) == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.dump_all(objects, Dumper=_Readable, sort_keys=False, width=120))
    golden = list(yaml.safe_load_all(path.read_text()))
    kinds = [manifest["kind"] for manifest in golden]
    assert kinds == [manifest["kind"] for manifest in objects]
    found = [
        f"{kind}: {line}"
        for kind, old, new in zip(kinds, golden, objects, strict=True)
        for line in differences(old, json.loads(json.dumps(new)))
    ]
    assert not found, "\n".join([f"{path.name} differs; if that is meant, set {RENEW}=1 and run again:", *found])


def test_the_drift_test_names_the_field():
    golden = {"spec": {"groups": [{"name": "a", "replicas": 1}], "gone": 1}}
    found = {"spec": {"groups": [{"name": "a", "replicas": 2}], "more": []}}
    assert list(differences(golden, found)) == [
        "spec.gone is missing, was 1",
        "spec.groups[0].replicas is 2, was 1",
        "spec.more is new: []",
    ]


def test_there_is_no_golden_file_of_no_case():
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(CASES)


# what KubeRay and others demand of every RayJob --------------------


@pytest.mark.parametrize("name", CASES)
def test_kuberay_takes_it(name):
    found = ray_job(*_arguments(name))
    spec = found["spec"]
    assert (spec["submissionMode"], spec["backoffLimit"]) == ("HTTPMode", 0)
    assert spec["shutdownAfterJobFinishes"] is True
    cluster = spec["rayClusterSpec"]
    assert cluster["rayVersion"]
    assert [group["groupName"] for group in cluster["workerGroupSpecs"]][-1] == "learner"
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        pod = group["template"]["spec"]
        assert pod["restartPolicy"] == "Never", "autoscaler v2 takes no other"
        assert pod["containers"][0]["name"] in ("ray-head", "ray-worker")
        assert pod["automountServiceAccountToken"] is False
        assert not ({"num-cpus", "resources"} & set(group["rayStartParams"])), "not in both places"
        assert all(isinstance(amount, str) for amount in group["resources"].values())
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert cluster["headGroupSpec"]["resources"]["CPU"] == "0"
    head = cluster["headGroupSpec"]["template"]["spec"]
    assert {port["name"]: port["containerPort"] for port in head["containers"][0]["ports"]} == {
        "gcs-server": 6379,
        "dashboard": 8265,
        "client": 10001,
        "rlcore-metrics": 9400,
    }
    assert ("suspend" in spec) == (name == "queued")
    if spec.get("suspend"):
        assert "enableInTreeAutoscaling" not in cluster, "Kueue refuses autoscaled RayJobs"


def _arguments(name: str) -> tuple[RLJob, int, Settings]:
    found, chosen = CASES[name]
    return found, 3, chosen


@pytest.mark.parametrize("name", CASES)
def test_only_the_autoscaler_gets_a_token_of_the_api_server(name):
    cluster = ray_job(*_arguments(name))["spec"]["rayClusterSpec"]
    head = cluster["headGroupSpec"]["template"]["spec"]
    tokens = [volume["name"] for volume in head["volumes"] if "projected" in volume]
    assert tokens == (["autoscaler-token"] if cluster.get("enableInTreeAutoscaling") else [])
    for container in head["containers"]:
        assert not [mount for mount in container.get("volumeMounts", []) if mount["name"] in tokens]


@pytest.mark.parametrize("name", CASES)
def test_every_object_is_labelled_and_owned(name):
    found, chosen = CASES[name]
    for manifest in made(found, chosen):
        labels = manifest["metadata"]["labels"]
        assert labels.items() >= names.labels(found.metadata.name).items()
        assert (names.LABEL_ATTEMPT in labels) == (manifest["kind"] == "RayJob")
        owners = manifest["metadata"].get("ownerReferences")
        if manifest["kind"] == "PersistentVolumeClaim" and name != "plain":
            assert owners is None, "checkpoints outlive the job unless it says otherwise"
        else:
            assert owners == [
                {
                    "apiVersion": "rlcore.io/v1alpha1",
                    "kind": "RLJob",
                    "name": found.metadata.name,
                    "uid": found.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ]


def test_our_labels_stay_whatever_a_pod_template_says():
    """By them the operator finds its pods."""
    templates: list[dict[str, Any]] = [
        {"metadata": {"labels": {"rlcore.io/job": "other", "rlcore.io/attempt": None}}},
        {"metadata": {"labels": {"$patch": "replace"}}},
        {"metadata": None},
    ]
    for template in templates:
        found = job(
            head={"podTemplate": template},
            learner={"podTemplate": template},
            evaluators={"pools": [{**BASE, "podTemplate": template}]},
        )
        context = Context(found, 2, Settings(), autoscaled=False)
        for made_of, role, pool in (
            (head_template(context), "head", ""),
            (learner_template(context), "learner", ""),
            (pool_template(context, found.spec.evaluators.pools[0]), "evaluator", "base"),
        ):
            assert (
                made_of["metadata"]["labels"].items() >= names.labels("pong", attempt=2, role=role, pool=pool).items()
            )


def test_a_pod_template_that_fits_nowhere_is_told_with_its_place():
    for template, text in (
        ({"spec": {"containers": [{"image": "x"}]}}, r"spec.head.podTemplate.spec.containers\[0\] needs name"),
        ({"metadata": 5}, "spec.head.podTemplate.metadata is a int"),
        ({"spec": {"volumes": {}}}, "spec.head.podTemplate.spec.volumes is a list"),
    ):
        with pytest.raises(ValueError, match=text):
            ray_job(job(head={"podTemplate": template}), 1, Settings())


@pytest.mark.parametrize(
    ("storage", "volume", "claimed"),
    [
        ({}, "pong-checkpoints", True),
        ({"newClaim": {"size": "1Gi"}}, "pong-checkpoints", True),
        ({"persistentVolumeClaim": "mine"}, "mine", False),
        ({"path": "/mnt/share"}, None, False),
        ({"uri": "s3://bucket"}, None, False),
    ],
)
def test_where_checkpoints_go(storage, volume, claimed):
    found = job(checkpoint={"storage": storage})
    head = ray_job(found, 1, Settings())["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    claims = [v["persistentVolumeClaim"]["claimName"] for v in head["volumes"] if "persistentVolumeClaim" in v]
    assert claims == ([volume] if volume else [])
    variables = {variable["name"] for variable in head["containers"][0]["env"]}
    assert ("RLCORE_CHECKPOINT_DIR" in variables) is (volume is not None)
    assert (claim(found, Settings()) is not None) is claimed


def test_gpus_bring_their_image_resource_and_toleration():
    spec = ray_job(job(learner=GPU_LEARNER), 1, settings())["spec"]["rayClusterSpec"]
    pods = {group["groupName"]: group["template"]["spec"] for group in spec["workerGroupSpecs"]}
    (learner,) = pods["learner"]["containers"]
    assert learner["image"] == "rlcore-gpu:1"
    assert learner["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pods["learner"]["tolerations"]
    assert pods["spot"]["containers"][0]["image"] == "rlcore-cpu:1"
    assert "nvidia.com/gpu" not in str(pods["spot"])


# hashes and the driver's manifest --------------------


def test_the_hash_is_of_the_manifest_and_not_of_what_the_operator_makes_of_it():
    found = job()
    assert spec_hash(found) == spec_hash(job(name="another"))
    one, other = (ray_job(found, 1, chosen) for chosen in (settings(), settings(image="new:2", rayVersion="2.61.0")))
    key = names.ANNOTATION_SPEC_HASH
    assert one["metadata"]["annotations"][key] == other["metadata"]["annotations"][key]
    assert one["spec"] != other["spec"]


def test_the_driver_reads_the_users_fields_with_the_hyper_parameters_of_the_first_start():
    found = job(config={"gamma": 0.9})
    frozen = copy.deepcopy(frozen_config(found))
    frozen["config"]["gaeLambda"] = 0.123
    document = job_document(job(config={"gamma": 0.9}, seed=7), frozen)
    assert document["spec"]["config"]["gaeLambda"] == 0.123
    assert document["spec"]["seed"] == 7
    assert document["spec"]["optimizer"] == found.spec.resolved_optimizer
    assert document["metadata"] == {"name": "pong", "namespace": "team", "uid": "uid-pong"}
    text = yaml.safe_dump(document)
    assert understood({**raw_job(), "spec": yaml.safe_load(text)["spec"]}).spec.seed == 7, "it is a valid manifest"


def test_names_fit_what_kuberay_allows():
    longest = "a" * 43
    assert len(names.ray_job_name(longest, names.MAX_ATTEMPTS)) == 47


def test_pools_without_nodes_begin_with_none():
    found = job(evaluators={"pools": [SPOT, BASE]})
    spot, base, _ = ray_job(found, 1, Settings(), unavailable={"spot": 0})["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (spot["replicas"], spot["minReplicas"], spot["maxReplicas"]) == (0, 0, 8)
    assert (base["replicas"], base["minReplicas"], base["maxReplicas"]) == (3, 3, 4)
