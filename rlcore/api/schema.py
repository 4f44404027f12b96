"""The structural OpenAPI schema of an RLJob, derived from the pydantic models.

Structural means what the API server asks of a CRD: no references, no unions (optional fields are nullable), no
patternProperties, and a type at every node. Unknown fields are refused by the API server's field validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, NoDefault
from pydantic_core import core_schema

from rlcore.api.algorithms import ALGORITHMS, AlgorithmInfo
from rlcore.api.rljob import RLJob

Schema = dict[str, Any]

_DROPPED = ("title", "default", "$defs", "x-range", "exclusiveMinimum", "exclusiveMaximum")


class SchemaMergeError(Exception):
    """Two algorithms use one name for fields of different types."""


class _WithFactories(GenerateJsonSchema):
    """JSON schema whose defaults include those that a factory makes."""

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> Any:
        value = super().get_default_value(schema)
        if value is NoDefault and not schema.get("default_factory_takes_data"):
            factory: Any = schema.get("default_factory")
            value = factory() if factory else NoDefault
        first = value[0] if isinstance(value, list) and value else value
        # A part's defaults are shown at its own fields.
        return NoDefault if isinstance(first, BaseModel) else value


def model_schema(model: type[BaseModel]) -> Schema:
    """The structural schema of one model, its descriptions completed with range and default."""
    raw = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_WithFactories)
    return _structural(raw, raw.get("$defs", {}))


def job_schema(algorithms: Mapping[str, AlgorithmInfo] = ALGORITHMS) -> Schema:
    """The structural schema of an RLJob without its status; spec.config merges the given algorithms' fields."""
    schema = model_schema(RLJob)
    properties = schema["properties"]
    del properties["status"]
    properties["metadata"] = {"type": "object"}
    for name in ("apiVersion", "kind"):
        properties[name].pop("enum")
    spec = properties["spec"]["properties"]
    description = spec["config"]["description"]
    spec["config"] = merged_config(algorithms.values()) | {"description": description}
    spec["algorithm"]["enum"] = list(algorithms)
    spec["optimizer"]["enum"] = sorted({name for info in algorithms.values() for name in info.optimizers})
    return schema


def merged_config(algorithms: Iterable[AlgorithmInfo]) -> Schema:
    """One object schema with the fields of all algorithms; ranges are the widest, defaults are told apart.

    Raises:
        SchemaMergeError: a name means different types.
    """
    variants: dict[str, dict[str, Schema]] = {}
    count = 0
    for info in algorithms:
        count += 1
        raw = info.config.model_json_schema(by_alias=True, mode="validation", schema_generator=_WithFactories)
        for name, node in raw["properties"].items():
            variants.setdefault(name, {})[info.name] = _undescribed(node, raw.get("$defs", {}))
    return {
        "type": "object",
        "properties": {name: _merged_field(name, by, len(by) < count) for name, by in sorted(variants.items())},
    }


def _merged_field(name: str, variants: dict[str, Schema], only_some: bool) -> Schema:
    nodes = list(variants.values())
    merged = dict(nodes[0])
    for node in nodes[1:]:
        merged = _widest(name, merged, node)
    texts = list(dict.fromkeys(node["description"] for node in nodes))
    text = " ".join(texts) + (f" Only for {', '.join(variants)}." if only_some else "")
    defaults = {algorithm: _default_text(node) for algorithm, node in variants.items()}
    if len(set(defaults.values())) == 1:
        default = next(iter(defaults.values()))
    else:
        default = ", ".join(f"{value} ({algorithm})" for algorithm, value in defaults.items())
    return _described(merged, text, default)


def _widest(name: str, left: Schema, right: Schema) -> Schema:
    """The schema that takes what either of two takes, which may differ in range and enum only."""
    ranges = {"minimum": min, "maximum": max, "minLength": min, "maxLength": max, "minItems": min, "maxItems": max}
    flexible = {*ranges, "enum", "description", "default", "exclusiveMinimum", "exclusiveMaximum", "x-range"}
    if {k: v for k, v in left.items() if k not in flexible} != {k: v for k, v in right.items() if k not in flexible}:
        raise SchemaMergeError(f"spec.config.{name} has different types in different algorithms")
    merged = dict(left)
    for key, pick in ranges.items():
        if key in left and key in right:
            merged[key] = pick(left[key], right[key])
        else:
            merged.pop(key, None)
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        at_bound = [node for node in (left, right) if node.get(bound) == merged.get(bound)]
        if bound not in merged or not all(node.get(exclusive) for node in at_bound):
            merged.pop(exclusive, None)
    if "enum" in left:
        merged["enum"] = list(dict.fromkeys([*left["enum"], *right["enum"]]))
    return merged


