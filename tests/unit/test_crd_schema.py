"""The generated CRD: structural, complete, documented, bounded, and the same as the file in crds/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlcore.api.algorithms import ALGORITHMS, AlgorithmInfo
from rlcore.api.algorithms.ppo import PPOConfig
from rlcore.api.cel import IMMUTABLE_OPTIONAL, IMMUTABLE_REQUIRED, rules
from rlcore.api.crd import FILE_NAME, MAX_SIZE_BYTES, custom_resource_definition, main, node_at, render

ROOT = Path(__file__).parents[2]
CRD = custom_resource_definition()
VERSION = CRD["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]

Schema = dict[str, Any]

FORBIDDEN = {
    "$ref",
    "$defs",
    "definitions",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "const",
    "patternProperties",
    "propertyNames",
    "dependencies",
    "deprecated",
    "discriminator",
    "id",
    "readOnly",
    "writeOnly",
    "xml",
    "examples",
    "title",
    "default",
}
"""Not allowed in a structural schema, or not wanted here: a default would be frozen into stored jobs."""

ALLOWED = {
    "type",
    "format",
    "description",
    "nullable",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
}


def nodes(node: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema node below and including one, with its path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from nodes(node["additionalProperties"], f"{path}{{}}")


def structural_violations(schema: Schema) -> list[str]:
    """Kubernetes' rules for structural schemas, and what bounds the cost of CEL rules."""
    found = []
    for path, node in nodes(schema):
        kind = node.get("type")
        int_or_string = node.get("x-kubernetes-int-or-string", False)
        found += [f"{path}: {key} is not allowed" for key in node if key in FORBIDDEN or key not in ALLOWED]
        if int_or_string == (kind is not None):
            found.append(f"{path}: needs a type, or to be an int-or-string")
        if kind not in (None, "object", "array", "string", "integer", "number", "boolean"):
            found.append(f"{path}: unknown type {kind}")
        if "properties" in node and "additionalProperties" in node:
            found.append(f"{path}: properties and additionalProperties exclude each other")
        if "properties" in node and kind != "object":
            found.append(f"{path}: properties need type object")
        if (kind == "array") != ("items" in node):
            found.append(f"{path}: items belong to arrays")
        if kind == "array" and "maxItems" not in node:
            found.append(f"{path}: an array without maxItems")
        if "additionalProperties" in node and "maxProperties" not in node:
            found.append(f"{path}: a map without maxProperties")
        if kind == "string" and "maxLength" not in node and "enum" not in node and path not in (".apiVersion", ".kind"):
            found.append(f"{path}: a string without maxLength")
        if kind == "object" and path and not ({"properties", "additionalProperties"} & node.keys()):
            free = node.get("x-kubernetes-preserve-unknown-fields") or path == ".metadata"
            if not free:
                found.append(f"{path}: an object of nothing")
        if node.get("nullable") and "enum" in node:
            found.append(f"{path}: the API server refuses null against any enum")
        found += [
            f"{path}: required {name} is no property"
            for name in node.get("required", [])
            if name not in node.get("properties", {})
        ]
    return found


def test_the_schema_is_structural_and_bounded() -> None:
    assert structural_violations(SCHEMA) == []


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        ({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}}}, "anyOf is not allowed"),
        ({"type": "object", "properties": {"a": {}}}, "needs a type"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "items belong to arrays"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, "without maxLength"),
        ({"type": "object", "properties": {"a": {"type": "integer", "default": 5}}}, "default is not allowed"),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, "an object of nothing"),
    ],
)
def test_the_checker_sees_what_is_not_structural(broken: Schema, complaint: str) -> None:
    assert any(complaint in violation for violation in structural_violations(broken))


def test_the_file_in_crds_is_what_the_models_say() -> None:
    assert (ROOT / "crds" / FILE_NAME).read_text(encoding="utf-8") == render(), "run `make crds`"


def test_check_tells_an_old_file_from_a_new_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "crds")
    assert main(["--check", "--output", folder]) == 1
    assert "is out of date: run `make crds`" in capsys.readouterr().err
    assert main(["--output", folder]) == 0
    assert main(["--check", "--output", folder]) == 0
    (tmp_path / "crds" / FILE_NAME).write_text("old")
    assert main(["--check", "--output", folder]) == 1


def test_the_file_is_plain_yaml_and_small_enough_for_client_side_apply() -> None:
    text = render()
    assert len(text.encode()) < MAX_SIZE_BYTES
    assert yaml.safe_load(text) == CRD
    assert not re.search(r"[&*]id\d", text), "no anchors"


def test_names_and_subresources() -> None:
    assert CRD["metadata"]["name"] == "rljobs.rlcore.io"
    assert CRD["spec"]["group"] == "rlcore.io"
    assert CRD["spec"]["scope"] == "Namespaced"
    names = CRD["spec"]["names"]
    assert (names["kind"], names["plural"], names["shortNames"], names["categories"]) == (
        "RLJob",
        "rljobs",
        ["rlj"],
        ["all"],
    )
    assert VERSION["name"] == "v1alpha1"
    assert VERSION["subresources"]["status"] == {}


def at_json_path(path: str) -> Schema:
    return node_at(SCHEMA, path.removeprefix(".").split("."))


def test_the_scale_subresource_points_at_fields_that_exist() -> None:
    scale = VERSION["subresources"]["scale"]
    assert at_json_path(scale["specReplicasPath"])["type"] == "integer"
    assert at_json_path(scale["specReplicasPath"])["nullable"], "null gives the pools back to the autoscaler"
    assert at_json_path(scale["statusReplicasPath"])["type"] == "integer"
    assert at_json_path(scale["labelSelectorPath"])["type"] == "string"


