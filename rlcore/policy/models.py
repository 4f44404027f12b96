"""Actor-critic networks.

Every network here is an `ActorCritic`: observations in, distribution inputs and state values out. Layers start
orthogonal (Saxe et al. 2014), the policy's last layer small, so that a new policy is close to uniform.
"""

from __future__ import annotations

import importlib
import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rlcore.errors import UnsupportedError, UserError
from rlcore.policy.distributions import ActionDistribution, DiagonalGaussian

if TYPE_CHECKING:
    from rlcore.api import ModelSpec

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}
# (filters, kernel, stride): Mnih et al. 2015 (Nature 518) for 84x84 frames; Young & Tian 2019 (MinAtar) for 10x10.
CONV_PRESETS = {"nature": [(32, 8, 4), (64, 4, 2), (64, 3, 1)], "small": [(16, 3, 1)]}
CONV_HIDDENS = {"nature": [512], "small": [128]}


class ActorCritic(nn.Module):
    """Observations [B, *obs] (recurrent: [T, S, *obs]) to distribution inputs [B, A] and values [B].

    Attributes:
        state_size: width of each recurrent state, 0 for none.
    """

    state_size: int = 0

    @abstractmethod
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, A] and values [B]."""

    def values(self, observations: Tensor) -> Tensor:
        """Values [B] alone."""
        return self(observations)[1]


class Head(nn.Module):
    """The policy's last layer; a Gaussian's log standard deviations are parameters free of the observation."""

    def __init__(self, width: int, distribution: ActionDistribution, initial_log_std: float) -> None:
        super().__init__()
        free_std = isinstance(distribution, DiagonalGaussian)
        outputs = distribution.input_size // 2 if free_std else distribution.input_size
        self.linear = linear(width, outputs, gain=0.01)
        self.log_std = nn.Parameter(torch.full((outputs,), initial_log_std)) if free_std else None

    def forward(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.linear(hidden)
        if self.log_std is None:
            return out
        return torch.cat([out, self.log_std.expand_as(out)], -1)


class SeparateMLP(ActorCritic):
    """Two multi-layer perceptrons, one for the policy and one for values."""

    def __init__(self, inputs: int, distribution: ActionDistribution, spec: ModelSpec) -> None:
        super().__init__()
        self.policy_body, width = mlp(inputs, spec.hiddens, spec.activation)
        self.value_body, _ = mlp(inputs, spec.hiddens, spec.activation)
        self.policy_head = Head(width, distribution, spec.initial_log_std)
        self.value_head = linear(width, 1, gain=1.0)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        flat = observations.flatten(1).float()
        return self.policy_head(self.policy_body(flat)), self.value_head(self.value_body(flat)).squeeze(-1)

    def values(self, observations: Tensor) -> Tensor:
        out: Tensor = self.value_head(self.value_body(observations.flatten(1).float()))
        return out.squeeze(-1)


class SharedTrunk(ActorCritic):
    """One encoder (MLP or CNN), optionally an LSTM, and two heads."""

    def __init__(self, encoder: nn.Module, width: int, distribution: ActionDistribution, spec: ModelSpec) -> None:
        super().__init__()
        self.encoder = encoder
        self.lstm = nn.LSTMCell(width, spec.lstm_size) if spec.lstm_size else None
        if self.lstm is not None and spec.lstm_size:
            width = self.state_size = spec.lstm_size
            _orthogonal_lstm(self.lstm)
        self.policy_head = Head(width, distribution, spec.initial_log_std)
        self.value_head = linear(width, 1, gain=1.0)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return self._heads(self.encoder(observations))

    def step(self, observations: Tensor, state: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """One recurrent step: observations [N, *obs], states [N, H] each."""
        assert self.lstm is not None
        state = list(self.lstm(self.encoder(observations), (state[0], state[1])))
        return (*self._heads(state[0]), state)

    def unroll(self, observations: Tensor, state: list[Tensor], starts: Tensor) -> tuple[Tensor, Tensor]:
        """Whole sequences [T, S, *obs]; the state is zeroed wherever `starts` [T, S] says that an episode begins."""
        assert self.lstm is not None
        length, sequences = observations.shape[:2]
        encoded = self.encoder(observations.flatten(0, 1)).view(length, sequences, -1)
        hidden, cell = state
        outputs = []
        for t in range(length):
            keep = (~starts[t]).unsqueeze(-1).to(hidden.dtype)
            hidden, cell = self.lstm(encoded[t], (hidden * keep, cell * keep))
            outputs.append(hidden)
        inputs, values = self._heads(torch.cat(outputs))
        return inputs.view(length, sequences, -1), values.view(length, sequences)

    def _heads(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy_head(hidden), self.value_head(hidden).squeeze(-1)


class CustomModel(ActorCritic):
    """A user's module: `Class(observation_space, num_outputs, **kwargs)`, forward -> (outputs [B, A], values [B])."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        outputs, values = self.module(observations)
        return outputs, values.reshape(-1)


