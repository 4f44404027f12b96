"""The API server and `rlcore validate` give the same answer: a table of manifests, valid and not.

Three layers can refuse a manifest, and the offline check knows all of them:
    schema   the OpenAPI schema, unknown fields included
    cel      a CEL rule of the CRD; not run here, so that the schema alone must let it pass
    offline  what neither can say, such as the range of a duration; the operator says it in the condition Valid
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rlcore.api import RLJob, load_job, parse_job
from rlcore.api.crd import custom_resource_definition
from rlcore.api.problems import InvalidManifestError
from rlcore.api.yaml_tree import parse_documents

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SCHEMA = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

MINIMAL: dict[str, Any] = {
    "apiVersion": "rlcore.io/v1alpha1",
    "kind": "RLJob",
    "metadata": {"name": "job"},
    "spec": {"algorithm": "PPO", "environment": {"id": "CartPole-v1"}, "stop": {"timesteps": 1000}},
}
REMOVED = object()


def manifest(path: str, value: Any) -> dict[str, Any]:
    """The minimal manifest with one value put in, or taken out, at a dotted path."""
    result = copy.deepcopy(MINIMAL)
    *parents, last = path.split(".")
    node = result
    for name in parents:
        node = node.setdefault(name, {})
    if value is REMOVED:
        del node[last]
    else:
        node[last] = value
    return result


def as_json_schema(node: dict[str, Any]) -> dict[str, Any]:
    """The CRD's schema in words that jsonschema knows, unknown fields refused."""
    result = {key: value for key, value in node.items() if key not in ("nullable", "format", "description")}
    if node.get("x-kubernetes-int-or-string"):
        result["type"] = ["integer", "string"]
    if "properties" in node:
        result["properties"] = {name: as_json_schema(child) for name, child in node["properties"].items()}
        result["additionalProperties"] = False
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = as_json_schema(node["additionalProperties"])
    if "items" in node:
        result["items"] = as_json_schema(node["items"])
    if node.get("nullable"):
        result["type"] = [node["type"], "null"]
    return result


VALIDATOR = jsonschema.Draft4Validator(as_json_schema(SCHEMA))


