"""Policy graphs of DDPG (Lillicrap et al. 2016, arXiv 1509.02971) and TD3 (Fujimoto et al. 2018, arXiv 1802.09477)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rlcore.policy.action_bounds import ActionBounds
from rlcore.policy.action_spaces import require_bounded_box
from rlcore.policy.critics import Actor, Critics
from rlcore.policy.exploration import slot_epsilons
from rlcore.policy.policy_graph import State
from rlcore.policy.q_actor_critic import QActorCriticPolicyGraph, TensorBatch
from rlcore.sample_batch import ACTIONS, DISCOUNTS, NEXT_OBSERVATIONS, OBSERVATIONS, REWARDS


class DeterministicActorCritic(nn.Module):
    """`actor` to one number a dimension, squashed by tanh; `critics`."""

    def __init__(self, space: gym.spaces.Box, actions: int, model: Any, *, critics: int) -> None:
        super().__init__()
        self.actor = Actor(space, actions, model)
        self.critics = Critics(space, actions, model, count=critics)

    def actions(self, observations: Tensor) -> Tensor:
        """[B, D] in -1..1."""
        return torch.tanh(self.actor(observations))


class DDPGPolicyGraph(QActorCriticPolicyGraph):
    """Deterministic policy gradient: the actor climbs the critic.

    y = R + discount Q_target(s', pi_target(s')),   actor: -E[Q(s, pi(s))]
    """

    critic_count = 1

    @classmethod
    def require_action_space(cls, space: gym.Space[Any], algorithm: str) -> None:
        require_bounded_box(space, algorithm)

    def build_online(self) -> nn.Module:
        assert isinstance(self.action_space, gym.spaces.Box)
        self.bounds = ActionBounds(self.action_space)
        self.action_shape, self.action_dtype = (self.bounds.size,), np.dtype(np.float32)
        return DeterministicActorCritic(
            self.observation_space, self.bounds.size, self.model_spec, critics=self.critic_count
        )

    # acting --------------------

    def draw_noise(self, length: int, slots: int) -> np.ndarray:
        """[length, slots, 2 D]: Gaussian noise, then uniform actions for the random beginning."""
        shape = (length, slots, self.bounds.size)
        gaussian = self.rng.standard_normal(shape, dtype=np.float32)
        return np.concatenate([gaussian, 2 * self.rng.random(shape, dtype=np.float32) - 1], axis=-1)

    def act(
        self,
        observations: np.ndarray,
        state: State,
        *,
        noise: np.ndarray | None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, State, dict[str, np.ndarray]]:
        size = self.bounds.size
        if noise is not None and self.timesteps < self.config.random_timesteps:
            return self.bounds.outward(noise[:, size:]), state, {}
        actions = np.tanh(self.actor_outputs(observations))
        if noise is not None:
            actions = np.clip(actions + noise[:, :size] * self.noise_scale(len(actions)), -1.0, 1.0)
        return self.bounds.outward(actions), state, {}

    def noise_scale(self, slots: int) -> np.ndarray | np.float32:
        """Deviation of the exploration noise in units of half the bounds: of each slot [slots, 1], or of all."""
        if not self.config.per_slot_noise:
            return np.float32(self.config.exploration_noise)
        return slot_epsilons(self.worker_index, slots)[:, None]

    # learning --------------------

    def inward(self, actions: Tensor) -> Tensor:
        """Stored actions as the critics take them, [B, D] in -1..1."""
        return torch.from_numpy(self.bounds.inward(actions.cpu().numpy())).to(self.device)

    def targets(self, batch: TensorBatch) -> Tensor:
        following = batch[NEXT_OBSERVATIONS]
        values = self.model.target.critics(following, self.next_actions(following))
        return batch[REWARDS] + batch[DISCOUNTS] * values.min(0).values

    def next_actions(self, observations: Tensor) -> Tensor:
        """The target actor's, [B, D] in -1..1."""
        actions: Tensor = self.model.target.actions(observations)
        return actions

    def critic_values(self, batch: TensorBatch) -> Tensor:
        values: Tensor = self.model.online.critics(batch[OBSERVATIONS], self.inward(batch[ACTIONS]))
        return values

    def actor_loss(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        online = self.model.online
        values = online.critics.each[0](batch[OBSERVATIONS], online.actions(batch[OBSERVATIONS]))
        return -values.mean(), torch.zeros((), device=self.device)


class TD3PolicyGraph(DDPGPolicyGraph):
    """DDPG with twin critics, a delayed actor, and target actions smoothed by clipped noise."""

    critic_count = 2

    def next_actions(self, observations: Tensor) -> Tensor:
        actions = super().next_actions(observations)
        drawn = self.rng.standard_normal(tuple(actions.shape), dtype=np.float32) * self.config.target_noise
        noise = np.clip(drawn, -self.config.target_noise_clip, self.config.target_noise_clip)
        smoothed = actions + torch.as_tensor(noise, dtype=torch.float32, device=self.device)
        return smoothed.clamp(-1.0, 1.0)
