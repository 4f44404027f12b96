"""A state tree comes back from JSON and arrays exactly as it went in, and nothing that needs pickle goes in."""

from __future__ import annotations

import collections
import enum
import io
import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.checkpoint.arrays import read_arrays, write_arrays
from rlcore.checkpoint.tree import join, split


def round_trip(tree: Any) -> Any:
    document, arrays = split(tree)
    stream = io.BytesIO()
    write_arrays(stream, arrays)
    return join(json.loads(json.dumps(document, allow_nan=False)), read_arrays(stream.getvalue()))


def same(a: Any, b: Any) -> bool:
    """Equal in type, bits and order; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


KEYS = st.one_of(
    st.text(max_size=6), st.sampled_from(["$array", "$dict", "file", "a", "a.npy", "..", "a/b", "a%2Fb", ""])
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.lists(st.floats(width=32), max_size=3).map(lambda values: np.array(values, np.float32)),
    st.integers(0, 255).map(np.uint8),
)
TREES = st.recursive(
    LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)), max_leaves=8
)


@given(TREES)
@settings(max_examples=200, deadline=None)
def test_any_tree_comes_back_exactly(tree: Any) -> None:
    assert same(round_trip(tree), tree)


@pytest.mark.parametrize(
    "value",
    [
        np.random.default_rng(7).bit_generator.state,
        2**53 + 1,
        -(2**4000),
        10**5000,  # more digits than Python turns into text by default
        0.1,
        -0.0,
        5e-324,
        float("nan"),
        float("-inf"),
        "\ud800 lone surrogate, \x00 and ü",
        b"\x00\xff",
        b"",
        [],
        {},
    ],
    ids=lambda value: repr(value)[:30] if not isinstance(value, int) else f"{value.bit_length()} bits",
)
def test_values_that_plain_json_would_bend(value: Any) -> None:
    assert same(round_trip({"here": value}), {"here": value})


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3), np.float32),
        np.array(5, np.int64),
        np.arange(6, dtype=">i2").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(20)[::3],
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.array([1.5, np.nan], np.float16),
    ],
    ids=lambda array: f"{array.dtype.str} {array.shape}",
)
def test_arrays_of_every_plain_dtype_and_layout(array: np.ndarray) -> None:
    result = round_trip([array])[0]
    assert same(result, array)
    assert result.flags.writeable


@pytest.mark.parametrize("scalar", [np.float32(0.1), np.int8(-3), np.bool_(True), np.str_("x"), np.float64("nan")])
def test_numpy_scalars_stay_numpy_scalars(scalar: np.generic) -> None:
    assert same(round_trip(scalar), scalar)


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": {"b": [0, {1}]}}, r"state\.a\.b\[1\]: a checkpoint cannot hold builtins\.set"),
        ({"betas": (0.9, 0.999)}, r"state\.betas: .*tuple"),
        ({"optimizer": {0: 1}}, r"state\.optimizer: key 0 is int"),
        ({"x": np.array([object()])}, r"state\.x: .* dtype object"),
        ({"x": np.zeros(1, [("a", "i4")])}, r"state\.x: .* dtype"),
        ({"x": np.ma.array([1], mask=[True])}, r"state\.x: .*MaskedArray"),
        ({"x": collections.OrderedDict()}, r"state\.x: .*OrderedDict"),
        ({"x": Colour.RED}, r"state\.x: .*Colour"),
        ({"x": len}, r"state\.x: "),
    ],
)
def test_what_cannot_come_back_exactly_is_refused_by_path(tree: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        split(tree)


def test_a_tree_that_holds_itself_is_refused() -> None:
    tree: dict[str, Any] = {}
    tree["self"] = tree
    with pytest.raises(TypeError, match="does the state hold itself"):
        split(tree)


@pytest.mark.parametrize(
    "document", [{"$array": "gone"}, {"$array": 3}, {"$unknown": "x"}, {"$int": "0x1", "b": 2}, {"$int": "fish"}]
)
def test_a_document_that_split_did_not_make_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match=r"\$|missing|invalid literal"):
        join(document, {})


def test_numpy_opens_the_array_file_without_pickle(tmp_path: Any) -> None:
    with open(tmp_path / "arrays.npz", "wb") as file:
        write_arrays(file, split({"policy": {"w": np.arange(3)}, "rngs": [np.ones(2)]})[1])
    with np.load(tmp_path / "arrays.npz", allow_pickle=False) as archive:
        assert sorted(archive.files) == ["policy/w", "rngs/0"]
        np.testing.assert_array_equal(archive["policy/w"], [0, 1, 2])


def test_an_array_file_that_holds_a_pickle_is_refused() -> None:
    stream = io.BytesIO()
    np.savez(stream, evil=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        read_arrays(stream.getvalue())


def test_equal_states_make_equal_bytes() -> None:
    first, second = io.BytesIO(), io.BytesIO()
    write_arrays(first, {"w": np.arange(4)})
    write_arrays(second, {"w": np.arange(4)})
    assert first.getvalue() == second.getvalue()