class ConvEncoder(nn.Module):
    """Images [B, C, H, W] to features; 8-bit images are scaled to 0..1."""

    def __init__(
        self, shape: tuple[int, ...], layers: list[tuple[int, int, int]], activation: str, scale: float
    ) -> None:
        super().__init__()
        self.scale = scale
        channels, modules = shape[0], []
        for filters, kernel, stride in layers:
            conv = nn.Conv2d(channels, filters, kernel, stride)
            nn.init.orthogonal_(conv.weight, math.sqrt(2))
            nn.init.zeros_(conv.bias) if conv.bias is not None else None
            modules += [conv, ACTIVATIONS[activation]()]
            channels = filters
        self.layers = nn.Sequential(*modules, nn.Flatten())
        try:
            self.width = self.layers(torch.zeros(1, *shape)).shape[1]
        except RuntimeError as error:
            raise UserError(
                f"spec.model.convLayers: layers {layers} do not fit images of shape {shape}: {error}",
                hint='use smaller kernels and strides, or convPreset "small"',
                permanent=True,
            ) from error

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.layers(images.float() * self.scale)
        return out


class FlatEncoder(nn.Module):
    """Observations of any shape to a multi-layer perceptron's last hidden layer."""

    def __init__(self, inputs: int, hiddens: list[int], activation: str) -> None:
        super().__init__()
        self.body, self.width = mlp(inputs, hiddens, activation)

    def forward(self, observations: Tensor) -> Tensor:
        out: Tensor = self.body(observations.flatten(1).float())
        return out


def build_model(
    observation_space: gym.spaces.Box, distribution: ActionDistribution, spec: ModelSpec, *, seed: int
) -> ActorCritic:
    """The network that a manifest's `spec.model` asks for; the same seed gives the same parameters.

    Raises:
        UserError: a custom class that cannot be loaded, layers that do not fit the observations.
        UnsupportedError: separate value layers for a network that shares them.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if spec.custom:
            return CustomModel(_custom_module(spec, observation_space, distribution))
        shape = observation_space.shape
        conv = _conv_layers(shape, spec)
        if conv is None and not spec.lstm_size and not spec.share_value_layers:
            return SeparateMLP(int(np.prod(shape)), distribution, spec)
        if spec.share_value_layers is False:
            raise UnsupportedError(
                "spec.model.shareValueLayers: false is not supported for convolutional or recurrent models",
                hint="leave shareValueLayers out",
            )
        return _shared_model(observation_space, conv, distribution, spec)


def _shared_model(
    space: gym.spaces.Box, conv: list[tuple[int, int, int]] | None, distribution: ActionDistribution, spec: ModelSpec
) -> SharedTrunk:
    if conv is None:
        flat = FlatEncoder(int(np.prod(space.shape)), spec.hiddens, spec.activation)
        return SharedTrunk(flat, flat.width, distribution, spec)
    images = _conv_encoder(space, conv, spec)
    body, width = mlp(images.width, layer_widths(space, spec), relu_unless_chosen(spec))
    return SharedTrunk(nn.Sequential(images, body), width, distribution, spec)


def build_features(space: gym.spaces.Box, spec: ModelSpec) -> tuple[nn.Module, int]:
    """What comes before the fully connected layers: observations [B, *obs] to features [B, width], and that width."""
    conv = _conv_layers(space.shape, spec)
    if conv is None:
        flat = FlatEncoder(int(np.prod(space.shape)), [], spec.activation)
        return flat, flat.width
    images = _conv_encoder(space, conv, spec)
    return images, images.width


def layer_widths(space: gym.spaces.Box, spec: ModelSpec) -> list[int]:
    """Widths of the fully connected layers: the manifest's, or the convolutions' usual ones."""
    if "hiddens" in spec.model_fields_set or _conv_layers(space.shape, spec) is None:
        return list(spec.hiddens)
    return CONV_HIDDENS.get(_preset(space.shape, spec), [256])


def relu_unless_chosen(spec: ModelSpec) -> str:
    """The manifest's activation where it names one: convolutions and value learning do better with ReLU."""
    return spec.activation if "activation" in spec.model_fields_set else "relu"


