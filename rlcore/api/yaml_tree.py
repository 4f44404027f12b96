"""YAML text to plain data that remembers its lines.

Scalars are read as Kubernetes' own tools read them (YAML 1.1, but 1e-3 is a number and a date is text), and only what
JSON can hold is let through. Duplicate keys, keys that are not text, and aliases that blow up are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_DEPTH = 64
MAX_NODES = 100_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE_TAG = "tag:yaml.org,2002:"

_COLLECTION_TAGS = (None, "!", f"{_CORE_TAG}map", f"{_CORE_TAG}seq")

_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"y|Y|yes|Yes|YES|true|True|TRUE|on|On|ON")
_FALSE = re.compile(r"n|N|no|No|NO|false|False|FALSE|off|Off|OFF")
_INT = re.compile(r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0o?[0-7_]+|0b[01_]+)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class YamlTextError(Exception):
    """The text is not YAML that a manifest may hold.

    Args:
        message: what is wrong.
        line: where, counted from 1.
    """

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass
class Node:
    """A YAML value and where it stands.

    Attributes:
        value: the plain value: dict, list, str, int, float, bool or None.
        line: line of the value, or of its key in a mapping, counted from 1.
        size: number of values in it, aliases counted as often as they are used.
        children: the nodes below, by key or index.
    """

    value: Any
    line: int
    size: int = 1
    children: dict[str | int, Node] = field(default_factory=dict)

    def line_at(self, loc: tuple[str | int, ...]) -> int:
        """Line of the value at `loc`, or of the nearest one above it that is there."""
        node, line = self, self.line
        for part in loc:
            child = node.children.get(part)
            if child is None:
                break
            node, line = child, child.line
        return line


def parse_documents(text: str) -> list[Node]:
    """The documents of a YAML stream, empty ones left out.

    Raises:
        YamlTextError: the text is not YAML, or holds what a manifest may not hold.
    """
    try:
        builder = _Builder(yaml.parse(text, Loader=_LOADER))
        return [node for node in builder.documents() if node.value is not None]
    except yaml.YAMLError as error:
        raise _readable(error) from error


def _readable(error: yaml.YAMLError) -> YamlTextError:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    if "'\\t'" in what or "cannot start any token" in what:
        what += " (indent with spaces, not tabs, and quote text that begins with % @ ` or {{)"
    if "mapping values are not allowed" in what:
        what += ' (quote text that contains ": ", and check the indentation)'
    return YamlTextError(f"not valid YAML: {what}", mark.line + 1 if mark else None)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


class _Builder:
    """Builds nodes from parser events; the recursion is as deep as the document, and that is bounded."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._anchors: dict[str, Node] = {}
        self._count = 0

    def documents(self) -> Iterator[Node]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
                yield self._node(next(self._events), depth=0)

    def _node(self, event: yaml.Event, depth: int) -> Node:
        line = _line(event)
        if depth > MAX_DEPTH:
            raise YamlTextError(f"nested more than {MAX_DEPTH} levels deep", line)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, line)
        if isinstance(event, yaml.CollectionStartEvent) and event.tag not in _COLLECTION_TAGS:
            raise YamlTextError(f"the tag {event.tag} is not allowed: a manifest holds plain data only", line)
        if isinstance(event, yaml.MappingStartEvent):
            node = self._mapping(line, depth)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(line, depth)
        else:
            assert isinstance(event, yaml.ScalarEvent)
            node = Node(read_scalar(event.value, plain=event.implicit[0], tag=event.tag, line=line), line)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return self._bounded(node)

    def _bounded(self, node: Node) -> Node:
        if node.size > MAX_NODES:
            raise YamlTextError(f"more than {MAX_NODES} values, aliases included", node.line)
        return node

    def _alias(self, event: yaml.AliasEvent, line: int) -> Node:
        target = self._anchors.get(event.anchor or "")
        if target is None:
            raise YamlTextError(f"the alias *{event.anchor} has no anchor &{event.anchor} before it", line)
        return Node(target.value, line, target.size, target.children)

    def _sequence(self, line: int, depth: int) -> Node:
        items: list[Node] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        size = 1 + sum(item.size for item in items)
        return Node([item.value for item in items], line, size, dict(enumerate(items)))

    def _mapping(self, line: int, depth: int) -> Node:
        own: dict[str | int, Node] = {}
        merged: dict[str | int, Node] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key_line = _line(event)
            is_merge = isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]
            key = self._key(self._node(event, depth + 1), event)
            child = self._node(next(self._events), depth + 1)
            if is_merge:
                merged = {**_merged(child), **merged}
            elif key in own:
                raise YamlTextError(f'the key "{key}" is here twice, first on line {own[key].line}', key_line)
            else:
                # A key's line tells more than the line of its value, which may begin below it.
                own[key] = Node(child.value, key_line, child.size, child.children)
        children = {**merged, **own}
        size = 1 + sum(child.size for child in children.values())
        return Node({key: child.value for key, child in children.items()}, line, size, children)

    def _key(self, node: Node, event: yaml.Event) -> str:
        if isinstance(node.value, str):
            return node.value
        if isinstance(event, yaml.ScalarEvent):
            kind = {bool: "true or false", type(None): "null"}.get(type(node.value), "a number")
            raise YamlTextError(f'the key {event.value or "?"} is read as {kind}: write "{event.value}"', node.line)
        raise YamlTextError("a key must be text", node.line)


