"""SAC's policy graph (Haarnoja et al. 2018, arXiv 1812.05905), for continuous and for discrete actions.

    y = R + discount (min_c Q_c(s', a') - alpha log pi(a'|s')),   a' ~ pi(.|s')
    actor: E[alpha log pi(a|s) - min_c Q_c(s, a)],   temperature: E[-log alpha (log pi(a|s) + target entropy)]

Discrete actions need no samples: expectations over pi are sums (Christodoulou 2019, arXiv 1910.07207).
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rlcore.policy.action_spaces import require_discrete_or_bounded_box
from rlcore.policy.policy_graph import State
from rlcore.policy.q_actor_critic import LOG_ALPHA, QActorCriticPolicyGraph, TensorBatch
from rlcore.policy.sac_actions import ContinuousActions, DiscreteActions
from rlcore.sample_batch import DISCOUNTS, REWARDS


class SACPolicyGraph(QActorCriticPolicyGraph):
    """Maximum entropy actor-critic with twin critics and a temperature that is learned."""

    @classmethod
    def require_action_space(cls, space: gym.Space[Any], algorithm: str) -> None:
        require_discrete_or_bounded_box(space, algorithm)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.config.target_entropy is None:
            self.target_entropy = self.kind.default_target_entropy(self.config.discrete_entropy_share)
        else:
            self.target_entropy = float(self.config.target_entropy)

    def build_online(self) -> nn.Module:
        space = self.action_space
        kind = DiscreteActions if isinstance(space, gym.spaces.Discrete) else ContinuousActions
        self.kind: DiscreteActions | ContinuousActions = kind(space)
        self.action_shape, self.action_dtype = self.kind.action_shape, self.kind.action_dtype
        network = self.kind.build(self.observation_space, self.model_spec)
        network.log_alpha = nn.Parameter(torch.tensor([math.log(self.config.initial_alpha)]))
        return network

    # acting --------------------

    def draw_noise(self, length: int, slots: int) -> np.ndarray:
        return self.kind.draw_noise(self.rng, length, slots)

    def act(
        self,
        observations: np.ndarray,
        state: State,
        *,
        noise: np.ndarray | None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, State, dict[str, np.ndarray]]:
        if noise is not None and self.timesteps < self.config.random_timesteps:
            return self.kind.random_actions(noise, action_mask), state, {}
        return self.kind.choose(self.actor_outputs(observations), noise, action_mask), state, {}

    # learning --------------------

    @property
    def alpha(self) -> Tensor:
        log_alpha: Tensor = self.model.online.log_alpha
        return log_alpha.detach().exp().squeeze(0)

    def targets(self, batch: TensorBatch) -> Tensor:
        values = self.kind.next_values(self.model, batch, self.alpha, self.rng)
        return batch[REWARDS] + batch[DISCOUNTS] * values

    def critic_values(self, batch: TensorBatch) -> Tensor:
        return self.kind.critic_values(self.model.online, batch)

    def actor_loss(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        return self.kind.actor_loss(self.model.online, batch, self.alpha, self.rng)

    def alpha_gradient(self, entropy: Tensor) -> None:
        # d/d log alpha of -log alpha (log pi + target), with entropy = -E[log pi].
        if self.config.learn_alpha:
            self.flat.gradient[self.parts[LOG_ALPHA]] = entropy - self.target_entropy