def _conv_encoder(space: gym.spaces.Box, conv: list[tuple[int, int, int]], spec: ModelSpec) -> ConvEncoder:
    scale = 1 / 255 if space.dtype == np.uint8 and np.max(space.high) > 1 else 1.0
    return ConvEncoder(space.shape, conv, relu_unless_chosen(spec), scale)


def _conv_layers(shape: tuple[int, ...], spec: ModelSpec) -> list[tuple[int, int, int]] | None:
    if spec.conv_layers:
        return [(layer.filters, layer.kernel, layer.stride) for layer in spec.conv_layers]
    preset = _preset(shape, spec)
    return None if preset == "none" else CONV_PRESETS[preset]


def _preset(shape: tuple[int, ...], spec: ModelSpec) -> str:
    if spec.conv_preset is not None:
        return spec.conv_preset
    if len(shape) != 3:
        return "none"
    return "nature" if min(shape[1:]) >= 36 else "small"


def _custom_module(spec: ModelSpec, space: gym.spaces.Box, distribution: ActionDistribution) -> nn.Module:
    module_name, _, class_name = str(spec.custom).partition(":")
    where = f'spec.model.custom "{spec.custom}"'
    try:
        cls = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        hint = "it must be module:Class, importable from here"
        raise UserError(f"{where}: {error}", hint=hint, permanent=True) from error
    try:
        module = cls(space, distribution.input_size, **spec.custom_kwargs)
    except Exception as error:
        raise UserError(
            f"{where}: cannot be made: {type(error).__name__}: {error}",
            hint="it is called as Class(observation_space, num_outputs, **spec.model.customKwargs)",
            permanent=True,
        ) from error
    if not isinstance(module, nn.Module):
        raise UserError(f"{where}: made a {type(module).__name__}, not a torch.nn.Module", permanent=True)
    if any(True for _ in module.buffers()):
        raise UserError(
            f"{where}: has buffers (a BatchNorm?), which do not travel with the weights",
            hint="use layers without running statistics, such as LayerNorm",
            permanent=True,
        )
    return module


def mlp(inputs: int, hiddens: Any, activation: str) -> tuple[nn.Sequential, int]:
    modules: list[nn.Module] = []
    for width in hiddens:
        modules += [linear(inputs, width, gain=math.sqrt(2)), ACTIVATIONS[activation]()]
        inputs = width
    return nn.Sequential(*modules), inputs


def linear(inputs: int, outputs: int, *, gain: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def _orthogonal_lstm(lstm: nn.LSTMCell) -> None:
    for name, parameter in lstm.named_parameters():
        nn.init.zeros_(parameter) if "bias" in name else nn.init.orthogonal_(parameter)
