"""What is wrong with a manifest, in words: pydantic's errors turned into one line each, with path, value and remedy.

A module of its own, imported only where something is wrong: it needs the whole schema, which takes a while to make.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rlcore.api.algorithms import ALGORITHMS
from rlcore.api.fields import PATTERN_HELP
from rlcore.api.problems import Problem
from rlcore.api.rljob import RLJob
from rlcore.api.schema import Schema, job_schema, model_schema, range_text
from rlcore.api.yaml_tree import Node

Loc = tuple[str | int, ...]

MAX_LISTED = 12
"""Names listed as allowed; a longer list helps nobody."""

_TYPE_WORDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}

_RANGE_TYPES = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "int_parsing_size", "int_size")
_LENGTH_TYPES = ("string_too_short", "string_too_long", "too_short", "too_long")


def explain_all(error: ValidationError, node: Node) -> list[Problem]:
    """Every problem of a manifest, with its line and in the order of the lines."""
    problems = [Problem(path_text(loc), message, node.line_at(loc)) for loc, message in _explained(error, node.value)]
    return sorted(problems, key=lambda problem: problem.line or 0)


def explain_value(error: ValidationError, manifest: Any) -> list[str]:
    """The same of a manifest that has no lines: "path: message"."""
    return [str(Problem(path_text(loc), message)) for loc, message in _explained(error, manifest)]


def _explained(error: ValidationError, manifest: Any) -> list[tuple[Loc, str]]:
    algorithm = _algorithm(manifest)
    schema = _manifest_schema(algorithm)
    return [explain(details, schema, algorithm) for details in error.errors(include_url=False)]


@cache
def _manifest_schema(algorithm: str | None) -> Schema:
    """What a manifest of this algorithm may hold; made once."""
    schema = job_schema({algorithm: ALGORITHMS[algorithm]} if algorithm else ALGORITHMS)
    schema["properties"]["spec"]["properties"]["algorithm"]["enum"] = list(ALGORITHMS)
    # Of these the CRD may say less than the models do.
    full = model_schema(RLJob)["properties"]
    schema["properties"] |= {name: full[name] for name in ("apiVersion", "kind", "metadata")}
    return schema


def _algorithm(manifest: Any) -> str | None:
    """The manifest's algorithm, where it names one that exists."""
    spec = manifest.get("spec")
    name = spec.get("algorithm") if isinstance(spec, dict) else None
    return name if isinstance(name, str) and name in ALGORITHMS else None


def path_text(loc: Loc) -> str:
    """A location as users write it: ("spec", "pools", 1, "name") -> "spec.pools[1].name"."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("_", "").isalnum():
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def explain(error: ErrorDetails, schema: Schema, algorithm: str | None) -> tuple[Loc, str]:
    """The location and the message of one pydantic error.

    Args:
        error: an entry of ValidationError.errors().
        schema: the structural schema of the whole object, for what is allowed where.
        algorithm: the manifest's algorithm, where it names one that exists.
    """
    loc: Loc = tuple(error["loc"])
    if loc and loc[-1] == "[key]":
        return loc[:-1], f"{shown(error['input'])} is not allowed as a name{_allowed_pattern(error)}"
    if error["type"] == "extra_forbidden":
        return loc, _unknown_field(loc, schema, algorithm)
    return loc, _message(error, loc, schema)


def _message(error: ErrorDetails, loc: Loc, schema: Schema) -> str:
    kind, value = error["type"], error["input"]
    if kind == "conflict":
        return error["msg"]
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if kind == "missing":
        return "is required and missing"
    if kind == "literal_error":
        return f"{shown(value)} is not allowed{_nearest_choice(value, node_of(schema, loc))}"
    if kind == "string_pattern_mismatch":
        return f"{shown(value)} is not allowed{_allowed_pattern(error)}"
    if kind in _LENGTH_TYPES:
        return _length_message(value, node_of(schema, loc))
    if kind in _RANGE_TYPES:
        allowed = range_text_of(node_of(schema, loc))
        return f"{shown(value)} is out of range" + (f"; allowed: {allowed}" if allowed else "")
    if kind in _TYPE_WORDS:
        return f"{shown(value)} is not {_TYPE_WORDS[kind]}{_type_hint(kind, value)}"
    return f"{shown(value)}: {error['msg']}"


def shown(value: Any) -> str:
    """A value as it would be written in JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def node_of(schema: Schema, loc: Loc) -> Schema | None:
    """The schema node at a location, or None where the schema knows nothing of it."""
    node: Schema | None = schema
    for part in loc:
        if node is None:
            return None
        if isinstance(part, int):
            node = node.get("items")
        else:
            node = node.get("properties", {}).get(part) or node.get("additionalProperties")
    return node


