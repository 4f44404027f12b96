"""A nested state tree, split into one JSON document and named arrays, and joined again without loss.

A checkpoint must load without running code, so nothing here pickles. JSON holds the structure and the small values;
what JSON cannot hold exactly is written as an object with one key that starts with `$`:

    {"$array": path}   a numpy array             {"$int": "0x1f.."}   an integer beyond 53 bits (RNG states)
    {"$scalar": path}  a numpy scalar            {"$float": "nan"}    NaN and the infinities
    {"$bytes": path}   bytes, as a uint8 array   {"$dict": {...}}     a dict that has a key starting with `$`
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np

StateTree: TypeAlias = Any
"""Dicts with str keys, lists, int, float, bool, None, str, bytes, numpy arrays and scalars; nested freely."""

PLAIN_DTYPE_KINDS = "biufcSUmM"
"""bool, integers, floats, complex, byte and text strings, time spans and dates: all that .npy holds without pickle."""

MAX_DEPTH = 100
_EXACT_IN_JSON = 2**53


def split(tree: StateTree) -> tuple[Any, dict[str, np.ndarray]]:
    """Return (JSON document, arrays by path); the arrays are the tree's own, not copies.

    Raises:
        TypeError: a value, dtype or key that a checkpoint cannot hold; the text names its path in the tree.
    """
    arrays: dict[str, np.ndarray] = {}
    return _split(tree, (), arrays), arrays


def join(document: Any, arrays: dict[str, np.ndarray]) -> StateTree:
    """Return the tree that `split` took apart.

    Raises:
        ValueError: the document was not made by `split`, or an array that it names is missing.
    """
    if isinstance(document, list):
        return [join(item, arrays) for item in document]
    if not isinstance(document, dict):
        return document
    tag = next((key for key in document if key.startswith("$")), None)
    if tag is None:
        return {key: join(value, arrays) for key, value in document.items()}
    if len(document) != 1:
        raise ValueError(f"{tag} stands beside other keys")
    return _join_tagged(tag, document[tag], arrays)


def _split(value: StateTree, path: tuple[str | int, ...], arrays: dict[str, np.ndarray]) -> Any:
    if len(path) > MAX_DEPTH:
        raise TypeError(f"{_readable(path[:3])}...: nested more than {MAX_DEPTH} deep; does the state hold itself?")
    # Exact types: a subclass (an enum, a named tuple, a masked array) would come back as something else.
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_EXACT_IN_JSON <= value <= _EXACT_IN_JSON else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is dict:
        return _split_dict(value, path, arrays)
    if kind is list:
        return [_split(item, (*path, index), arrays) for index, item in enumerate(value)]
    if kind is bytes:
        return {"$bytes": _keep(np.frombuffer(value, np.uint8), path, arrays)}
    if kind is np.ndarray:
        return {"$array": _keep(value, path, arrays)}
    if isinstance(value, np.generic):
        return {"$scalar": _keep(np.asarray(value), path, arrays)}
    raise TypeError(
        f"{_readable(path)}: a checkpoint cannot hold {kind.__module__}.{kind.__qualname__}; "
        "it holds dict, list, int, float, bool, None, str, bytes, numpy arrays and scalars"
    )


def _split_dict(value: dict[Any, Any], path: tuple[str | int, ...], arrays: dict[str, np.ndarray]) -> Any:
    for key in value:
        if type(key) is not str:
            raise TypeError(f"{_readable(path)}: key {key!r} is {type(key).__qualname__}, and keys must be str")
    content = {key: _split(item, (*path, key), arrays) for key, item in value.items()}
    return {"$dict": content} if any(key.startswith("$") for key in value) else content


def _keep(array: np.ndarray, path: tuple[str | int, ...], arrays: dict[str, np.ndarray]) -> str:
    if array.dtype.kind not in PLAIN_DTYPE_KINDS or array.dtype.isbuiltin == 2:
        raise TypeError(f"{_readable(path)}: a checkpoint cannot hold an array of dtype {array.dtype}")
    name = _array_name(path)
    arrays[name] = array
    return name


def _array_name(path: tuple[str | int, ...]) -> str:
    """One name a path, e.g. `policies/default/0`; quoted, so that no key can forge a separator or a parent folder."""
    return "/".join(
        str(part)
        if isinstance(part, int)
        else part.replace(".", "%2E")
        if part in (".", "..")
        else quote(part, safe=" ", errors="surrogatepass")
        for part in path
    )


def _readable(path: tuple[str | int, ...]) -> str:
    """The path as Python would index it: `state.policies.default[0]`."""
    return "state" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _join_tagged(tag: str, content: Any, arrays: dict[str, np.ndarray]) -> StateTree:
    if tag == "$dict" and isinstance(content, dict):
        return {key: join(value, arrays) for key, value in content.items()}
    if not isinstance(content, str):
        raise ValueError(f"{tag} holds {type(content).__name__}, not text")
    if tag == "$int":
        return int(content, 16)
    if tag == "$float":
        return float(content)
    if tag not in ("$array", "$scalar", "$bytes"):
        raise ValueError(f"unknown tag {tag}")
    if content not in arrays:
        raise ValueError(f"array {content!r} is missing")
    array = arrays[content]
    if tag == "$array":
        return array
    if tag == "$scalar":
        return array[()]
    return array.tobytes()
