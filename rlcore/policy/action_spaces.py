"""Which action spaces an algorithm can act in, said before anything is started."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rlcore.errors import UnsupportedError

HINTS = {
    "Discrete": "PPO and IMPALA support every action space, DQN and SAC Discrete",
    "Box": "PPO and IMPALA support every action space, DDPG, TD3 and SAC Box",
}


def require_discrete(space: gym.Space[Any], algorithm: str, hint: str | None = None) -> None:
    """Raises UnsupportedError, with this hint or the usual one, for all but Discrete."""
    if not isinstance(space, gym.spaces.Discrete):
        raise UnsupportedError(
            f"{algorithm} supports Discrete action spaces, and the environment has {space}", hint=hint or HINTS["Box"]
        )


def require_bounded_box(space: gym.Space[Any], algorithm: str) -> None:
    """Raises UnsupportedError for all but a Box of floats with finite bounds."""
    if not _is_float_box(space):
        raise UnsupportedError(
            f"{algorithm} supports Box action spaces of floats, and the environment has {space}", hint=HINTS["Discrete"]
        )
    # Half of float32's range is where the middle of two bounds overflows.
    widest = np.finfo(np.float32).max / 2
    if not (np.abs(space.low) < widest).all() or not (np.abs(space.high) < widest).all():
        raise UnsupportedError(
            f"{algorithm} scales actions to the bounds of the action space, and {space} has none",
            hint="give the environment's Box finite bounds (a wrapper such as gymnasium's RescaleAction), or use PPO",
        )


def require_discrete_or_bounded_box(space: gym.Space[Any], algorithm: str) -> None:
    """Raises UnsupportedError for all but Discrete and a Box of floats with finite bounds."""
    if isinstance(space, gym.spaces.Discrete):
        return
    if not _is_float_box(space):
        raise UnsupportedError(
            f"{algorithm} supports Discrete and Box action spaces, a Box of floats, and the environment has {space}",
            hint="PPO and IMPALA support every action space",
        )
    require_bounded_box(space, algorithm)


def _is_float_box(space: gym.Space[Any]) -> bool:
    return isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating)
