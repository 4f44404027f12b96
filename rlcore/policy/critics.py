"""Networks that value continuous actions, and those that choose them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium as gym
import torch
from torch import Tensor, nn

from rlcore.policy.models import build_features, layer_widths, linear, mlp, relu_unless_chosen

if TYPE_CHECKING:
    from rlcore.api import ModelSpec


class Critic(nn.Module):
    """Observations [B, *obs] and actions [B, D] in -1..1 to values [B]."""

    def __init__(self, space: gym.spaces.Box, actions: int, spec: ModelSpec) -> None:
        super().__init__()
        self.features, width = build_features(space, spec)
        self.body, width = mlp(width + actions, layer_widths(space, spec), relu_unless_chosen(spec))
        self.head = linear(width, 1, gain=1.0)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        joined = torch.cat([self.features(observations), actions], -1)
        out: Tensor = self.head(self.body(joined))
        return out.squeeze(-1)


class Critics(nn.Module):
    """One critic, or two that are trained alike: the smaller value errs less upwards (Fujimoto et al. 2018)."""

    def __init__(self, space: gym.spaces.Box, actions: int, spec: ModelSpec, *, count: int) -> None:
        super().__init__()
        self.each = nn.ModuleList(Critic(space, actions, spec) for _ in range(count))

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Values [C, B]."""
        return torch.stack([critic(observations, actions) for critic in self.each])


class Actor(nn.Module):
    """Observations [B, *obs] to the numbers that an action is made of, [B, outputs]."""

    def __init__(self, space: gym.spaces.Box, outputs: int, spec: ModelSpec) -> None:
        super().__init__()
        self.features, width = build_features(space, spec)
        self.body, width = mlp(width, layer_widths(space, spec), relu_unless_chosen(spec))
        self.head = linear(width, outputs, gain=0.01)

    def forward(self, observations: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(self.features(observations)))
        return out
