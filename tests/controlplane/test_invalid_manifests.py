"""Manifests that nobody can apply: the API server refuses each one with a message that names the field, and `rlcore
validate` finds the same field wrong without a cluster.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from rlcore.api.algorithms import PPOConfig
from rlcore.api.yaml_tree import parse_documents
from rlcore.cli.main import run_cli
from tests.controlplane.conftest import fresh_namespace
from tests.controlplane.operated import Job, Manifest, Operated
from tests.kube.cluster import ROOT

pytestmark = pytest.mark.timeout(240)

EXAMPLE: Manifest = parse_documents((ROOT / "examples" / "cartpole-ppo.yaml").read_text())[0].value
REMOVED = object()


class Case(NamedTuple):
    """A change of the example that makes it invalid.

    Attributes:
        change: values by dotted path; REMOVED takes a field away.
        field: the path that is named, by both.
        words: of the API server's message, which is about that path.
        server_field: where the API server says it, unless there.
    """

    change: dict[str, Any]
    field: str
    words: str
    server_field: str = ""


def pool(**fields: Any) -> dict[str, Any]:
    """A change of the pools to one that has these fields too."""
    return {"spec.evaluators.pools": [{"name": "a", "maxReplicas": 2, **fields}]}


def mutation(**fields: Any) -> dict[str, Any]:
    """A change to a population with one mutation."""
    return {"spec.population": {"mutations": [{"parameter": "gamma", **fields}]}}


POOLS, MUTATIONS = "spec.evaluators.pools", "spec.population.mutations"
AGENTS = {"policies": {"a": {}, "b": {}}, "mapping": "my.agents:policy_of"}
TWO_CONVOLUTIONS = {"convPreset": "nature", "convLayers": [{"filters": 8, "kernel": 3}]}

CASES = {
    # What is missing.
    "no-algorithm": Case({"spec.algorithm": REMOVED}, "spec.algorithm", "Required value"),
    "no-environment": Case({"spec.environment": REMOVED}, "spec.environment", "Required value"),
    "no-environment-id": Case({"spec.environment.id": REMOVED}, "spec.environment.id", "Required value"),
    "no-stop": Case({"spec.stop": REMOVED}, "spec.stop", "Required value"),
    "empty-stop": Case({"spec.stop": {}}, "spec.stop", "stop needs at least one of timesteps, iterations"),
    "no-most-replicas": Case(pool(maxReplicas=REMOVED), f"{POOLS}[0].maxReplicas", "Required value"),
    "no-pool": Case({POOLS: []}, POOLS, "should have at least 1 items"),
    "half-a-range": Case(mutation(minimum=0.5), f"{MUTATIONS}[0].maximum", "give either", f"{MUTATIONS}[0]"),
    # What nobody knows.
    "unknown-top": Case({"spec.gamma": 0.9}, "spec.gamma", "unknown field"),
    "unknown-parameter": Case({"spec.config.learning_rate": 0.1}, "spec.config.learning_rate", "unknown field"),
    "unknown-in-pool": Case(pool(min=1), f"{POOLS}[0].min", "unknown field"),
    "unknown-resource": Case(pool(resources={"gpu": 1}), f"{POOLS}[0].resources.gpu", "unknown field"),
    "unknown-storage": Case({"spec.checkpoint.storage": {"s3": "x"}}, "spec.checkpoint.storage.s3", "unknown field"),
    "unknown-algorithm": Case({"spec.algorithm": "PPPO"}, "spec.algorithm", 'supported values: "PPO"'),
    "unknown-optimizer": Case({"spec.optimizer": "Adam"}, "spec.optimizer", "supported values"),
    "unknown-activation": Case({"spec.model.activation": "gelu"}, "spec.model.activation", "supported values"),
    "unknown-wrapper": Case({"spec.environment.wrappers": "Atari"}, "spec.environment.wrappers", "supported values"),
    "unknown-policy": Case({"spec.multiAgent": {**AGENTS, "train": ["c"]}}, "spec.multiAgent.train", "train must name"),
    "own-opponent": Case(
        {"spec.multiAgent": {**AGENTS, "selfPlay": {"policy": "a", "opponents": ["a"]}}},
        "spec.multiAgent.selfPlay",
        "cannot be its own opponent",
    ),
    "unknown-opponent": Case(
        {"spec.multiAgent": {**AGENTS, "selfPlay": {"policy": "a", "opponents": ["c"]}}},
        "spec.multiAgent.selfPlay",
        "selfPlay must name policies",
    ),
    "agents-missing": Case(
        {"spec.algorithm": "MADDPG", "spec.config": REMOVED, "spec.model": REMOVED},
        "spec.multiAgent",
        "trains several agents together",
    ),
    "agents-too-many": Case(
        {"spec.algorithm": "ES", "spec.config": REMOVED, "spec.multiAgent": AGENTS},
        "spec.multiAgent",
        "trains one policy for one agent",
    ),
    # What is of another type.
    "text-for-number": Case({"spec.config.gamma": "0.9"}, "spec.config.gamma", "must be of type number"),
    "fraction-for-count": Case({"spec.config.numEpochs": 2.5}, "spec.config.numEpochs", "must be of type integer"),
    "number-for-text": Case({"spec.environment.id": 5}, "spec.environment.id", "must be of type string"),
    "text-for-truth": Case({"spec.suspend": "never"}, "spec.suspend", "must be of type boolean"),
    "number-for-list": Case({"spec.model.hiddens": 64}, "spec.model.hiddens", "must be of type array"),
    "list-for-map": Case({"spec.environment.kwargs": [1]}, "spec.environment.kwargs", "must be of type object"),
    "truth-for-label": Case(pool(nodeSelector={"a": True}), f"{POOLS}[0].nodeSelector.a", "must be of type string"),
    "number-for-duration": Case({"spec.checkpoint.every": 30}, "spec.checkpoint.every", "must be of type string"),
    # What is out of range.
    "discount": Case({"spec.config.gamma": 1.01}, "spec.config.gamma", "less than or equal to 1"),
    "learning-rate": Case({"spec.config.learningRate": 0}, "spec.config.learningRate", "greater than 0"),
    "batch": Case({"spec.config.trainBatchSize": -1}, "spec.config.trainBatchSize", "greater than or equal to 1"),
    "layer": Case({"spec.model.hiddens": [64, 0]}, "spec.model.hiddens[1]", "greater than or equal to 1"),
    "layers": Case({"spec.model.hiddens": [8] * 17}, "spec.model.hiddens", "must have at most 16 items"),
    "schedule": Case(
        {"spec.config.learningRateSchedule": []}, "spec.config.learningRateSchedule", "should have at least 1 items"
    ),
    "timesteps": Case({"spec.stop.timesteps": 0}, "spec.stop.timesteps", "greater than or equal to 1"),
    "seed": Case({"spec.seed": -1}, "spec.seed", "greater than or equal to 0"),
    "gpus": Case({"spec.learner.gpus": 65}, "spec.learner.gpus", "less than or equal to 64"),
    "learners": Case({"spec.learner.replicas": 0}, "spec.learner.replicas", "greater than or equal to 1"),
    "kept-checkpoints": Case({"spec.checkpoint.keep": 0}, "spec.checkpoint.keep", "greater than or equal to 1"),
    "restarts": Case({"spec.restartPolicy.maxRestarts": 901}, "spec.restartPolicy.maxRestarts", "equal to 900"),
    "exit-code": Case(
        {"spec.restartPolicy.permanentExitCodes": [256]}, "spec.restartPolicy.permanentExitCodes[0]", "equal to 255"
    ),
    "budget": Case({"spec.budget.maximumCost": 0}, "spec.budget.maximumCost", "greater than 0"),
    "long-pool-name": Case(pool(name="a" * 31), f"{POOLS}[0].name", "Too long: may not be more than 30 bytes"),
    "long-name": Case({"metadata.name": "a" * 44}, "metadata.name", "at most 43 characters"),
    # What is spelled wrongly.
    "name-of-digits": Case({"metadata.name": "4cart"}, "metadata.name", "beginning with a letter"),
    "pool-name": Case(pool(name="Spot"), f"{POOLS}[0].name", "should match"),
    "duration": Case({"spec.stop.wallClock": "1.5h"}, "spec.stop.wallClock", "should match"),
    "duration-without-unit": Case({"spec.ttlAfterFinished": "90"}, "spec.ttlAfterFinished", "should match"),
    "quantity": Case(pool(resources={"memory": "4GB"}), f"{POOLS}[0].resources.memory", "should match"),
    "image": Case({"spec.image": "rlcore cpu"}, "spec.image", "should match"),
    "ray-version": Case({"spec.rayVersion": "2.9rc1"}, "spec.rayVersion", "should match"),
    "url": Case({"spec.checkpoint.storage": {"uri": "bucket/a"}}, "spec.checkpoint.storage.uri", "should match"),
    "claim": Case(
        {"spec.checkpoint.storage": {"persistentVolumeClaim": "My_Claim"}},
        "spec.checkpoint.storage.persistentVolumeClaim",
        "should match",
    ),
    "environment": Case({"spec.environment.id": "Cart Pole"}, "spec.environment.id", "should match"),
    "environment-module": Case({"spec.environment.id": "my-module:make"}, "spec.environment.id", "should match"),
    "environment-without-factory": Case({"spec.environment.id": "envs:"}, "spec.environment.id", "should match"),
    "environment-of-three": Case({"spec.environment.id": "a:b:c"}, "spec.environment.id", "should match"),
    "model": Case({"spec.model.custom": "Net"}, "spec.model.custom", "should match"),
    "priority-class": Case(pool(priorityClassName="High!"), f"{POOLS}[0].priorityClassName", "should match"),
    "toleration": Case(
        pool(tolerations=[{"effect": "NoScheduling"}]), f"{POOLS}[0].tolerations[0].effect", "supported values"
    ),
    # What does not go together.
    "minibatch": Case(
        {"spec.config.minibatchSize": 4096}, "spec.config.minibatchSize", "must not be more than trainBatchSize"
    ),
    "pool-limits": Case(pool(minReplicas=3), f"{POOLS}[0].minReplicas", "must not be more than maxReplicas"),
    "pool-limit-below-default": Case(pool(maxReplicas=0), f"{POOLS}[0].minReplicas", "1 where it is left out"),
    "same-pool-twice": Case(
        {POOLS: [{"name": "a", "maxReplicas": 1}] * 2}, f"{POOLS}[1].name", "Duplicate value", f"{POOLS}[1]"
    ),
    "reserved-pool": Case(pool(name="learner"), f"{POOLS}[0].name", "a pool cannot be called"),
    "atari-alone": Case({"spec.environment.atari": {"frameSkip": 4}}, "spec.environment.atari", "wrappers: atari"),
    "convolutions": Case({"spec.model": TWO_CONVOLUTIONS}, "spec.model.convPreset", "cannot be used together"),
    "model-arguments": Case({"spec.model.customKwargs": {"a": 1}}, "spec.model.customKwargs", "only with custom"),
    "two-places": Case(
        {"spec.checkpoint.storage": {"path": "/a", "uri": "s3://a"}},
        "spec.checkpoint.storage.uri",
        "at most one of path, uri",
        "spec.checkpoint.storage",
    ),
    "trials": Case(
        {"spec.population": {"size": 2, "concurrentTrials": 3, "mutations": [{"parameter": "gamma", "values": [1]}]}},
        "spec.population.concurrentTrials",
        "must not be more than size",
    ),
    "range-and-values": Case(
        mutation(values=[1], minimum=0, maximum=1), f"{MUTATIONS}[0].values", "give either", f"{MUTATIONS}[0]"
    ),
    "range-upside-down": Case(mutation(minimum=1, maximum=0.5), f"{MUTATIONS}[0].minimum", "less than maximum"),
    "logarithm-of-zero": Case(
        mutation(minimum=0, maximum=1, scale="log"), f"{MUTATIONS}[0].minimum", "needs a minimum above 0"
    ),
}


def changed(change: dict[str, Any]) -> Manifest:
    """The example with a change."""
    result = copy.deepcopy(EXAMPLE)
    for path, value in change.items():
        *parents, last = path.split(".")
        node = result
        for name in parents:
            node = node.setdefault(name, {})
        if value is REMOVED:
            del node[last]
        else:
            node[last] = _without_removed(value)
    return result


def _without_removed(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_removed(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_removed(item) for key, item in value.items() if item is not REMOVED}
    return value


def refusal(job: Job, document: Manifest) -> str:
    """What `kubectl apply` says of a manifest that it must not take."""
    done = job.cluster.kubectl("apply", "-n", job.namespace, "-f", "-", input=yaml.safe_dump(document), check=False)
    assert done.returncode, f"accepted: {done.stdout}"
    return done.stderr


@pytest.fixture(scope="module")
def anywhere(operated: Operated) -> Job:
    """A job that never comes to be."""
    return operated.job("default")


def test_there_are_more_than_forty() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_kubectl_apply_is_refused_with_the_field_and_the_reason(anywhere: Job, case: Case) -> None:
    said = refusal(anywhere, changed(case.change))
    assert (case.server_field or case.field) in said
    assert case.words in said
    assert case.field.rpartition(".")[2].partition("[")[0] in said


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_rlcore_validate_finds_the_same_field_wrong_without_a_cluster(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(changed(case.change)))
    assert run_cli(["validate", "--output", "json", str(path)]) == 2
    (verdict,) = json.loads(capsys.readouterr().out)["files"]
    paths = [problem["path"] for problem in verdict["problems"]]
    assert any(found.startswith(case.field) for found in paths), verdict


def test_nothing_of_it_came_to_be(anywhere: Job) -> None:
    assert json.loads(anywhere.kubectl("get", "rlj", "-o", "json"))["items"] == []


WISHES: dict[str, list[Any]] = {
    "environment": [{"id": "Acrobot-v1"}, {"id": "CartPole-v1", "kwargs": {"render_mode": "ansi"}}],
    "config": [{**EXAMPLE["spec"]["config"], "gamma": 0.5}, {}, REMOVED],
    "model": [{"hiddens": [32]}, REMOVED],
    "seed": [1, REMOVED],
    "optimizer": ["SyncSamples"],
    "multiAgent": [AGENTS],
    "population": [mutation(values=[0.9, 0.99])["spec.population"]],
}
"""Field of spec -> what somebody wants it to be."""


@pytest.fixture(scope="module")
def unchangeable(operated: Operated) -> Iterator[Job]:
    """A job that is there, and rests."""
    with fresh_namespace(operated.cluster, "unchangeable") as namespace:
        yield operated.job(namespace).apply(suspend=True)


@pytest.mark.parametrize("field", WISHES)
def test_what_is_trained_cannot_change_nor_be_added_nor_be_removed(unchangeable: Job, field: str) -> None:
    for wish in WISHES[field]:
        document = changed({f"spec.{field}": wish, "spec.suspend": True})
        said = refusal(unchangeable, document)
        assert f"spec.{field}: Invalid value" in said
        assert f"{field} cannot change after creation: make a new RLJob" in said


def test_the_rest_can_change(unchangeable: Job) -> None:
    unchangeable.patch({"evaluation": {"every": 5}})
    assert unchangeable.get()["spec"]["evaluation"]["every"] == 5


def test_kubectl_explain_documents_every_parameter(anywhere: Job) -> None:
    said = " ".join(anywhere.kubectl("explain", "rljob.spec.config").split())
    for name, field in PPOConfig.model_fields.items():
        _, _, after = said.partition(f" {field.alias or name} <")
        assert after, f"{field.alias or name} is missing"
        description = str(field.description)
        assert description.split(";")[0].rstrip(".") in after[:400], name
        assert "Default:" in after[:600], name
