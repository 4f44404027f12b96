"""`SeparateMLP` in numpy, on the same memory as its torch parameters.

An eager torch call costs several microseconds before it does any work; with 64 units a layer that is most of the time.
The same arithmetic in numpy is 3 to 8 times faster at these sizes (docs/benchmarks.md). Tests hold both to the same
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlcore.policy.flat_parameters import FlatParameters
from rlcore.policy.models import SeparateMLP
from rlcore.policy.threads import use_one_thread

SUPPORTED_ACTIVATIONS = ("tanh", "relu")


@dataclass(frozen=True)
class Layer:
    """One linear layer: weight [out, in] and bias [out], and where their gradients go."""

    weight: np.ndarray
    bias: np.ndarray
    weight_gradient: np.ndarray
    bias_gradient: np.ndarray


class FastMLP:
    """Forward and backward passes of a SeparateMLP on the CPU.

    Args:
        model: the torch module that owns the architecture.
        parameters: its parameters, on the CPU.
        activation: one of SUPPORTED_ACTIVATIONS.
    """

    def __init__(self, model: SeparateMLP, parameters: FlatParameters, activation: str) -> None:
        if activation not in SUPPORTED_ACTIVATIONS:
            raise ValueError(f"activation {activation!r} has no numpy form here; known: {SUPPORTED_ACTIVATIONS}")
        use_one_thread()
        self._tanh = activation == "tanh"
        self._parameters = parameters
        bodies = {"policy": len(model.policy_body), "value": len(model.value_body)}
        self.policy = [self._layer(f"policy_body.{i}") for i in range(0, bodies["policy"], 2)]
        self.policy.append(self._layer("policy_head.linear"))
        self.value = [self._layer(f"value_body.{i}") for i in range(0, bodies["value"], 2)]
        self.value.append(self._layer("value_head"))
        self.log_std: np.ndarray | None = None
        self.log_std_gradient: np.ndarray | None = None
        if model.policy_head.log_std is not None:
            self.log_std = parameters.view(parameters.vector, "policy_head.log_std").numpy()
            self.log_std_gradient = parameters.view(parameters.gradient, "policy_head.log_std").numpy()
        self._scratch: dict[int, list[np.ndarray]] = {}

    def _layer(self, name: str) -> Layer:
        flat = self._parameters
        parts = [flat.view(v, f"{name}.{p}").numpy() for v in (flat.vector, flat.gradient) for p in ("weight", "bias")]
        return Layer(*parts)

    def policy_inputs(self, observations: np.ndarray) -> np.ndarray:
        """Distribution inputs [N, A] for observations [N, obs]; the array is overwritten by the next call of this N."""
        n = observations.shape[0]
        scratch = self._scratch.get(n)
        if scratch is None:
            width = self.policy[-1].bias.size * (1 if self.log_std is None else 2)
            scratch = [np.empty((n, layer.bias.size), np.float32) for layer in self.policy[:-1]]
            scratch.append(np.empty((n, width), np.float32))
            self._scratch[n] = scratch
        hidden = observations
        for layer, out in zip(self.policy[:-1], scratch[:-1], strict=True):
            np.matmul(hidden, layer.weight.T, out=out)
            out += layer.bias
            self._activate(out)
            hidden = out
        last, out = self.policy[-1], scratch[-1]
        if self.log_std is None:
            np.matmul(hidden, last.weight.T, out=out)
            out += last.bias
        else:
            means = out[:, : last.bias.size]
            np.add(hidden @ last.weight.T, last.bias, out=means)
            out[:, last.bias.size :] = self.log_std
        return out

    def values(self, observations: np.ndarray) -> np.ndarray:
        """Values [B] for observations [B, obs]."""
        return self._forward(self.value, observations)[-1][:, 0]

    def forward(self, observations: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Outputs of every layer, the input first, of the policy network and of the value network."""
        return self._forward(self.policy, observations), self._forward(self.value, observations)

    def backward(
        self,
        policy_outputs: list[np.ndarray],
        value_outputs: list[np.ndarray],
        policy_delta: np.ndarray,
        value_delta: np.ndarray,
    ) -> None:
        """Writes (does not add) all layers' gradients.

        Args:
            policy_outputs: as `forward` gave them.
            value_outputs: as `forward` gave them.
            policy_delta: d loss / d policy head output, [B, A].
            value_delta: d loss / d value, [B].
        """
        self._backward(self.policy, policy_outputs, policy_delta)
        self._backward(self.value, value_outputs, value_delta[:, None])

    def _forward(self, layers: list[Layer], observations: np.ndarray) -> list[np.ndarray]:
        outputs = [observations]
        for layer in layers[:-1]:
            out = outputs[-1] @ layer.weight.T
            out += layer.bias
            self._activate(out)
            outputs.append(out)
        outputs.append(outputs[-1] @ layers[-1].weight.T + layers[-1].bias)
        return outputs

    def _backward(self, layers: list[Layer], outputs: list[np.ndarray], delta: np.ndarray) -> None:
        for index in range(len(layers) - 1, -1, -1):
            layer, hidden = layers[index], outputs[index]
            np.matmul(delta.T, hidden, out=layer.weight_gradient)
            np.sum(delta, axis=0, out=layer.bias_gradient)
            if index:
                delta = delta @ layer.weight
                delta *= (1.0 - hidden * hidden) if self._tanh else (hidden > 0)

    def _activate(self, array: np.ndarray) -> None:
        if self._tanh:
            np.tanh(array, out=array)
        else:
            np.maximum(array, 0.0, out=array)
