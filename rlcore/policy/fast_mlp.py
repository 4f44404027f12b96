"""`SeparateMLP` in numpy, on the same memory as its torch parameters.

An eager torch call costs several microseconds before it does any work; with 64 units a layer that is most of the time.
The same arithmetic in numpy is 3 to 8 times faster at these sizes (docs/benchmarks.md). The two networks have the same
hidden layers, one body after the other in memory: layer by layer both are one array [2, ...], and each step of the
passes is one call for both. Tests hold it to torch's numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from rlcore.policy.flat_parameters import FlatParameters
from rlcore.policy.models import SeparateMLP
from rlcore.policy.threads import use_one_thread

SUPPORTED_ACTIVATIONS = ("tanh", "relu")


@dataclass(frozen=True)
class Layer:
    """One linear layer: weight [out, in], bias [out], and where their gradients go; a pair of layers has [2, ...]."""

    weight: np.ndarray
    bias: np.ndarray
    weight_gradient: np.ndarray
    bias_gradient: np.ndarray


class Activations(NamedTuple):
    """What the passes of a minibatch share.

    Attributes:
        hidden: the inputs [B, obs], then each hidden layer's outputs [2, B, H]: the policy's, the value network's.
        policy: outputs of the policy head, [B, A].
        values: [B].
    """

    hidden: list[np.ndarray]
    policy: np.ndarray
    values: np.ndarray


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
        self._hidden = self._paired_bodies(range(0, len(model.policy_body), 2))
        self._policy_head = self._layer("policy_head.linear")
        self._value_head = self._layer("value_head")
        self.log_std: np.ndarray | None = None
        self.log_std_gradient: np.ndarray | None = None
        if model.policy_head.log_std is not None:
            self.log_std = parameters.view(parameters.vector, "policy_head.log_std").numpy()
            self.log_std_gradient = parameters.view(parameters.gradient, "policy_head.log_std").numpy()
        self._acting: dict[int, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
        self._ones = np.ones((1, 0), np.float32)

    def _layer(self, name: str) -> Layer:
        flat = self._parameters
        parts = [flat.view(v, f"{name}.{p}").numpy() for v in (flat.vector, flat.gradient) for p in ("weight", "bias")]
        return Layer(*parts)

    def _paired_bodies(self, indices: range) -> list[Layer]:
        """Both networks' hidden layers: weight [2, out, in], bias [2, 1, out]."""
        flat = self._parameters
        begin = flat.offsets["policy_body.0.weight"][0] if indices else 0
        size = flat.offsets["value_body.0.weight"][0] - begin if indices else 0

        def pair(source: Tensor, name: str, *shape: int) -> np.ndarray:
            bodies = source.numpy()[begin : begin + 2 * size].reshape(2, size)
            offset = flat.offsets[f"policy_body.{name}"][0] - begin
            return bodies[:, offset : offset + int(np.prod(shape))].reshape(2, *shape)

        layers = []
        for index in indices:
            out, width = flat.offsets[f"policy_body.{index}.weight"][1]
            weights, biases = (f"{index}.weight", out, width), (f"{index}.bias", 1, out)
            layers.append(Layer(*(pair(v, *what) for v in (flat.vector, flat.gradient) for what in (weights, biases))))
        return layers

    def policy_inputs(self, observations: np.ndarray) -> np.ndarray:
        """Distribution inputs [N, A] for observations [N, obs]; the array is overwritten by the next call of this N."""
        n = observations.shape[0]
        steps = self._acting.get(n)
        if steps is None:
            steps = self._acting[n] = self._acting_steps(n)
        hidden = observations
        for weight, bias, out in steps[:-1]:
            np.matmul(hidden, weight, out=out)
            out += bias
            self._activate(out)
            hidden = out
        weight, bias, out = steps[-1]
        if self.log_std is None:
            np.matmul(hidden, weight, out=out)
            out += bias
        else:
            np.add(hidden @ weight, bias, out=out[:, : bias.size])
            out[:, bias.size :] = self.log_std
        return out

    def _acting_steps(self, n: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Of each of the policy's layers the weight [in, out], the bias [out] and room for n outputs."""
        layers = [(layer.weight[0].T, layer.bias[0, 0]) for layer in self._hidden]
        steps = [(weight, bias, np.empty((n, bias.size), np.float32)) for weight, bias in layers]
        head = self._policy_head
        width = head.bias.size * (1 if self.log_std is None else 2)
        return [*steps, (head.weight.T, head.bias, np.empty((n, width), np.float32))]

    def values(self, observations: np.ndarray) -> np.ndarray:
        """Values [B] for observations [B, obs]."""
        hidden = observations
        for layer in self._hidden:
            hidden = hidden @ layer.weight[1].T
            hidden += layer.bias[1]
            self._activate(hidden)
        return self._head(self._value_head, hidden)[:, 0]

    def forward(self, observations: np.ndarray) -> Activations:
        """Both networks' outputs for observations [B, obs], and what `backward` needs."""
        hidden = [observations]
        for layer in self._hidden:
            out = np.matmul(hidden[-1], layer.weight.transpose(0, 2, 1))
            out += layer.bias
            self._activate(out)
            hidden.append(out)
        last = hidden[-1] if self._hidden else (observations, observations)
        return Activations(hidden, self._head(self._policy_head, last[0]), self._head(self._value_head, last[1])[:, 0])

    def backward(self, activations: Activations, policy_delta: np.ndarray, value_delta: np.ndarray) -> None:
        """Writes (does not add) all layers' gradients.

        Args:
            activations: as `forward` gave them.
            policy_delta: d loss / d policy head output, [B, A].
            value_delta: d loss / d value, [B].
        """
        hidden = activations.hidden
        last = hidden[-1] if self._hidden else (hidden[0], hidden[0])
        if self._ones.size != len(value_delta):
            self._ones = np.ones((1, len(value_delta)), np.float32)
        deltas = (policy_delta, value_delta[:, None])
        for head, delta, inputs in zip((self._policy_head, self._value_head), deltas, last, strict=True):
            np.matmul(delta.T, inputs, out=head.weight_gradient)
            np.matmul(self._ones, delta, out=head.bias_gradient[None])
        if not self._hidden:
            return
        delta = np.empty_like(hidden[-1])
        np.matmul(policy_delta, self._policy_head.weight, out=delta[0])
        np.multiply(deltas[1], self._value_head.weight, out=delta[1])
        for index in range(len(self._hidden) - 1, -1, -1):
            layer = self._hidden[index]
            self._through_activation(hidden[index + 1], delta)
            np.matmul(delta.transpose(0, 2, 1), hidden[index], out=layer.weight_gradient)
            # A product with ones sums over rows four times faster than np.sum.
            np.matmul(self._ones, delta, out=layer.bias_gradient)
            if index:
                delta = np.matmul(delta, layer.weight)

    @staticmethod
    def _head(layer: Layer, hidden: np.ndarray) -> np.ndarray:
        out: np.ndarray = hidden @ layer.weight.T
        out += layer.bias
        return out

    def _activate(self, array: np.ndarray) -> None:
        if self._tanh:
            np.tanh(array, out=array)
        else:
            np.maximum(array, 0.0, out=array)

    def _through_activation(self, outputs: np.ndarray, delta: np.ndarray) -> None:
        """Turns d loss / d outputs into d loss / d inputs of the activation, in place."""
        if self._tanh:
            slope = outputs * outputs
            np.subtract(np.float32(1.0), slope, out=slope)
            delta *= slope
        else:
            delta *= outputs > 0