def _merged(node: Node) -> dict[str | int, Node]:
    """The entries that `<<: *anchor` or `<<: [*first, *second]` brings; the first one wins."""
    sources = list(node.children.values()) if isinstance(node.value, list) else [node]
    if any(not isinstance(source.value, dict) for source in sources):
        raise YamlTextError("<< takes a mapping or a list of mappings", node.line)
    entries: dict[str | int, Node] = {}
    for source in reversed(sources):
        entries.update(source.children)
    return entries


def read_scalar(text: str, *, plain: bool, tag: str | None, line: int) -> Any:
    """The value of one scalar.

    Args:
        text: as written, quotes removed.
        plain: written without quotes, so that its form decides its type.
        tag: an explicit YAML tag, or None.
        line: for messages.

    Raises:
        YamlTextError: a number that JSON cannot hold, or a tag that stands for something else than plain data.
    """
    name = tag.removeprefix(_CORE_TAG) if tag else None
    if name in ("str", "!") or (name is None and not plain):
        return text
    if name not in (None, "int", "float", "bool", "null"):
        raise YamlTextError(f"the tag {tag} is not allowed: a manifest holds plain data only", line)
    value = _plain_value(text, line)
    if name is None or isinstance(value, {"int": int, "float": int | float, "bool": bool, "null": type(None)}[name]):
        return value
    raise YamlTextError(f'"{text}" is not of type {name}', line)


def _plain_value(text: str, line: int) -> Any:
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _NOT_FINITE.fullmatch(text):
        raise YamlTextError(f"{text} is not a finite number", line)
    if _INT.fullmatch(text):
        return _integer(text, line)
    if _FLOAT.fullmatch(text):
        value = float(text.replace("_", ""))
        if value in (float("inf"), float("-inf")):
            raise YamlTextError(f"{text} is too large for a number", line)
        # On its way through JSON and the API server 2e5 or 10.0 becomes a whole number; so it does here.
        return int(value) if value.is_integer() and abs(value) < 2**63 else value
    return text


def _integer(text: str, line: int) -> int:
    digits = text.replace("_", "")
    if len(digits) > 40:
        raise YamlTextError(f"{text[:20]}... is too large for a whole number", line)
    unsigned = digits.lstrip("+-")
    octal = len(unsigned) > 1 and unsigned[0] == "0" and unsigned[1].isdigit()
    return int(digits, 8 if octal else 0)
