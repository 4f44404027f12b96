"""Action-value networks: plain, duelling (Wang et al. 2016), of distributions (C51), noisy, recurrent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rlcore.policy.models import ACTIVATIONS, build_features, layer_widths, linear, mlp, relu_unless_chosen

if TYPE_CHECKING:
    from rlcore.api import ModelSpec


class NoisyLinear(nn.Module):
    """A linear layer with factorised Gaussian noise on its weights (Fortunato et al. 2018, arXiv 1706.10295, eq. 11).

    Args:
        inputs: width of the input.
        outputs: width of the output.
        sigma: first noise scale, divided by the square root of `inputs`.
    """

    def __init__(self, inputs: int, outputs: int, sigma: float) -> None:
        super().__init__()
        bound, scale = 1 / math.sqrt(inputs), sigma / math.sqrt(inputs)
        self.inputs, self.outputs = inputs, outputs
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), scale))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), scale))

    def forward(self, hidden: Tensor, noise: tuple[Tensor, Tensor] | None) -> Tensor:
        """[B, in] to [B, out]; `noise` is ([in], [out]) or ([B, in], [B, out]), already scaled; None: none."""
        out = nn.functional.linear(hidden, self.weight, self.bias)
        if noise is None:
            return out
        noise_in, noise_out = noise
        # (sigma * e_out e_in) x + sigma_b * e_out, without ever making the noisy matrix.
        return out + nn.functional.linear(hidden * noise_in, self.weight_sigma, self.bias_sigma) * noise_out


class Stream(nn.Module):
    """Layers of a head; all of them noisy, or none."""

    def __init__(self, inputs: int, hiddens: list[int], outputs: int, activation: str, sigma: float | None) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]()
        widths = [inputs, *hiddens, outputs]
        gains = [math.sqrt(2)] * len(hiddens) + [1.0]
        pairs = zip(widths[:-1], widths[1:], gains, strict=True)
        self.layers = nn.ModuleList(
            linear(a, b, gain=gain) if sigma is None else NoisyLinear(a, b, sigma) for a, b, gain in pairs
        )

    def forward(self, hidden: Tensor, noise: Iterator[tuple[Tensor, Tensor]] | None) -> Tensor:
        for index, layer in enumerate(self.layers):
            if index:
                hidden = self.activation(hidden)
            if isinstance(layer, NoisyLinear):
                hidden = layer(hidden, next(noise) if noise is not None else None)
            else:
                hidden = layer(hidden)
        return hidden


class QNetwork(nn.Module):
    """Observations [B, *obs] to action values [B, A], or to logits [B, A, Z] of their distributions.

    A duelling network's last hidden layer is one for each of its two streams.

    Args:
        space: of one observation.
        actions: A.
        spec: the manifest's model.
        dueling: state value and advantages in separate streams.
        atoms: Z; 1 for plain values.
        sigma: of noisy heads; None for none.
    """

    def __init__(
        self,
        space: gym.spaces.Box,
        actions: int,
        spec: ModelSpec,
        *,
        dueling: bool = False,
        atoms: int = 1,
        sigma: float | None = None,
    ) -> None:
        super().__init__()
        self.actions, self.atoms, self.dueling = actions, atoms, dueling
        activation, widths = relu_unless_chosen(spec), layer_widths(space, spec)
        self.features, width = build_features(space, spec)
        own = widths[-1:] if dueling and not spec.lstm_size else []
        self.body, width = mlp(width, widths[: len(widths) - len(own)], activation)
        self.lstm = nn.LSTMCell(width, spec.lstm_size) if spec.lstm_size else None
        self.state_size = spec.lstm_size or 0
        width = self.state_size or width
        self.advantage = Stream(width, own, actions * atoms, activation, sigma)
        self.value = Stream(width, own, atoms, activation, sigma) if dueling else None

    def forward(self, observations: Tensor, noise: Tensor | None = None) -> Tensor:
        """Values [B, A] or logits [B, A, Z]; `noise` as `split_noise` takes it."""
        return self.heads(self.body(self.features(observations)), noise)

    def heads(self, hidden: Tensor, noise: Tensor | None = None) -> Tensor:
        """From the last shared layer, [B, H]."""
        pairs = None if noise is None else iter(self.split_noise(noise))
        out: Tensor = self.advantage(hidden, pairs).view(len(hidden), self.actions, self.atoms)
        if self.value is not None:
            out = out - out.mean(1, keepdim=True) + self.value(hidden, pairs).view(len(hidden), 1, self.atoms)
        return out if self.atoms > 1 else out.squeeze(-1)

    def step(self, observations: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """One recurrent step: observations [N, *obs], states [N, H] each."""
        assert self.lstm is not None
        state = list(self.lstm(self.body(self.features(observations)), (state[0], state[1])))
        return self.heads(state[0]), state

    def unroll(self, observations: Tensor, state: list[Tensor], starts: Tensor) -> Tensor:
        """Values [T, S, A] of sequences [T, S, *obs]; the state is zeroed where `starts` [T, S] is True."""
        assert self.lstm is not None
        length, sequences = observations.shape[:2]
        encoded = self.body(self.features(observations.flatten(0, 1))).view(length, sequences, -1)
        hidden, cell = state
        outputs = []
        for t in range(length):
            keep = (~starts[t]).unsqueeze(-1).to(hidden.dtype)
            hidden, cell = self.lstm(encoded[t], (hidden * keep, cell * keep))
            outputs.append(hidden)
        return self.heads(torch.cat(outputs)).view(length, sequences, -1)

    @property
    def noise_size(self) -> int:
        """Random numbers that one noisy pass takes, 0 without noisy layers."""
        return sum(layer.inputs + layer.outputs for layer in self.modules() if isinstance(layer, NoisyLinear))

    def split_noise(self, noise: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Scaled noise [..., noise_size] as the layers take it, in the order of `heads`."""
        streams = [self.advantage] + ([self.value] if self.value is not None else [])
        sizes = [n for s in streams for layer in s.layers if isinstance(layer, NoisyLinear) for n in _sizes(layer)]
        parts = noise.split(sizes, -1)
        return list(zip(parts[::2], parts[1::2], strict=True))


def scale_noise(gaussian: np.ndarray) -> np.ndarray:
    """f(x) = sign(x) sqrt|x|, which makes the product of two a good stand-in for a Gaussian."""
    return np.sign(gaussian) * np.sqrt(np.abs(gaussian))


def _sizes(layer: NoisyLinear) -> tuple[int, int]:
    return layer.inputs, layer.outputs
