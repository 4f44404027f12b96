"""podTemplate over the generated template: the strategic merge that `kubectl patch` does."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rljob_operator.merge import APPENDED, MERGE_KEYS, strategic_merge

CONTAINER = {"name": "ray-head", "image": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}

CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("a field is added", {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
    ("a field is changed", {"a": 1}, {"a": 2}, {"a": 2}),
    ("null deletes", {"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    ("null deletes what is not there", {"b": 2}, {"a": None}, {"b": 2}),
    ("null inside something new", {}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ("maps are merged", {"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
    ("a map is replaced", {"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
    ("a map takes the place of null", {"a": None}, {"a": {"c": 2}}, {"a": {"c": 2}}),
    (
        "containers by name",
        {"containers": [CONTAINER]},
        {"containers": [{"name": "ray-head", "image": "b"}, {"name": "sidecar", "image": "s"}]},
        {"containers": [{**CONTAINER, "image": "b"}, {"name": "sidecar", "image": "s"}]},
    ),
    (
        "variables by name",
        {"env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
        {"env": [{"name": "Y", "value": "3"}, {"name": "Z", "value": "4"}]},
        {"env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}, {"name": "Z", "value": "4"}]},
    ),
    (
        "an item is deleted",
        {"env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
        {"env": [{"name": "X", "$patch": "delete"}, {"name": "W", "$patch": "delete"}]},
        {"env": [{"name": "Y", "value": "2"}]},
    ),
    (
        "mounts by path",
        {"volumeMounts": [{"name": "a", "mountPath": "/a"}]},
        {"volumeMounts": [{"name": "b", "mountPath": "/a"}, {"name": "a", "mountPath": "/b"}]},
        {"volumeMounts": [{"name": "b", "mountPath": "/a"}, {"name": "a", "mountPath": "/b"}]},
    ),
    (
        "ports by number",
        {"ports": [{"containerPort": 1, "name": "a"}]},
        {"ports": [{"containerPort": 1, "name": "b"}]},
        {"ports": [{"containerPort": 1, "name": "b"}]},
    ),
    (
        "tolerations are added, each once",
        {"tolerations": [{"key": "a"}]},
        {"tolerations": [{"key": "a"}, {"key": "b"}]},
        {"tolerations": [{"key": "a"}, {"key": "b"}]},
    ),
    ("other lists are replaced", {"command": ["a", "b"]}, {"command": ["c"]}, {"command": ["c"]}),
    ("a list where there was none", {}, {"volumes": [{"name": "v"}]}, {"volumes": [{"name": "v"}]}),
]


@pytest.mark.parametrize(("base", "patch", "merged"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_merge(base, patch, merged):
    before = copy.deepcopy((base, patch))
    assert strategic_merge(base, patch) == merged
    assert (base, patch) == before


@pytest.mark.parametrize(
    ("base", "patch", "text"),
    [
        ({"a": 1}, {"a": {"b": 1}}, "a is a int here, not a dict"),
        ({"spec": {"a": {}}}, {"spec": {"a": []}}, "spec.a is a dict here, not a list"),
        ({}, {"containers": [{"image": "x"}]}, r"containers\[0\] needs name"),
        ({}, {"containers": [{"name": "a"}, "b"]}, r"containers\[1\] needs name"),
        ({}, {"containers": [{"name": {"a": 1}}]}, r"containers\[0\] needs name"),
        ({"containers": [{}]}, {"containers": [{"name": "a"}]}, r"containers\[0\] needs name"),
        ({"s": {"env": []}}, {"s": {"env": [{"name": "X", "env": {}}, {"value": 1}]}}, r"s.env\[1\] needs name"),
    ],
)
def test_what_cannot_be_merged_is_told_with_its_path(base, patch, text):
    with pytest.raises(ValueError, match=text):
        strategic_merge(base, patch)


KEYS = st.sampled_from(["a", "b", "name", "containers", "env", "tolerations", "command", "$patch"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["x", "delete", "replace"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
MAPS = st.dictionaries(KEYS, JSON, max_size=4)


@given(MAPS, MAPS)
def test_any_two_maps_are_merged_or_refused(base, patch):
    before = copy.deepcopy((base, patch))
    with contextlib.suppress(ValueError):  # and nothing else
        assert isinstance(strategic_merge(base, patch), dict)
    assert (base, patch) == before


@given(MAPS)
def test_an_empty_patch_changes_nothing(base):
    assert strategic_merge(base, {}) == base


def test_a_list_is_either_merged_or_appended():
    assert not APPENDED & set(MERGE_KEYS)
