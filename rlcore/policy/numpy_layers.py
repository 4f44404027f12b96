"""Fully connected layers in numpy, on the same memory as their torch parameters: see `fast_mlp` for why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlcore.policy.fast_mlp import SUPPORTED_ACTIVATIONS, Layer
from rlcore.policy.flat_parameters import FlatParameters
from rlcore.policy.threads import use_one_thread


class NumpyLayers:
    """Linear layers with an activation between them.

    Args:
        parameters: on the CPU.
        names: of the linear modules, in order.
        activation: one of SUPPORTED_ACTIVATIONS.
        activate_last: whether the last layer has the activation too.
    """

    def __init__(
        self, parameters: FlatParameters, names: Sequence[str], activation: str, *, activate_last: bool
    ) -> None:
        if activation not in SUPPORTED_ACTIVATIONS:
            raise ValueError(f"activation {activation!r} has no numpy form here; known: {SUPPORTED_ACTIVATIONS}")
        use_one_thread()
        self._tanh = activation == "tanh"
        self._activated = len(names) if activate_last else len(names) - 1
        self.layers = [
            Layer(
                *(
                    parameters.view(flat, f"{name}.{part}").numpy()
                    for flat in (parameters.vector, parameters.gradient)
                    for part in ("weight", "bias")
                )
            )
            for name in names
        ]

    def forward(self, inputs: np.ndarray) -> list[np.ndarray]:
        """The inputs [B, in], then every layer's outputs."""
        outputs = [inputs]
        for index, layer in enumerate(self.layers):
            out = outputs[-1] @ layer.weight.T
            out += layer.bias
            if index < self._activated:
                np.tanh(out, out=out) if self._tanh else np.maximum(out, 0.0, out=out)
            outputs.append(out)
        return outputs

    def backward(self, outputs: list[np.ndarray], delta: np.ndarray, *, to_inputs: bool) -> np.ndarray | None:
        """Writes (does not add) the layers' gradients.

        Args:
            outputs: as `forward` gave them.
            delta: d loss / d last output, [B, out].
            to_inputs: also return d loss / d inputs.
        """
        for index in range(len(self.layers) - 1, -1, -1):
            layer, out = self.layers[index], outputs[index + 1]
            if index < self._activated:
                delta = delta * (1.0 - out * out) if self._tanh else delta * (out > 0)
            np.matmul(delta.T, outputs[index], out=layer.weight_gradient)
            np.sum(delta, axis=0, out=layer.bias_gradient)
            if index or to_inputs:
                delta = delta @ layer.weight
        return delta if to_inputs else None
