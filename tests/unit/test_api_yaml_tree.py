"""YAML as manifests use it: types as Kubernetes reads them, lines kept, dangerous input refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlcore.api.yaml_text import dump_yaml
from rlcore.api.yaml_tree import MAX_DEPTH, YamlTextError, parse_documents


def read(text: str) -> Any:
    (node,) = parse_documents(text)
    return node.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("2.5E+2", 250),
        ("2e5", 200_000),
        ("10.0", 10),
        (".5", 0.5),
        ("-1.5", -1.5),
        ("200_000", 200_000),
        ("0x10", 16),
        ("0o17", 15),
        ("017", 15),
        ("-3", -3),
        ("~", None),
        ("null", None),
        ("yes", True),
        ("off", False),
        ("true", True),
        ("'1e-3'", "1e-3"),
        ('"5"', "5"),
        ("!!str 5", "5"),
        ("!!int 5", 5),
        ("!!float 5", 5),
        ("2024-01-01", "2024-01-01"),
        ("1:30", "1:30"),
        ("module:factory", "module:factory"),
        ("nullable", "nullable"),
        ("1.2.3", "1.2.3"),
        ("5m", "5m"),
        ("e5", "e5"),
        ("''", ""),
    ],
)
def test_scalars_are_read_as_kubernetes_reads_them(text: str, value: object) -> None:
    result = read(f"[{text}]")[0]
    assert result == value
    assert type(result) is type(value)


def test_lines_are_those_of_the_keys() -> None:
    (node,) = parse_documents("a:\n  b:\n    - 1\n    - c: 2\n\nd: 3\n")
    assert node.line_at(("a",)) == 1
    assert node.line_at(("a", "b")) == 2
    assert node.line_at(("a", "b", 1, "c")) == 4
    assert node.line_at(("d",)) == 6
    assert node.line_at(("a", "b", 7)) == 2, "what is not there has the line of what should hold it"


def test_empty_documents_are_left_out() -> None:
    assert [node.value for node in parse_documents("---\n---\na: 1\n---\n")] == [{"a": 1}]


def test_json_is_read_too() -> None:
    manifest = {"a": [1, 2.5, None, True, "x"], "b": {"c": {}}}
    assert read(json.dumps(manifest)) == manifest


def test_anchors_and_merge_keys() -> None:
    text = "base: &base {a: 1, b: 2}\none: {<<: *base, b: 3}\ntwo: {b: 4, <<: [{c: 5}, *base]}\n"
    assert read(text) == {"base": {"a": 1, "b": 2}, "one": {"a": 1, "b": 3}, "two": {"c": 5, "a": 1, "b": 4}}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3", 3, 'the key "a" is here twice, first on line 1'),
        ("a:\n\tb: 1", 2, "indent with spaces, not tabs"),
        ("a: b: c", 1, 'quote text that contains ": "'),
        ("a: [1, 2\nb: 3\n", 2, "not valid YAML"),
        ("a: *b", 1, r"the alias \*b has no anchor &b before it"),
        ("a: &a [*a]", 1, "has no anchor"),
        ("x: 1\ny: 2", 2, 'the key y is read as true or false: write "y"'),
        ("1: a", 1, 'the key 1 is read as a number: write "1"'),
        ("~: a", 1, "the key ~ is read as null"),
        ("[a]: b", 1, "a key must be text"),
        ("a: .nan", 1, ".nan is not a finite number"),
        ("a: -.inf", 1, "-.inf is not a finite number"),
        ("a: 1e999", 1, "1e999 is too large"),
        ("a: " + "9" * 50, 1, "too large for a whole number"),
        ("a: !!python/object:os.system {}", 1, "the tag .* is not allowed"),
        ("a: !!binary aGVsbG8=", 1, "the tag .* is not allowed"),
        ("a: !!int x", 1, '"x" is not of type int'),
        ("a: {<<: 5}", 1, "<< takes a mapping"),
        ("[" * (MAX_DEPTH + 2), 1, "nested more than"),
        ("\x00", None, "not valid YAML"),
    ],
)
def test_what_a_manifest_may_not_hold_is_refused_with_its_line(text: str, line: int | None, message: str) -> None:
    with pytest.raises(YamlTextError, match=message) as caught:
        parse_documents(text)
    assert caught.value.line == line


def test_aliases_that_blow_up_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(YamlTextError, match="more than 100000 values, aliases included"):
        parse_documents("\n".join(lines))


@pytest.mark.parametrize(
    "text", ["N", "y", "off", "~", "1e5", "2e-3", "0o17", "1_000", ".nan", "1e999", "", "a: b", "#"]
)
def test_what_is_written_reads_back_as_the_text_that_it_was(text: str) -> None:
    document = {"value": text, "list": [text, 1, True, None, 0.5], "nested": {text: text}}
    assert read(dump_yaml(document)) == document