@pytest.mark.parametrize("column", VERSION["additionalPrinterColumns"], ids=lambda column: column["name"])
def test_printer_columns_show_fields_of_their_type(column: dict[str, Any]) -> None:
    if column["jsonPath"] == ".metadata.creationTimestamp":
        assert column["type"] == "date"
    else:
        assert at_json_path(column["jsonPath"])["type"] == column["type"]


def test_get_shows_what_a_user_looks_for() -> None:
    shown = [column["name"] for column in VERSION["additionalPrinterColumns"] if not column.get("priority")]
    assert shown == ["Algorithm", "Environment", "Phase", "Reward", "Timesteps", "Steps/s", "Ready", "Target", "Age"]


def spec_fields() -> list[tuple[str, Schema]]:
    return [
        (path, node)
        for path, node in nodes(SCHEMA["properties"]["spec"], "spec")
        if not path.endswith(("[]", "{}")) and path != "spec"
    ]


def test_kubectl_explain_documents_every_field() -> None:
    for path, node in spec_fields():
        description = node.get("description", "")
        assert description, path
        if node.get("type") in ("integer", "number", "string", "boolean", "array"):
            assert re.search(r"(Required|Default: .+|default: .+)\.$", description), f"{path}: {description}"
        if node.get("type") in ("integer", "number"):
            assert "Range: " in description, path
        if node.get("nullable"):
            assert "null" in description, path


def test_numbers_have_ranges() -> None:
    for path, node in spec_fields():
        if node.get("type") in ("integer", "number"):
            assert {"minimum", "maximum"} <= node.keys(), path


def test_hyper_parameters_are_those_of_the_algorithms() -> None:
    config = node_at(SCHEMA, ("spec", "config"))
    fields = [field for info in ALGORITHMS.values() for field in info.config.model_fields.items()]
    assert set(config["properties"]) == {info.alias or name for name, info in fields}
    assert "required" not in config
    assert config["properties"]["clipRange"]["exclusiveMinimum"] is True
    assert config["properties"]["clipRange"]["minimum"] == 0


def test_only_free_form_fields_keep_unknown_ones() -> None:
    free = {path for path, node in nodes(SCHEMA) if node.get("x-kubernetes-preserve-unknown-fields")}
    names = {re.split(r"[.\[]", path.removesuffix("[]"))[-1] for path in free}
    assert names == {"kwargs", "customKwargs", "affinity", "topologySpreadConstraints", "podTemplate", "runtimeEnv"}


def test_every_rule_reads_fields_that_exist_at_its_place() -> None:
    for rule in rules(ALGORITHMS):
        node = node_at(SCHEMA, rule.path)
        for name in re.findall(r"\b(?:self|oldSelf)\.(\w+)", rule.rule):
            assert name in node["properties"], f"{rule.path}: {rule.rule}"
        assert {"rule": rule.rule, "message": rule.message}.items() <= next(
            entry for entry in node["x-kubernetes-validations"] if entry["rule"] == rule.rule
        ).items()


def test_optional_fields_are_read_behind_has() -> None:
    for rule in rules(ALGORITHMS):
        node = node_at(SCHEMA, rule.path)
        optional = set(node["properties"]) - set(node.get("required", []))
        for name in optional & set(re.findall(r"(?<!has\()\bself\.(\w+)", rule.rule)):
            assert f"has(self.{name})" in rule.rule or rule.path == (), f"{rule.path}: {rule.rule}"


def test_what_is_trained_cannot_change_once_it_was_valid() -> None:
    entries = SCHEMA["x-kubernetes-validations"]
    by_message = {entry["message"]: entry for entry in entries}
    for name in (*IMMUTABLE_REQUIRED, *IMMUTABLE_OPTIONAL):
        entry = by_message[f"{name} cannot change after creation: make a new RLJob"]
        assert f"self.spec.{name} == oldSelf.spec.{name}" in entry["rule"]
        assert "!has(oldSelf.status.startedAt)" in entry["rule"]
        assert entry["fieldPath"] == f".spec.{name}"
        if name in IMMUTABLE_OPTIONAL:
            assert f"has(self.spec.{name}) == has(oldSelf.spec.{name})" in entry["rule"], "or a removal slips through"
    assert {"algorithm", "environment", "config", "seed"} <= {*IMMUTABLE_REQUIRED, *IMMUTABLE_OPTIONAL}


def test_another_algorithm_needs_one_entry_only() -> None:
    class DQNConfig(PPOConfig):
        replay_capacity: int = PPOConfig.model_fields["num_epochs"]

    both = {
        "PPO": AlgorithmInfo("PPO", PPOConfig, ("LocalMultiGPU", "SyncSamples")),
        "DQN": AlgorithmInfo("DQN", DQNConfig, ("AsyncReplay", "SyncSamples")),
    }
    schema = custom_resource_definition(both)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert structural_violations(schema) == []
    spec = node_at(schema, ("spec",))
    assert spec["properties"]["algorithm"]["enum"] == ["PPO", "DQN"]
    assert spec["properties"]["optimizer"]["enum"] == ["AsyncReplay", "LocalMultiGPU", "SyncSamples"]
    assert "replayCapacity" in spec["properties"]["config"]["properties"]
    messages = [entry["message"] for entry in spec["x-kubernetes-validations"]]
    assert "config of PPO must not have any of replayCapacity" in messages
    assert "optimizer of DQN must be one of AsyncReplay, SyncSamples" in messages
