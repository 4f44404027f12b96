"""Adam on one flat vector (Kingma & Ba 2015, arXiv 1412.6980, algorithm 1 with the efficient order of its section 2).

Five kernels an update however many layers there are. torch.optim.Adam gives the same numbers; its constructor imports
torch's compiler, which costs every process two seconds before it acts for the first time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

BETA1, BETA2 = 0.9, 0.999


class FlatAdam:
    """Updates a parameter vector in place.

    Args:
        vector: float32 [P], the parameters.
        gradient: float32 [P], read at each `step`.
        learning_rate: of the next steps; may be set.
        epsilon: added to the denominator.
    """

    def __init__(self, vector: torch.Tensor, gradient: torch.Tensor, *, learning_rate: float, epsilon: float) -> None:
        self.learning_rate = learning_rate
        self._vector, self._gradient, self._epsilon = vector, gradient, epsilon
        self._first = torch.zeros_like(vector)
        self._second = torch.zeros_like(vector)
        self._steps = 0

    def step(self) -> None:
        """One update."""
        self._steps += 1
        correction = math.sqrt(1.0 - BETA2**self._steps)
        rate = self.learning_rate * correction / (1.0 - BETA1**self._steps)
        self._first.lerp_(self._gradient, 1.0 - BETA1)
        self._second.mul_(BETA2).addcmul_(self._gradient, self._gradient, value=1.0 - BETA2)
        denominator = self._second.sqrt().add_(self._epsilon * correction)
        self._vector.addcdiv_(self._first, denominator, value=-rate)

    def get_state(self) -> dict[str, Any]:
        """Moments float32 [P] and the number of steps."""
        return {
            "first": self._first.cpu().numpy().copy(),
            "second": self._second.cpu().numpy().copy(),
            "steps": self._steps,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self._first.copy_(torch.from_numpy(np.array(state["first"])))
        self._second.copy_(torch.from_numpy(np.array(state["second"])))
        self._steps = int(state["steps"])
