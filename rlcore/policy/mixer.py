"""QMIX's mixing network (Rashid et al. 2018, arXiv 1803.11485, section 4.1).

    Q_tot = |w2(s)| elu(|W1(s)| q + b1(s)) + V(s)

The weights are made from the global state by other networks, and are never negative: the team's value grows with every
agent's, so that the best joint action is each agent's own best.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Mixer(nn.Module):
    """The team's value of its agents' values.

    Args:
        state_size: width S of the global state.
        agents: A.
        embedding: width of the mixing layer.
        hidden: width of the networks that make the weights.
    """

    def __init__(self, state_size: int, agents: int, *, embedding: int, hidden: int) -> None:
        super().__init__()
        self.agents, self.embedding = agents, embedding
        self.first = _two_layers(state_size, hidden, agents * embedding)
        self.first_bias = nn.Linear(state_size, embedding)
        self.last = _two_layers(state_size, hidden, embedding)
        self.value = _two_layers(state_size, embedding, 1)

    def forward(self, values: Tensor, states: Tensor) -> Tensor:
        """Agents' values [..., A] and states [..., S] to the team's values [...]."""
        weights = self.first(states).abs().unflatten(-1, (self.agents, self.embedding))
        mixed = (values.unsqueeze(-2) @ weights).squeeze(-2) + self.first_bias(states)
        out: Tensor = (functional.elu(mixed) * self.last(states).abs()).sum(-1) + self.value(states).squeeze(-1)
        return out


def _two_layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def team_targets(rewards: Tensor, discounts: Tensor, following: Tensor) -> Tensor:
    """y = R + discount Q_tot'(s'), each [...]; the discount is 0 where the episode terminated."""
    return rewards + discounts * following


def picked(values: list[Tensor], actions: Tensor) -> Tensor:
    """Each agent's value of its action, [..., A].

    Args:
        values: [..., agents, n] of each group.
        actions: [..., A].
    """
    chosen = actions.long().split([part.shape[-2] for part in values], -1)
    found = [part.gather(-1, choice.unsqueeze(-1)).squeeze(-1) for part, choice in zip(values, chosen, strict=True)]
    return torch.cat(found, -1)
