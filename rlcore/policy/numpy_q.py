"""`QNetwork` in numpy for small fully connected networks: values, and the gradient of a loss on them."""

from __future__ import annotations

import numpy as np
from torch import nn

from rlcore.policy.fast_mlp import SUPPORTED_ACTIVATIONS
from rlcore.policy.flat_parameters import FlatParameters
from rlcore.policy.models import FlatEncoder
from rlcore.policy.numpy_layers import NumpyLayers
from rlcore.policy.q_network import NoisyLinear, QNetwork, Stream


class NumpyQ:
    """Forward and backward passes of a QNetwork on the CPU.

    Args:
        network: without convolutions, LSTM and noisy layers.
        parameters: of the module that holds it.
        prefix: its name there.
        activation: of its hidden layers.
    """

    def __init__(self, network: QNetwork, parameters: FlatParameters, prefix: str, activation: str) -> None:
        self.actions, self.atoms = network.actions, network.atoms
        body = [f"{prefix}.body.{i}" for i, module in enumerate(network.body) if isinstance(module, nn.Linear)]
        streams = {"advantage": network.advantage} | ({"value": network.value} if network.value is not None else {})
        self.body = NumpyLayers(parameters, body, activation, activate_last=True)
        self.streams = {
            name: NumpyLayers(parameters, _layer_names(f"{prefix}.{name}", stream), activation, activate_last=False)
            for name, stream in streams.items()
        }

    @staticmethod
    def fits(network: QNetwork, activation: str) -> bool:
        """Whether a network has a numpy form."""
        noisy = any(isinstance(module, NoisyLinear) for module in network.modules())
        flat = isinstance(network.features, FlatEncoder) and not network.state_size
        return flat and not noisy and activation in SUPPORTED_ACTIVATIONS

    def forward(self, observations: np.ndarray) -> tuple[np.ndarray, dict[str, list[np.ndarray]]]:
        """Values [B, A] (logits [B, A, Z]) for observations [B, obs], and what `backward` needs."""
        outputs = {"body": self.body.forward(observations)}
        hidden = outputs["body"][-1]
        for name, stream in self.streams.items():
            outputs[name] = stream.forward(hidden)
        out = outputs["advantage"][-1].reshape(len(hidden), self.actions, self.atoms)
        if "value" in outputs:
            out = out - out.mean(axis=1, keepdims=True) + outputs["value"][-1].reshape(len(hidden), 1, self.atoms)
        return (out if self.atoms > 1 else out[..., 0]), outputs

    def values(self, observations: np.ndarray) -> np.ndarray:
        """Values [B, A] (logits [B, A, Z]) alone."""
        return self.forward(observations)[0]

    def backward(self, outputs: dict[str, list[np.ndarray]], delta: np.ndarray) -> None:
        """Writes (does not add) all layers' gradients from d loss / d values, [B, A]."""
        rows = len(delta)
        below: np.ndarray | None = None
        if "value" in outputs:
            total = delta.sum(axis=1, keepdims=True)
            below = self.streams["value"].backward(outputs["value"], total, to_inputs=True)
            delta = delta - total / np.float32(self.actions)
        hidden = self.streams["advantage"].backward(outputs["advantage"], delta.reshape(rows, -1), to_inputs=True)
        assert hidden is not None
        if below is not None:
            hidden = hidden + below
        if self.body.layers:
            self.body.backward(outputs["body"], hidden, to_inputs=False)


def _layer_names(prefix: str, stream: Stream) -> list[str]:
    return [f"{prefix}.layers.{i}" for i in range(len(stream.layers))]
