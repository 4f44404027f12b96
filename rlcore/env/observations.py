"""Any supported observation space as ONE Box array, written row by row or for all sub-environments at once.

What becomes of an observation space:

- An image (see `image_layout`) becomes channels first `[C, H, W]`; uint8 stays uint8, everything else is float32.
- Any other Box becomes float32 `[D]` (C order); Discrete and MultiDiscrete become one-hot, MultiBinary float32.
- Dict and Tuple become float32 `[D]`, leaves side by side in the space's order; a uint8 image among several leaves is
  scaled to 0..1 there, because the flat array has lost its dtype. With a single leaf, the leaf alone decides.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlcore.env.spaces import leaves

# Below this many pixels a side, a 3-D array is a small board or table: an MLP reads it better flattened.
SMALLEST_IMAGE_SIDE = 7
# A 2-D uint8 array is taken for a gray screen only from this side on.
SMALLEST_GRAY_SIDE = 36


def image_layout(space: gymnasium.Space) -> str | None:
    """How a Box holds an image: "HWC", "CHW", "HW" (gray), "SHWC" (stacked frames); None: it is not one.

    In three dimensions the two equal sides are the picture; if none or all are equal, the smaller of the first and the
    last dimension is the channels, the last one on a tie. So `[84, 84, 3]`, `[8, 8, 111]` and `[10, 10, 10]` are
    HWC, `[4, 84, 84]` is CHW. uint8 `[S, H, W, C]` with 1, 3 or 4 colors is a stack of frames.
    """
    shape = space.shape
    if not isinstance(space, spaces.Box):
        return None
    if len(shape) == 2 and space.dtype == np.uint8 and min(shape) >= SMALLEST_GRAY_SIDE:
        return "HW"
    if len(shape) == 4 and space.dtype == np.uint8 and shape[3] in (1, 3, 4) and min(shape[1:3]) >= SMALLEST_IMAGE_SIDE:
        return "SHWC"
    if len(shape) != 3:
        return None
    first, middle, last = shape
    if (first == middle) != (middle == last):
        layout = "HWC" if first == middle else "CHW"
    else:
        layout = "HWC" if last <= first else "CHW"
    sides = shape[:2] if layout == "HWC" else shape[1:]
    return layout if min(sides) >= SMALLEST_IMAGE_SIDE else None


class ObservationLayout:
    """The flattened form of one observation space.

    Attributes:
        source: the environment's own observation space.
        space: the Box that it becomes, of one sub-environment.
        passthrough: a batch of the environment's own observations already has this shape, order and dtype.
    """

    def __init__(self, source: gymnasium.Space) -> None:
        self.source = source
        self.leaves = leaves(source, "the observation space")
        self.single = len(self.leaves) == 1
        boxes = [_leaf_box(leaf.space) for leaf in self.leaves]
        self.space = boxes[0] if self.single else _concatenated([_scaled(box) for box in boxes])
        self.passthrough = (
            self.single
            and not self.leaves[0].path
            and isinstance(source, spaces.Box)
            and source.shape == self.space.shape
            and source.dtype == self.space.dtype
            and image_layout(source) in (None, "CHW")
        )

    def empty(self, num_envs: int) -> np.ndarray:
        """A zeroed array `[N, *space.shape]`."""
        return np.zeros((num_envs, *self.space.shape), self.space.dtype)

    def writer(self, out: np.ndarray) -> ObservationWriter:
        """Writes observations into `out`, `[N, *space.shape]`, contiguous."""
        return ObservationWriter(self, out)


class ObservationWriter:
    """Writes the observations of sub-environments into one array.

    Attributes:
        out: the array, `[N, *space.shape]`.
        direct: a view of `out` into whose row i an observation can be assigned as it is; None for one-hot and nested
            spaces. It saves the hot loop a call per sub-environment.
    """

    def __init__(self, layout: ObservationLayout, out: np.ndarray) -> None:
        self.out = out
        self._parts: list[tuple[tuple[str | int, ...], _Part]] = []
        begin = 0
        for path, leaf in layout.leaves:
            end = begin + int(np.prod(_leaf_box(leaf).shape, dtype=np.int64))
            target = out if layout.single else out[:, begin:end]
            self._parts.append((path, _part(leaf, target, scale=not layout.single)))
            begin = end
        path, first = self._parts[0]
        plain = layout.single and not path and isinstance(first, _ArrayPart) and first.scale is None
        self.direct: np.ndarray | None = first.view if plain else None

    def write(self, index: int, observation: Any) -> None:
        """Write one sub-environment's observation. Raises ValueError, TypeError or KeyError where it does not fit."""
        for path, part in self._parts:
            part.write(index, _follow(observation, path))

    def write_all(self, observations: Any) -> None:
        """Write a batch `[N, ...]`, nested as the space is, the way gymnasium's vector environments return it."""
        for path, part in self._parts:
            part.write_all(_follow(observations, path))


