"""One network with other parameters in every environment slot: how evolution tries many directions in one call.

    crowd = make_crowd(network, flat, activation, slots)
    crowd.place(3, vector)                   # slot 3 acts with these parameters from now on
    outputs = crowd(observations)            # [N, A], each row by its own slot's parameters

A multi-layer perceptron is a batched matrix product in numpy, some 30 times faster than one slot after the other.
Mapping a convolutional network over its parameters (`torch.func.vmap`) is between half and 1.9 times as fast as taking
turns, by the number of slots, and no faster on frames of 84x84, so whatever is no perceptron takes turns:
`python -m benchmarks crowd-mlp crowd-cnn`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import nn

from rlcore.policy.fast_mlp import SUPPORTED_ACTIVATIONS
from rlcore.policy.flat_parameters import FlatParameters
from rlcore.policy.threads import use_one_thread


class Crowd(ABC):
    """Parameters of N slots side by side.

    Args:
        slots: N.
        parameters: P of the network.
    """

    def __init__(self, slots: int, parameters: int) -> None:
        self.vectors = np.zeros((slots, parameters), np.float32)

    def place(self, slot: int, vector: np.ndarray) -> None:
        """Gives a slot its parameters, float32 [P]."""
        self.vectors[slot] = vector

    @abstractmethod
    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Outputs float32 [N, A] of observations [N, *obs]."""


class MLPCrowd(Crowd):
    """A perceptron's layers as views [N, out, in] of the slots' vectors.

    Args:
        slots: N.
        flat: the network's parameters: weight and bias of each layer, in order.
        activation: between layers, "tanh" or "relu".
    """

    def __init__(self, slots: int, flat: FlatParameters, activation: str) -> None:
        super().__init__(slots, flat.vector.numel())
        use_one_thread()
        self._tanh = activation == "tanh"
        views = [
            self.vectors[:, offset : offset + shape.numel()].reshape(slots, *shape)
            for offset, shape in flat.offsets.values()
        ]
        self._layers = [(views[i].transpose(0, 2, 1), views[i + 1]) for i in range(0, len(views), 2)]

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        hidden = observations.reshape(len(observations), 1, -1).astype(np.float32, copy=False)
        for number, (weight, bias) in enumerate(self._layers):
            hidden = np.matmul(hidden, weight)
            hidden += bias[:, None]
            if number < len(self._layers) - 1:
                np.tanh(hidden, out=hidden) if self._tanh else np.maximum(hidden, 0.0, out=hidden)
        return hidden[:, 0]


class InTurnCrowd(Crowd):
    """Any feed-forward torch network, one slot after the other.

    Args:
        slots: N.
        network: observations [B, *obs] to outputs [B, A].
        flat: its parameters.
    """

    def __init__(self, slots: int, network: nn.Module, flat: FlatParameters) -> None:
        super().__init__(slots, flat.vector.numel())
        # A module of its own, whose parameters are those of whoever's turn it is.
        self._module = copy.deepcopy(network)
        self._current = FlatParameters(self._module, torch.device("cpu")).vector.numpy()

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        outputs = []
        with torch.inference_mode():
            for vector, observation in zip(self.vectors, torch.as_tensor(observations), strict=True):
                self._current[:] = vector
                outputs.append(self._module(observation[None])[0].numpy())
        return np.stack(outputs)


def make_crowd(network: nn.Module, flat: FlatParameters, activation: str | None, slots: int) -> Crowd:
    """The fastest crowd for a network on the CPU; `activation` is a perceptron's, None for another network."""
    if activation in SUPPORTED_ACTIVATIONS:
        return MLPCrowd(slots, flat, activation)
    return InTurnCrowd(slots, network, flat)