def range_text_of(node: Schema | None) -> str | None:
    """What a node allows, in words, or None."""
    return range_text(node) if node else None


def _length_message(value: Any, node: Schema | None) -> str:
    allowed = range_text_of(node)
    unit = "characters" if isinstance(value, str) else "entries"
    subject = f"{shown(value)} has {len(value)} {unit}" if value else "is empty"
    return subject + (f"; allowed: {allowed}" if allowed else "")


def _type_hint(kind: str, value: Any) -> str:
    """What the author may have meant by a value of the wrong type."""
    if isinstance(value, str):
        if kind in ("int_type", "float_type") and _is_number(value):
            return f": write {value} without quotes"
        if kind == "bool_type" and value.lower() in ("true", "false"):
            return f": write {value.lower()} without quotes"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f": write it in quotes, {json.dumps(str(value).lower() if isinstance(value, bool) else str(value))}"
    if kind == "list_type" and isinstance(value, dict):
        return ': begin each entry with "- "'
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _allowed_pattern(error: ErrorDetails) -> str:
    pattern = error.get("ctx", {}).get("pattern", "")
    return f"; allowed: {PATTERN_HELP.get(pattern, f'text that matches {pattern}')}" if pattern else ""


def _nearest_choice(value: Any, node: Schema | None) -> str:
    choices = [choice for choice in (node or {}).get("enum", []) if isinstance(choice, str)]
    if not choices:
        return ""
    match = _nearest(value, choices) if isinstance(value, str) else None
    return f"; allowed: {', '.join(choices)}" + (f"; did you mean {match}?" if match and len(choices) > 1 else "")


def _unknown_field(loc: Loc, schema: Schema, algorithm: str | None) -> str:
    """Says so, and hints at a near name, another place where it belongs, or the names there are."""
    name, parent = str(loc[-1]), loc[:-1]
    here = list((node_of(schema, parent) or {}).get("properties", {}))
    what = "unknown field"
    if parent == ("spec", "config") and algorithm:
        what = f"{algorithm} has no such field"
        if owners := _owners(name):
            return f"{what}; it belongs to {', '.join(owners)}"
    if match := _nearest(name, here) or _elsewhere(name, schema):
        return f"{what}; did you mean {match}?"
    return f"{what}; allowed: {', '.join(here)}" if 0 < len(here) <= MAX_LISTED else what


def _owners(name: str) -> list[str]:
    """Algorithms whose config has a field of this name."""
    return [
        info.name
        for info in ALGORITHMS.values()
        if any(name == (field.alias or key) for key, field in info.config.model_fields.items())
    ]


def _elsewhere(name: str, schema: Schema) -> str | None:
    """The path of a field of exactly this name, the one nearest to the root."""
    folded = _fold(name)
    paths = [path for path in _all_fields(schema, ()) if _fold(str(path[-1])) == folded]
    return path_text(min(paths, key=len)) if paths else None


def _all_fields(node: Schema, loc: Loc) -> Iterator[Loc]:
    for name, child in node.get("properties", {}).items():
        yield (*loc, name)
        yield from _all_fields(child, (*loc, name))
    if "items" in node:
        yield from _all_fields(node["items"], (*loc, 0))


def _nearest(name: str, candidates: Sequence[str]) -> str | None:
    """The candidate most like `name`, whatever its case and underscores; None where none is alike."""
    folded = {_fold(candidate): candidate for candidate in candidates}
    matches = difflib.get_close_matches(_fold(name), folded, n=1, cutoff=0.7)
    return folded[matches[0]] if matches else None


def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
