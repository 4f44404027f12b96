"""Walking nested gymnasium spaces, and the supported kinds of their leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import gymnasium
from gymnasium import spaces

from rlcore.errors import UnsupportedError

LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"


class Leaf(NamedTuple):
    """One leaf of a nested space; `path` holds the keys and indices that lead to it."""

    path: tuple[str | int, ...]
    space: gymnasium.Space


def leaves(space: gymnasium.Space, what: str) -> list[Leaf]:
    """Leaves of `space`, in the order of its Dict keys and Tuple indices.

    Raises:
        UnsupportedError: a leaf is of another kind; the message names its path. `what` begins the message.
    """
    found = list(_walk(space, ()))
    for leaf in found:
        if not isinstance(leaf.space, LEAVES):
            where = "".join(f"[{key!r}]" for key in leaf.path)
            raise UnsupportedError(
                f"{what}{where} is a {type(leaf.space).__name__}, which cannot be flattened to an array",
                hint=f"supported are {SUPPORTED}; wrap the environment so that it offers one of them",
            )
    if not found:
        raise UnsupportedError(f"{what} is empty: {space}", hint=f"supported are {SUPPORTED}")
    return found


def children(space: gymnasium.Space) -> list[tuple[str | int, gymnasium.Space]]:
    """Named children of a Dict or Tuple."""
    return list(space.spaces.items()) if isinstance(space, spaces.Dict) else list(enumerate(space.spaces))


def is_nested(space: gymnasium.Space) -> bool:
    """Whether the space is a Dict or a Tuple."""
    return isinstance(space, spaces.Dict | spaces.Tuple)


def _walk(space: gymnasium.Space, path: tuple[str | int, ...]) -> Iterator[Leaf]:
    if not is_nested(space):
        yield Leaf(path, space)
        return
    for key, child in children(space):
        yield from _walk(child, (*path, key))