def _structural(node: Schema, definitions: Schema) -> Schema:
    """A node and all below it, structural and described."""
    bare = _undescribed(node, definitions)
    return _described(bare, bare.get("description", ""), _default_text(bare))


def _undescribed(node: Schema, definitions: Schema) -> Schema:
    """A node made structural, its own description, default and range still apart."""
    node = _resolved(node, definitions)
    if "properties" in node:
        required = node.get("required", [])
        node["properties"] = {
            name: _structural(child | ({"x-required": True} if name in required else {}), definitions)
            for name, child in node["properties"].items()
        }
    if "items" in node:
        node["items"] = _structural(node["items"], definitions)
    _make_map(node, definitions)
    _make_bounds(node)
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if "enum" in node:
        # The API server refuses a null against any enum, even one that holds null; where the field is not nullable it
        # drops the null first, which means the same here.
        node.pop("nullable", None)
    if node.get("type") == "integer":
        node["format"] = "int64"
    return node


def _resolved(node: Schema, definitions: Schema) -> Schema:
    """The node with references inlined and `X or null` made nullable; what the node says itself wins."""
    node = dict(node)
    if "$ref" in node:
        target = definitions[node.pop("$ref").removeprefix("#/$defs/")]
        return _resolved({**target, **node}, definitions)
    if "anyOf" in node:
        choices = [choice for choice in node.pop("anyOf") if choice != {"type": "null"}]
        if len(choices) != 1:
            raise TypeError(f"a CRD cannot hold a union: {choices}")
        return _resolved({**choices[0], **node, "nullable": True}, definitions)
    return node


def _make_map(node: Schema, definitions: Schema) -> None:
    """Maps and free-form objects; fixed objects need no additionalProperties, since unknown fields are refused."""
    values = node.pop("additionalProperties", None)
    patterns = node.pop("patternProperties", None)
    node.pop("propertyNames", None)
    if patterns is not None:
        (values,) = patterns.values()
    if values is True:
        node["x-kubernetes-preserve-unknown-fields"] = True
    elif isinstance(values, dict):
        node["additionalProperties"] = _structural(values, definitions)


def _make_bounds(node: Schema) -> None:
    """OpenAPI 3.0 says exclusive bounds with a flag; JSON Schema says them with a number."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(node.get(exclusive), int | float):
            node[bound] = node[exclusive]
            node[exclusive] = True


def _described(node: Schema, text: str, default: str | None) -> Schema:
    """The node with its whole description, and without what only served to make it."""
    described = {key: value for key, value in node.items() if key not in ("title", "default", "$defs")}
    parts = [" ".join(text.split())]
    if allowed := range_text(node):
        parts.append(f"Range: {allowed}.")
    if described.pop("x-required", False):
        parts.append("Required.")
    elif default is not None:
        parts.append(f"Default: {default}.")
    described.pop("x-range", None)
    if text:
        described["description"] = " ".join(parts)
    return described


def range_text(node: Schema) -> str | None:
    """The allowed values as a user reads them: "0 to 1", "more than 0, at most 1", "1 to 16 items"."""
    if "x-range" in node:
        return str(node["x-range"])
    if "minimum" in node or "maximum" in node:
        return _bounds_text(node)
    for low, high, unit in (
        ("minItems", "maxItems", "items"),
        ("minProperties", "maxProperties", "entries"),
        ("minLength", "maxLength", "characters"),
    ):
        if high in node and "enum" not in node:
            low_value = node.get(low, 0)
            return f"{node[high]} {unit}" if low_value == node[high] else f"{low_value} to {node[high]} {unit}"
    return None


def _bounds_text(node: Schema) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None and not node.get("exclusiveMinimum") and not node.get("exclusiveMaximum"):
        return f"{number_text(low)} to {number_text(high)}"
    parts = []
    if low is not None:
        parts.append(f"{'more than' if node.get('exclusiveMinimum') else 'at least'} {number_text(low)}")
    if high is not None:
        parts.append(f"{'less than' if node.get('exclusiveMaximum') else 'at most'} {number_text(high)}")
    return ", ".join(parts)


def number_text(value: float) -> str:
    """A number without needless digits: 1000000.0 -> "1000000", 0.0003 -> "0.0003"."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _default_text(node: Schema) -> str | None:
    if "default" not in node:
        return None
    value = node["default"]
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number_text(value)
    if value in ("", [], {}):
        return "empty"
    return str(value)
