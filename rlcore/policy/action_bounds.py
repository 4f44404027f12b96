"""Actions between -1 and 1, as networks give them, and between a Box's bounds, as environments take them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np


class ActionBounds:
    """The linear map between the two, per dimension.

    Args:
        space: with finite bounds.
    """

    def __init__(self, space: gym.spaces.Box) -> None:
        low, high = (bound.reshape(-1).astype(np.float32) for bound in (space.low, space.high))
        self.size = low.size
        self.middle = (high + low) / np.float32(2.0)
        self.half = (high - low) / np.float32(2.0)
        # A dimension whose bounds are equal has one action, and it is 0 inside.
        self._inverse = np.where(self.half > 0, 1.0 / np.maximum(self.half, 1e-30), 0.0).astype(np.float32)

    def outward(self, actions: np.ndarray) -> np.ndarray:
        """From -1..1 to the bounds, [..., D]."""
        return actions * self.half + self.middle

    def inward(self, actions: np.ndarray) -> np.ndarray:
        """From the bounds to -1..1, [..., D]."""
        return (actions - self.middle) * self._inverse