class _ArrayPart:
    """A Box or MultiBinary leaf: `view` is the leaf's place in the output, in the leaf's own shape and axis order."""

    def __init__(self, view: np.ndarray, scale: np.float32 | None) -> None:
        self.view = view
        self.scale = scale

    def write(self, index: int, value: Any) -> None:
        if self.scale is None:
            self.view[index] = value
        else:
            np.multiply(value, self.scale, out=self.view[index], casting="unsafe")

    def write_all(self, values: Any) -> None:
        if self.scale is None:
            self.view[...] = values
        else:
            np.multiply(values, self.scale, out=self.view, casting="unsafe")


class _OneHotPart:
    """A Discrete or MultiDiscrete leaf: `sizes` values wide each, values counted from `start`."""

    def __init__(self, view: np.ndarray, sizes: np.ndarray, start: np.ndarray) -> None:
        self.view = view
        self.sizes = sizes
        self.start = start
        self.offsets = np.concatenate(([0], np.cumsum(sizes)[:-1]))

    def write(self, index: int, value: Any) -> None:
        hot = np.asarray(value, np.int64).reshape(-1) - self.start
        self._check(hot)
        row = self.view[index]
        row[:] = 0
        row[self.offsets + hot] = 1

    def write_all(self, values: Any) -> None:
        hot = np.asarray(values, np.int64).reshape(len(self.view), -1) - self.start
        self._check(hot)
        self.view[:] = 0
        np.put_along_axis(self.view, self.offsets + hot, 1, axis=1)

    def _check(self, hot: np.ndarray) -> None:
        # A negative index would silently light a wrong column.
        if (hot < 0).any() or (hot >= self.sizes).any():
            raise ValueError(f"a discrete observation is outside its space: {(hot + self.start).tolist()}")


_Part = _ArrayPart | _OneHotPart


def _part(space: gymnasium.Space, target: np.ndarray, *, scale: bool) -> _Part:
    if isinstance(space, spaces.Discrete):
        return _OneHotPart(target, np.array([space.n]), np.array([space.start]))
    if isinstance(space, spaces.MultiDiscrete):
        return _OneHotPart(target, space.nvec.reshape(-1), space.start.reshape(-1))
    num_envs, shape = len(target), space.shape
    layout = image_layout(space)
    if layout == "HWC":
        view = target.reshape(num_envs, shape[2], shape[0], shape[1]).transpose(0, 2, 3, 1)
    elif layout == "SHWC":
        view = target.reshape(num_envs, shape[0], shape[3], shape[1], shape[2]).transpose(0, 1, 3, 4, 2)
    else:
        view = target.reshape(num_envs, *shape)
    if not np.shares_memory(view, target):
        raise ValueError(f"the output array of shape {target.shape} must be contiguous")
    return _ArrayPart(view, np.float32(1 / 255) if scale and layout and space.dtype == np.uint8 else None)


def _leaf_box(space: gymnasium.Space) -> spaces.Box:
    """The Box of one leaf on its own."""
    if isinstance(space, spaces.Discrete):
        return spaces.Box(0.0, 1.0, (int(space.n),), np.float32)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.Box(0.0, 1.0, (int(space.nvec.sum()),), np.float32)
    if isinstance(space, spaces.MultiBinary):
        return spaces.Box(0.0, 1.0, (int(np.prod(space.shape)),), np.float32)
    layout = image_layout(space)
    arrange = _ARRANGE[layout]
    dtype = np.uint8 if layout and space.dtype == np.uint8 else np.float32
    low, high = (arrange(np.asarray(bound)).astype(dtype) for bound in (space.low, space.high))
    return spaces.Box(low, high, dtype=dtype)


_ARRANGE: dict[str | None, Callable[[np.ndarray], np.ndarray]] = {
    None: lambda array: array.reshape(-1),
    "CHW": lambda array: array,
    "HWC": lambda array: array.transpose(2, 0, 1),
    "HW": lambda array: array[None],
    "SHWC": lambda array: array.transpose(0, 3, 1, 2).reshape(-1, *array.shape[1:3]),
}


def _scaled(box: spaces.Box) -> spaces.Box:
    if box.dtype == np.uint8:
        return spaces.Box(box.low.astype(np.float32) / 255, box.high.astype(np.float32) / 255, dtype=np.float32)
    return box


def _concatenated(boxes: list[spaces.Box]) -> spaces.Box:
    low = np.concatenate([box.low.reshape(-1) for box in boxes]).astype(np.float32)
    high = np.concatenate([box.high.reshape(-1) for box in boxes]).astype(np.float32)
    return spaces.Box(low, high, dtype=np.float32)


def _follow(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = getitem(value, key)
    return value
