"""From the policy's flat action array to what an environment's `step` expects.

Layout of the array that `VectorEnv.step` takes (N rows, one per sub-environment):

| action space        | array                | meaning                                                            |
|---------------------|----------------------|--------------------------------------------------------------------|
| Discrete(n, start)  | int64 [N]            | 0 .. n-1; `start` is added here                                    |
| MultiDiscrete(nvec) | int64 [N, K]         | column k in 0 .. nvec[k]-1 (nvec in C order); `start` is added here |
| MultiBinary(K)      | int8 [N, K]          | 0 or 1                                                             |
| Box(shape)          | float32 [N, D]       | D = product of the shape, C order; clipped to the bounds here      |
| Dict, Tuple         | float32 [N, columns] | leaves in order, side by side, each as wide as above; Discrete 1   |

Integers up to 2^24 are exact in the float32 columns of Dict and Tuple.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from rlcore.env.spaces import children, is_nested, leaves


class ActionLeaf(NamedTuple):
    """One leaf of an action space and the columns `[begin, end)` of the flat array that it takes."""

    path: tuple[str | int, ...]
    space: gymnasium.Space
    begin: int
    end: int


def action_leaves(space: gymnasium.Space) -> list[ActionLeaf]:
    """Leaves of an action space with their columns; one leaf for a plain space.

    Raises:
        UnsupportedError: the space has a leaf of an unsupported kind.
    """
    result, begin = [], 0
    for path, leaf in leaves(space, "the action space"):
        end = begin + _columns(leaf)
        result.append(ActionLeaf(path, leaf, begin, end))
        begin = end
    return result


def mask_size(space: gymnasium.Space) -> int | None:
    """Columns of an action mask: n for Discrete, the sum of nvec for MultiDiscrete; None for spaces without masks."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return None


class ActionLayout:
    """Decodes the flat action array of one action space.

    Attributes:
        space: the environment's own action space.
        shape, dtype: of one row of the array that `decode` and `rows` take.
        num_columns: width of a row; 1 for Discrete.
    """

    def __init__(self, space: gymnasium.Space) -> None:
        found = action_leaves(space)
        self.space = space
        self.num_columns = found[-1].end
        self.shape: tuple[int, ...] = () if isinstance(space, spaces.Discrete) else (self.num_columns,)
        self.dtype = _dtype(space)
        self._decoder = _decoder(space)
        # Discrete(start=0) is by far the most frequent case, and needs nothing done.
        self._identity = isinstance(space, spaces.Discrete) and space.start == 0

    def decode(self, actions: np.ndarray) -> Any:
        """Batched actions as gymnasium's vector environments take them: arrays `[N, ...]`, nested as the space is.

        Fresh arrays, except that Discrete(start=0) is handed through; environments may keep what they get.
        """
        if self._identity:
            return actions
        return self._decoder.batch(actions.reshape(len(actions), self.num_columns))

    def rows(self, actions: np.ndarray) -> list[Any]:
        """One action per sub-environment, as gymnasium's single environments take them."""
        if self._identity:
            return list(actions)
        return self._decoder.rows(actions.reshape(len(actions), self.num_columns))

    def zeros(self, num_envs: int) -> np.ndarray:
        """An array `[N, *shape]` of zeros in the policy's layout."""
        return np.zeros((num_envs, *self.shape), self.dtype)


class _DiscreteDecoder:
    def __init__(self, space: spaces.Discrete) -> None:
        self.columns = 1
        self.start = int(space.start)

    def batch(self, columns: np.ndarray) -> np.ndarray:
        return columns[:, 0].astype(np.int64) + self.start

    def rows(self, columns: np.ndarray) -> list[Any]:
        return list(self.batch(columns))


class _ArrayDecoder:
    """Box, MultiDiscrete and MultiBinary: shift or clip, cast, and give back the space's own shape."""

    def __init__(self, space: gymnasium.Space) -> None:
        self.columns = _columns(space)
        self.shape = space.shape
        self.dtype = space.dtype
        self.integer = np.issubdtype(space.dtype, np.integer)
        self.start = space.start.reshape(-1) if isinstance(space, spaces.MultiDiscrete) else None
        self.bounds: tuple[np.ndarray, np.ndarray] | None = None
        if isinstance(space, spaces.Box) and (space.bounded_below.any() or space.bounded_above.any()):
            self.bounds = (space.low.reshape(-1), space.high.reshape(-1))

    def batch(self, columns: np.ndarray) -> np.ndarray:
        if self.integer and np.issubdtype(columns.dtype, np.floating):
            columns = np.rint(columns)
        if self.start is not None:
            columns = columns + self.start
        if self.bounds is None:
            values = columns.astype(self.dtype)  # a copy in any case: the environment may keep it
        else:
            # minimum and maximum rather than clip, which takes four times as long on arrays this small.
            values = np.minimum(np.maximum(columns, self.bounds[0]), self.bounds[1]).astype(self.dtype, copy=False)
        return values.reshape(len(columns), *self.shape)

    def rows(self, columns: np.ndarray) -> list[Any]:
        return list(self.batch(columns))


class _NestedDecoder:
    def __init__(self, space: gymnasium.Space) -> None:
        self.keyed = isinstance(space, spaces.Dict)
        self.keys: list[Any] = [key for key, _ in children(space)]
        self.parts = [_decoder(child) for _, child in children(space)]
        ends = np.cumsum([part.columns for part in self.parts]).tolist()
        self.slices = [slice(end - part.columns, end) for end, part in zip(ends, self.parts, strict=True)]
        self.columns: int = ends[-1] if ends else 0

    def batch(self, columns: np.ndarray) -> Any:
        values = [part.batch(columns[:, where]) for part, where in zip(self.parts, self.slices, strict=True)]
        return dict(zip(self.keys, values, strict=True)) if self.keyed else tuple(values)

    def rows(self, columns: np.ndarray) -> list[Any]:
        values = [part.rows(columns[:, where]) for part, where in zip(self.parts, self.slices, strict=True)]
        rows = zip(*values, strict=True)
        return [dict(zip(self.keys, row, strict=True)) for row in rows] if self.keyed else list(rows)


_Decoder = _DiscreteDecoder | _ArrayDecoder | _NestedDecoder


def _decoder(space: gymnasium.Space) -> _Decoder:
    if is_nested(space):
        return _NestedDecoder(space)
    return _DiscreteDecoder(space) if isinstance(space, spaces.Discrete) else _ArrayDecoder(space)


def _columns(space: gymnasium.Space) -> int:
    return int(np.prod(space.shape, dtype=np.int64))


def _dtype(space: gymnasium.Space) -> np.dtype:
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return np.dtype(np.int64)
    return np.dtype(np.int8 if isinstance(space, spaces.MultiBinary) else np.float32)
