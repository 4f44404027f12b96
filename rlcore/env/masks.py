"""Action masks: which actions an environment allows now.

An environment offers a mask in one of two ways:

- its observation space is a Dict with the key "action_mask" beside the observation itself (by custom "observation",
  "observations" or "obs"; several other keys are flattened together);
- `info["action_mask"]`, found out by the first reset.

A mask is bool `[A]`: A = n for Discrete, the sum of nvec for MultiDiscrete (side by side, as gymnasium's own tuple of
masks). A row that allows nothing is turned into one that allows everything: environments return such rows with an
episode's final observation, and no policy can sample from nothing.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlcore.env.actions import mask_size
from rlcore.errors import UnsupportedError

MASK_KEY = "action_mask"


def split_mask_space(space: gymnasium.Space, action_space: gymnasium.Space) -> tuple[gymnasium.Space, list[str] | None]:
    """Take the mask out of an observation space.

    Returns:
        The space of the observation proper, and the Dict keys that hold it; None where there is no mask to take out.
        One key left over means the value itself, several a Dict of them.

    Raises:
        UnsupportedError: the mask does not fit the action space, or nothing but a mask is observed.
    """
    if not isinstance(space, spaces.Dict) or MASK_KEY not in space.spaces:
        return space, None
    size, given = mask_size(action_space), int(np.prod(_flat_size(space.spaces[MASK_KEY])))
    if size is None or size != given:
        raise UnsupportedError(
            f'the observation\'s "{MASK_KEY}" has {given} entries, but the action space is {action_space}',
            hint="a mask has n entries for Discrete(n), and the sum of nvec for MultiDiscrete(nvec)",
        )
    keys = [key for key in space.spaces if key != MASK_KEY]
    if not keys:
        raise UnsupportedError(f'the observation space holds nothing beside "{MASK_KEY}"')
    rest = space.spaces[keys[0]] if len(keys) == 1 else spaces.Dict({key: space.spaces[key] for key in keys})
    return rest, keys


def without_mask(observation: Any, keys: list[str]) -> Any:
    """The observation proper of a Dict that carries a mask; `keys` from `split_mask_space`."""
    return observation[keys[0]] if len(keys) == 1 else {key: observation[key] for key in keys}


def write_mask(row: np.ndarray, mask: Any) -> None:
    """Write one sub-environment's mask into `row`, bool [A]; None (nothing said) allows everything.

    Raises:
        ValueError: the mask has another number of entries.
    """
    if mask is None:
        row[:] = True
        return
    parts = mask if isinstance(mask, tuple | list) and len(mask) and np.ndim(mask[0]) else (mask,)
    flat = np.concatenate([np.asarray(part).reshape(-1) for part in parts])
    if flat.shape != row.shape:
        raise ValueError(f"the action mask has {flat.size} entries, the action space {row.size}")
    row[:] = flat != 0
    if not row.any():
        row[:] = True


def write_masks(out: np.ndarray, masks: Any) -> None:
    """Write the masks of all sub-environments, `[N, A]`, into `out`, bool `[N, A]`."""
    np.not_equal(np.asarray(masks).reshape(out.shape), 0, out=out)
    out[~out.any(axis=1)] = True


def _flat_size(space: gymnasium.Space) -> tuple[int, ...]:
    if isinstance(space, spaces.Tuple):
        return (sum(int(np.prod(child.shape)) for child in space.spaces),)
    return tuple(space.shape) if space.shape is not None else (0,)