def without_nulls(value: Any, node: dict[str, Any]) -> Any:
    """The API server drops nulls of fields that are not nullable, before it validates."""
    if isinstance(value, list):
        return [without_nulls(item, node.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    properties = node.get("properties", {})
    kept = {
        name: child
        for name, child in value.items()
        if child is not None or name not in properties or properties[name].get("nullable")
    }
    return {name: without_nulls(child, properties.get(name, {})) for name, child in kept.items()}


def schema_errors(job: dict[str, Any]) -> list[str]:
    """What the API server's schema has against a manifest; CEL rules apart."""
    job = without_nulls(job, SCHEMA)
    errors = [f"{'.'.join(map(str, error.path))}: {error.message}" for error in VALIDATOR.iter_errors(job)]
    pools = job.get("spec", {}).get("evaluators", {}).get("pools", [])
    names = [pool.get("name") for pool in pools if isinstance(pool, dict)]
    return errors + (["spec.evaluators.pools: Duplicate value"] if len(set(names)) < len(names) else [])


def offline_problems(job: dict[str, Any]) -> list[str]:
    """What `rlcore validate` has against it, as "path: message"."""
    try:
        parse_job(yaml.safe_dump(job, sort_keys=False), source="job.yaml")
    except InvalidManifestError as error:
        return [f"{problem.path}: {problem.message}" for problem in error.problems]
    return []


def pool(**changes: Any) -> list[dict[str, Any]]:
    return [{"name": "a", "maxReplicas": 2, **changes}]


def mutation(**changes: Any) -> list[dict[str, Any]]:
    return [{"parameter": "gamma", **changes}]


MULTI_AGENT = {"policies": {"a": {}, "b": {"model": {"hiddens": [8]}}}, "mapping": "m:f"}


def against(opponent: str, **fields: Any) -> dict[str, Any]:
    """spec.multiAgent with self-play of "a" against `opponent`."""
    return {"policies": {"a": {}, "b": {}}, "selfPlay": {"policy": "a", "opponents": [opponent], **fields}}


POINTS = [{"timesteps": 0, "value": 1e-3}, {"timesteps": 10, "value": 0}]

VALID = [
    ("spec.config", {"gamma": 1, "learningRate": 0.5, "numEpochs": 1}),
    ("spec.config", None),
    ("spec.config.learningRateSchedule", POINTS),
    ("spec.config.learningRateSchedule", None),
    ("spec.config.trainBatchSize", 256),
    ("spec.optimizer", "SyncSamples"),
    ("spec.optimizer", None),
    ("spec.environment.id", "package.module:factory"),
    ("spec.environment.id", "MinAtar/Breakout-v1"),
    ("spec.environment.id", "pettingzoo.butterfly.pistonball_v6:parallel_env"),
    ("spec.environment.kwargs", {"a": {"b": [1, None, {"c": 2.5}]}}),
    ("spec.environment.maxEpisodeSteps", None),
    ("spec.environment", {"id": "ALE/Pong-v5", "wrappers": "atari", "atari": {"frameStack": 2}}),
    ("spec.model", {"hiddens": [], "convPreset": "nature", "lstmSize": 8, "shareValueLayers": True}),
    ("spec.model.convLayers", [{"filters": 8, "kernel": 3}]),
    ("spec.model", {"custom": "my.models:Net", "customKwargs": {"x": 1}}),
    ("spec.multiAgent", MULTI_AGENT),
    ("spec.multiAgent", {**MULTI_AGENT, "train": ["a"]}),
    ("spec.multiAgent", {**MULTI_AGENT, "mapping": None}),
    ("spec.multiAgent", against("b", winRate=0.6)),
    ("spec.population.mutations", mutation(minimum=0.9, maximum=1)),
    ("spec.population.mutations", mutation(values=[0.9, 0.99])),
    ("spec.stop", {"wallClock": "1h30m"}),
    ("spec.stop", {"episodeReward": -5, "timesteps": None}),
    ("spec.seed", 0),
    ("spec.evaluators.replicas", 0),
    ("spec.evaluators.replicas", None),
    ("spec.evaluators.pools", pool(minReplicas=0, preemptible=True, idleTimeout="5m")),
    ("spec.evaluators.pools", pool(resources={"cpu": 2, "memory": "4Gi", "extra": {"ephemeral-storage": "1Gi"}})),
    ("spec.evaluators.pools", pool(tolerations=[{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}])),
    (
        "spec.evaluators.pools",
        pool(nodeSelector={"cloud.google.com/gke-spot": "true"}, podTemplate={"spec": {"x": []}}),
    ),
    ("spec.learner", {"replicas": 2, "gpus": 8, "gpuResource": "amd.com/gpu", "image": "r/x:1"}),
    ("spec.head.resources", {"cpu": "1500m"}),
    ("spec.checkpoint", {"every": "30s", "keep": 1, "storage": {"uri": "s3://bucket/a"}}),
    ("spec.checkpoint.storage", {"newClaim": {"size": "5Gi", "accessMode": "ReadWriteMany"}}),
    ("spec.restartPolicy", {"maxRestarts": 0, "backoff": "1s"}),
    ("spec.stallTimeout", None),
    ("spec.ttlAfterFailed", "0s"),
    ("spec.budget", {"pricePerHour": {"head": 0.1, "evaluators": 0}, "maximumCost": 50}),
    ("spec.rayVersion", "2.60.0"),
    ("spec.runtimeEnv", {"pip": ["x"], "env_vars": {"A": "b"}}),
    ("spec.envFrom", [{"prefix": "A_", "secretRef": {"name": "s", "optional": True}}]),
    ("spec.imagePullSecrets", [{"name": "registry"}]),
    ("status", {"phase": "Running"}),
    ("metadata", {"name": "job", "namespace": "rl", "labels": {"a": "b"}}),
]

INVALID = [
    # (where, what, the offline message, the layer of the API server that refuses it)
    ("spec", REMOVED, "spec: is required and missing", "schema"),
    ("spec.algorithm", REMOVED, "spec.algorithm: is required and missing", "schema"),
    ("spec.algorithm", "PPPO", 'spec.algorithm: "PPPO" is not allowed; allowed: PPO', "schema"),
    ("spec.environment", REMOVED, "spec.environment: is required and missing", "schema"),
    ("spec.environment.id", REMOVED, "spec.environment.id: is required and missing", "schema"),
    ("spec.environment.id", "", "spec.environment.id: is empty", "schema"),
    ("spec.environment.id", "Cart Pole", 'spec.environment.id: "Cart Pole" is not allowed', "schema"),
    ("spec.environment.id", 5, "spec.environment.id: 5 is not text", "schema"),
    ("spec.environment.kwargs", [1], "spec.environment.kwargs: [1] is not a mapping", "schema"),
    ("spec.environment.wrappers", "ataris", "did you mean atari?", "schema"),
    ("spec.environment.vectorisation", "sync", "did you mean vectorization?", "schema"),
    ("spec.environment.maxEpisodeSteps", 0, "spec.environment.maxEpisodeSteps: 0 is out of range", "schema"),
    ("spec.environment.atari", {"frameSkip": 4}, "spec.environment.atari: is used only with wrappers: atari", "cel"),
    (
        "spec.environment",
        {"id": "a", "wrappers": "atari", "atari": {"stickyActionProbability": 1.5}},
        "spec.environment.atari.stickyActionProbability: 1.5 is out of range; allowed: 0 to 1",
        "schema",
    ),
    ("spec.optimizer", "AsyncReplays", 'spec.optimizer: "AsyncReplays" is not allowed', "schema"),
    ("spec.config", [], "spec.config: [] is not a mapping", "schema"),
    ("spec.config.gama", 0.9, "spec.config.gama: PPO has no such field; did you mean gamma?", "schema"),
    ("spec.config.learning_rate", 0.1, "did you mean learningRate?", "schema"),
    ("spec.config.gamma", 1.01, "spec.config.gamma: 1.01 is out of range; allowed: 0 to 1", "schema"),
    ("spec.config.gamma", "0.9", 'spec.config.gamma: "0.9" is not a number', "schema"),
    ("spec.config.gamma", True, "spec.config.gamma: true is not a number", "schema"),
    ("spec.config.learningRate", 0, "spec.config.learningRate: 0 is out of range; allowed: more than 0", "schema"),
    ("spec.config.numEpochs", 2.5, "spec.config.numEpochs: 2.5 is not a whole number", "schema"),
    ("spec.config.trainBatchSize", -1, "spec.config.trainBatchSize: -1 is out of range", "schema"),
    ("spec.config.batchMode", "complete", "allowed: truncate, completeEpisodes", "schema"),
    ("spec.config.normalizeAdvantages", "yes", "is not true or false", "schema"),
    ("spec.config.fragmentLength", 0, "spec.config.fragmentLength: 0 is out of range", "schema"),
    ("spec.config.learningRateSchedule", [], "spec.config.learningRateSchedule: is empty", "schema"),
    ("spec.config.learningRateSchedule", POINTS[0], "is not a list", "schema"),
    ("spec.config.clipRangeSchedule", POINTS[::-1], "clipRangeSchedule[1].timesteps: 0 does not come after", "offline"),
    ("spec.config", {"minibatchSize": 9, "trainBatchSize": 8}, "minibatchSize: 9 is more than trainBatchSize 8", "cel"),
    ("spec.config.trainBatchSize", 64, "minibatchSize: 128 (the default) is more than trainBatchSize 64", "offline"),
    ("spec.model.hiddens", [64, 0], "spec.model.hiddens[1]: 0 is out of range", "schema"),
    ("spec.model.hiddens", 64, "spec.model.hiddens: 64 is not a list", "schema"),
    ("spec.model.hiddens", [8] * 17, "spec.model.hiddens: ", "schema"),
    ("spec.model.activation", "gelu", 'spec.model.activation: "gelu" is not allowed', "schema"),
    ("spec.model.custom", "Net", 'spec.model.custom: "Net" is not allowed', "schema"),
    ("spec.model.customKwargs", {"a": 1}, "spec.model.customKwargs: is used only with custom", "cel"),
    (
        "spec.model",
        {"convPreset": "nature", "convLayers": [{"filters": 1, "kernel": 1}]},
        "spec.model.convPreset: cannot be used with convLayers",
        "cel",
    ),
    ("spec.multiAgent.train", ["a"], "spec.multiAgent.policies: is required and missing", "schema"),
    (
        "spec.multiAgent",
        {**MULTI_AGENT, "mapping": "some.f"},
        'spec.multiAgent.mapping: "some.f" is not allowed',
        "schema",
    ),
    ("spec.multiAgent", {**MULTI_AGENT, "selfPlay": {"policy": "a"}}, "opponents: is required and missing", "schema"),
    ("spec.multiAgent", against("c"), 'selfPlay.opponents[0]: "c" is not one of the policies: a, b', "cel"),
    ("spec.multiAgent", against("a"), "selfPlay", "cel"),
    ("spec.multiAgent", against("b", snapshotEvery=None), "one of snapshotEvery and winRate must be set", "offline"),
    ("spec.algorithm", "MADDPG", "spec.multiAgent: MADDPG trains several agents together", "cel"),
    ("spec.multiAgent", {**MULTI_AGENT, "policies": {}}, "spec.multiAgent.policies: is empty", "schema"),
    ("spec.multiAgent", {**MULTI_AGENT, "train": ["c"]}, '"c" is not one of the policies: a, b', "cel"),
    ("spec.multiAgent", {**MULTI_AGENT, "policies": {"a b": {}}}, 'spec.multiAgent.policies["a b"]: ', "offline"),
    ("spec.population.mutations", [], "spec.population.mutations: is empty", "schema"),
    ("spec.population.mutations", mutation(minimum=1), "mutations[0].maximum: is missing", "cel"),
    ("spec.population.mutations", mutation(minimum=1, maximum=0.5), "minimum: 1 is not less than maximum 0.5", "cel"),
    ("spec.population.mutations", mutation(values=[1], minimum=0), "cannot be used with minimum and maximum", "cel"),
    ("spec.population.mutations", mutation(minimum=0, maximum=1, scale="log"), "0 has no logarithm", "cel"),
    ("spec.population.mutations", mutation(values=[1]) * 2, '"gamma" is already in mutations[0]', "offline"),
    ("spec.population.mutations", [{"parameter": "gama", "values": [1]}], '"gama" is not a number of PPO', "offline"),
    (
        "spec.population",
        {"size": 2, "concurrentTrials": 3, "mutations": mutation(values=[1])},
        "spec.population.concurrentTrials: 3 is more than size 2",
        "cel",
    ),
    ("spec.stop", REMOVED, "spec.stop: is required and missing", "schema"),
    ("spec.stop", {}, "spec.stop: needs at least one of timesteps", "cel"),
    ("spec.stop", {"timesteps": None}, "spec.stop: needs at least one of timesteps", "cel"),
    ("spec.stop", {"timesteps": 0}, "spec.stop.timesteps: 0 is out of range", "schema"),
    ("spec.stop", {"wallClock": 90}, "spec.stop.wallClock: 90 has no unit", "schema"),
    ("spec.stop", {"wallClock": "1.5h"}, 'spec.stop.wallClock: "1.5h" is not a duration', "schema"),
    ("spec.stop", {"wallClock": "0s"}, "spec.stop.wallClock: 0s is out of range; allowed: 1s to 366d", "offline"),
    ("spec.evaluation.episodes", 0, "spec.evaluation.episodes: 0 is out of range", "schema"),
    ("spec.seed", -1, "spec.seed: -1 is out of range", "schema"),
    ("spec.seed", "0", 'spec.seed: "0" is not a whole number: write 0 without quotes', "schema"),
    ("spec.evaluators.pools", [], "spec.evaluators.pools: is empty", "schema"),
    ("spec.evaluators.pools", pool(maxReplicas=None), "pools[0].maxReplicas: is required and missing", "schema"),
    ("spec.evaluators.pools", pool(minReplicas=8), "pools[0].minReplicas: 8 is more than maxReplicas 2", "cel"),
    ("spec.evaluators.pools", pool(maxReplicas=0), "1 (the default) is more than maxReplicas 0", "cel"),
    ("spec.evaluators.pools", pool() * 2, 'pools[1].name: "a" is also the name of pools[0]', "schema"),
    ("spec.evaluators.pools", pool(name="learner"), 'pools[0].name: "learner" is taken', "cel"),
    ("spec.evaluators.pools", pool(name="Spot"), 'pools[0].name: "Spot" is not allowed', "schema"),
    ("spec.evaluators.pools", pool(name="a" * 31), "has 31 characters; allowed: 1 to 30 characters", "schema"),
    ("spec.evaluators.pools", pool(resources={"cpu": 0.5}), 'cpu: 0.5 is a fraction; write "500m"', "schema"),
    ("spec.evaluators.pools", pool(resources={"memory": "4GB"}), '"4GB" is not a quantity', "schema"),
    ("spec.evaluators.pools", pool(resources={"gpu": 1}), "resources.gpu: unknown field", "schema"),
    ("spec.evaluators.pools", pool(nodeSelector={"a": True}), "nodeSelector.a: true is not text", "schema"),
    ("spec.evaluators.pools", pool(tolerations=[{"effect": "Never"}]), "tolerations[0].effect: ", "schema"),
    ("spec.evaluators.envsPerEvaluator", 0, "spec.evaluators.envsPerEvaluator: 0 is out of range", "schema"),
    ("spec.learner.gpus", -1, "spec.learner.gpus: -1 is out of range", "schema"),
    ("spec.learner.replicas", 0, "spec.learner.replicas: 0 is out of range", "schema"),
    ("spec.checkpoint.every", "5", 'spec.checkpoint.every: "5" is not a duration', "schema"),
    ("spec.checkpoint.keep", 0, "spec.checkpoint.keep: 0 is out of range", "schema"),
    ("spec.checkpoint.storage.uri", "bucket/a", "a URL such as s3://bucket/prefix", "schema"),
    ("spec.checkpoint.storage", {"path": "/a", "uri": "s3://a"}, "storage.uri: cannot be used with path", "cel"),
    ("spec.checkpoint.storage.persistentVolumeClaim", "A", "lower-case letters, digits", "schema"),
    ("spec.restartPolicy.maxRestarts", -1, "spec.restartPolicy.maxRestarts: -1 is out of range", "schema"),
    ("spec.suspend", "no", 'spec.suspend: "no" is not true or false', "schema"),
    ("spec.ttlAfterFinished", "soon", 'spec.ttlAfterFinished: "soon" is not a duration', "schema"),
    ("spec.budget.pricePerHour", {"spot": 1}, "spec.budget.pricePerHour.spot: there is no such pool", "offline"),
    ("spec.budget.maximumCost", 0, "spec.budget.maximumCost: 0 is out of range", "schema"),
    ("spec.rayVersion", "2.9", 'spec.rayVersion: "2.9" ', "schema"),
    ("spec.rayVersion", "2.40.0", "spec.rayVersion: 2.40.0 is older than 2.52.0", "offline"),
    ("spec.image", "a b", 'spec.image: "a b" is not allowed', "schema"),
    ("spec.imagePullPolicy", "always", "did you mean Always?", "schema"),
    ("spec.envFrom", [{"secretRef": {}}], "spec.envFrom[0].secretRef.name: is required and missing", "schema"),
    ("spec.gamma", 0.9, "spec.gamma: unknown field; did you mean spec.config.gamma?", "schema"),
    ("metadata.name", "Job", 'metadata.name: "Job" is not allowed', "cel"),
    ("metadata.name", "a" * 44, "has 44 characters; allowed: 1 to 43 characters", "cel"),
]


def ids(case: object) -> str | None:
    return re.sub(r"[^\w.]+", "_", case)[:40] if isinstance(case, str) else "-"


def test_the_tables_are_large_enough() -> None:
    assert len(INVALID) >= 40
    assert offline_problems(MINIMAL) == schema_errors(MINIMAL) == []


@pytest.mark.parametrize(("path", "value"), VALID, ids=ids)
def test_what_is_valid_is_valid_to_both(path: str, value: Any) -> None:
    job = manifest(path, value)
    assert offline_problems(job) == []
    assert schema_errors(job) == []


@pytest.mark.parametrize(("path", "value", "message", "layer"), INVALID, ids=ids)
def test_what_is_invalid_is_refused_offline_and_by_the_layer_it_says(
    path: str, value: Any, message: str, layer: str
) -> None:
    job = manifest(path, value)
    problems = offline_problems(job)
    assert any(message in problem for problem in problems), problems
    errors = schema_errors(job)
    assert bool(errors) == (layer == "schema"), errors


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid_to_both_and_named_like_its_file(path: Path) -> None:
    job = load_job(path)
    assert isinstance(job, RLJob)
    assert job.metadata.name == path.stem
    (document,) = parse_documents(path.read_text())
    assert schema_errors(document.value) == []


def test_the_examples_of_the_readme_are_there() -> None:
    assert {path.stem for path in EXAMPLES} >= {
        "cartpole-ppo",
        "pendulum-ppo",
        "lunarlander-ppo",
        "pong-ppo",
        "minatar-breakout-ppo",
    }
