"""What is wrong with a manifest, in words: pydantic's errors turned into one line each, with path, value and remedy."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import ErrorDetails

from rlcore.api.algorithms import ALGORITHMS
from rlcore.api.fields import DNS_LABEL, DNS_SUBDOMAIN, MODULE_REFERENCE
from rlcore.api.schema import Schema, range_text
from rlcore.errors import ManifestError

Loc = tuple[str | int, ...]

MAX_SHOWN = 20
"""Problems shown in one message; the rest is counted, so that the first ones stay on the screen."""

_PATTERN_HELP = {
    DNS_LABEL: 'lower-case letters, digits and "-", beginning with a letter and not ending with "-"',
    DNS_SUBDOMAIN: 'lower-case letters, digits, "-" and ".", beginning and ending with a letter or digit',
    MODULE_REFERENCE: 'an importable Python object, "package.module:name"',
}

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


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: where, as the manifest spells it ("spec.evaluators.pools[1].name"); empty for the document as a whole.
        message: what, and what is allowed.
        line: line of the manifest, counted from 1, where it is known.
    """

    path: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return where + (f"{self.path}: {self.message}" if self.path else self.message)


class InvalidManifestError(ManifestError):
    """A manifest with all its problems.

    Args:
        source: name of the file, or "<stdin>".
        problems: at least one, in the order of the lines.
    """

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = [f"{source} is not a valid RLJob: {count}", *(f"  {problem}" for problem in problems[:MAX_SHOWN])]
        if len(problems) > MAX_SHOWN:
            lines.append(f"  and {len(problems) - MAX_SHOWN} more")
        super().__init__("\n".join(lines))
        self.source = source
        self.problems = tuple(problems)


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


def explain(error: ErrorDetails, schema: Schema) -> tuple[Loc, str]:
    """The location and the message of one pydantic error.

    Args:
        error: an entry of ValidationError.errors().
        schema: the structural schema of the whole object, for what is allowed where.
    """
    loc: Loc = tuple(error["loc"])
    if loc and loc[-1] == "[key]":
        return loc[:-1], f"{shown(error['input'])} is not allowed as a name{_allowed_pattern(error)}"
    return loc, _message(error, loc, schema)


def _message(error: ErrorDetails, loc: Loc, schema: Schema) -> str:
    kind, value = error["type"], error["input"]
    if kind == "conflict":
        return error["msg"]
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if kind == "missing":
        return "is required and missing"
    if kind == "extra_forbidden":
        return f"unknown field{_nearest_field(loc, schema)}"
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
    return f"; allowed: {_PATTERN_HELP.get(pattern, f'text that matches {pattern}')}" if pattern else ""


def _nearest_choice(value: Any, node: Schema | None) -> str:
    choices = [choice for choice in (node or {}).get("enum", []) if isinstance(choice, str)]
    if not choices:
        return ""
    match = _nearest(value, choices) if isinstance(value, str) else None
    return f"; allowed: {', '.join(choices)}" + (f"; did you mean {match}?" if match and len(choices) > 1 else "")


def _nearest_field(loc: Loc, schema: Schema) -> str:
    """A hint for an unknown field: a near name, another place where it belongs, or the names there are."""
    name, parent = str(loc[-1]), loc[:-1]
    here = list((node_of(schema, parent) or {}).get("properties", {}))
    if match := _nearest(name, here):
        return f"; did you mean {match}?"
    if parent == ("spec", "config") and (owners := _owners(name)):
        return f": it belongs to {', '.join(owners)}"
    if elsewhere := _elsewhere(name, schema):
        return f"; did you mean {elsewhere}?"
    return f"; allowed: {', '.join(here)}" if here else ""


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
