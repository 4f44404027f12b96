"""What policy graphs of several agents that learn together share: whose part of a joint observation is whose.

B rows hold all agents side by side (see `rlcore.env.joint`). Agents of one group share a network, and each of them has
its number in the group beside its observation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rlcore.env.joint import AgentGroup, JointBox, JointLayout
from rlcore.policy.distributions import MASKED_LOGIT
from rlcore.policy.models import layer_widths, linear, mlp, relu_unless_chosen
from rlcore.policy.sequences import flatten_rows
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    NEXT_ACTION_MASK,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    Fragment,
    SampleBatch,
)

if TYPE_CHECKING:
    from rlcore.api import ModelSpec

AGENT_REWARDS = "agent_rewards"
ACTED = "acted"
GOES_ON = "goes_on"


def layout_of(space: gym.spaces.Box) -> JointLayout:
    """What is where in the observations of a joint environment."""
    assert isinstance(space, JointBox), "only a joint environment has agents side by side"
    return space.layout


def numbered(observations: Tensor) -> Tensor:
    """[..., agents, D] with each agent's number beside it, [..., agents, D + agents]; one agent needs none."""
    agents = observations.shape[-2]
    if agents == 1:
        return observations
    numbers = torch.eye(agents, device=observations.device).expand(*observations.shape[:-1], agents)
    return torch.cat([observations, numbers], -1)


def own_space(group: AgentGroup) -> gym.spaces.Box:
    """Space of what the network of a group sees of one agent: `numbered`."""
    width = group.observation_size + (group.size if group.size > 1 else 0)
    return gym.spaces.Box(-np.inf, np.inf, (width,), np.float32)


class Perceptron(nn.Module):
    """Vectors [..., inputs] to numbers [..., outputs]."""

    def __init__(self, inputs: int, outputs: int, spec: ModelSpec, *, gain: float) -> None:
        super().__init__()
        space = gym.spaces.Box(-np.inf, np.inf, (inputs,), np.float32)
        self.body, width = mlp(inputs, layer_widths(space, spec), relu_unless_chosen(spec))
        self.head = linear(width, outputs, gain=gain)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(inputs))
        return out


def masked(values: Tensor, mask: Tensor | None) -> Tensor:
    """Action values or logits [..., n], of forbidden actions as low as can be."""
    return values if mask is None or not mask.shape[-1] else torch.where(mask, values, MASKED_LOGIT)


def mask_parts(layout: JointLayout, mask: Any | None) -> list[Any | None]:
    """A joint mask [..., M] group by group, [..., agents, n]; None where there is no mask."""
    return [None] * len(layout.groups) if mask is None else layout.parts(mask, "mask_columns")


def single_step_rows(fragment: Fragment, *, reward_scale: float) -> SampleBatch:
    """Transitions as rows [B, ...], with each agent's own reward, and whether it acted and goes on, [B, A]."""
    columns = {
        OBSERVATIONS: fragment.observations[:-1],
        ACTIONS: fragment.actions,
        NEXT_OBSERVATIONS: fragment.observations[1:],
        AGENT_REWARDS: fragment.agents["rewards"] * np.float32(reward_scale),
        ACTED: fragment.agents["acted"],
        GOES_ON: fragment.agents["goes_on"],
    }
    if fragment.action_mask is not None:
        columns[ACTION_MASK] = fragment.action_mask[:-1]
        columns[NEXT_ACTION_MASK] = fragment.action_mask[1:]
    return flatten_rows(columns, fragment)
