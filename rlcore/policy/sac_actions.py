"""SAC's two kinds of actions: squashed Gaussians between bounds, and one of n."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rlcore.policy.action_bounds import ActionBounds
from rlcore.policy.critics import Actor, Critics
from rlcore.policy.distributions import MASKED_LOGIT, Categorical
from rlcore.policy.q_network import QNetwork
from rlcore.sample_batch import ACTION_MASK, ACTIONS, NEXT_ACTION_MASK, NEXT_OBSERVATIONS, OBSERVATIONS

if TYPE_CHECKING:
    from rlcore.api import ModelSpec
    from rlcore.policy.q_actor_critic import TensorBatch

LOG_STD_RANGE = (-5.0, 2.0)
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class SoftNetwork(nn.Module):
    """`actor`, `critics` and the logarithm of the temperature."""

    log_alpha: nn.Parameter

    def __init__(self, actor: nn.Module, critics: nn.Module) -> None:
        super().__init__()
        self.actor = actor
        self.critics = critics


def squashed_sample(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions tanh(mean + deviation * noise) in -1..1, [B, D], and their log-densities there, [B].

    log pi(a) = log N(u) - sum log(1 - tanh(u)^2), the last term as 2 (log 2 - u - softplus(-2u)), which stays finite
    (appendix C of the paper).
    """
    mean, log_std = outputs.chunk(2, -1)
    log_std = log_std.clamp(*LOG_STD_RANGE)
    u = mean + log_std.exp() * noise
    gaussian = (-0.5 * noise.square() - log_std - _HALF_LOG_2PI).sum(-1)
    squash = (2.0 * (math.log(2.0) - u - functional.softplus(-2.0 * u))).sum(-1)
    return torch.tanh(u), gaussian - squash


class ContinuousActions:
    """A Box with finite bounds."""

    def __init__(self, space: gym.Space[Any]) -> None:
        assert isinstance(space, gym.spaces.Box)
        self.bounds = ActionBounds(space)
        self.action_shape: tuple[int, ...] = (self.bounds.size,)
        self.action_dtype = np.dtype(np.float32)

    def default_target_entropy(self, share: float) -> float:
        """-1 nat a dimension, of actions in -1..1."""
        return -float(self.bounds.size)

    def build(self, space: gym.spaces.Box, spec: ModelSpec) -> SoftNetwork:
        """Actor to means and log deviations; twin critics."""
        size = self.bounds.size
        return SoftNetwork(Actor(space, 2 * size, spec), Critics(space, size, spec, count=2))

    def draw_noise(self, rng: np.random.Generator, length: int, slots: int) -> np.ndarray:
        """[length, slots, 2 D]: Gaussian, then uniform in -1..1 for the random beginning."""
        shape = (length, slots, self.bounds.size)
        gaussian = rng.standard_normal(shape, dtype=np.float32)
        return np.concatenate([gaussian, 2 * rng.random(shape, dtype=np.float32) - 1], axis=-1)

    def random_actions(self, noise: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Uniform between the bounds."""
        return self.bounds.outward(noise[:, self.bounds.size :])

    def choose(self, outputs: np.ndarray, noise: np.ndarray | None, mask: np.ndarray | None) -> np.ndarray:
        """A sample, or the squashed mean without noise."""
        size = self.bounds.size
        u = outputs[:, :size]
        if noise is not None:
            u = u + np.exp(np.clip(outputs[:, size:], *LOG_STD_RANGE)) * noise[:, :size]
        return self.bounds.outward(np.tanh(u))

    def next_values(self, model: Any, batch: TensorBatch, alpha: Tensor, rng: np.random.Generator) -> Tensor:
        """Soft values [B] of the next states, of one sampled action each."""
        following = batch[NEXT_OBSERVATIONS]
        actions, logp = self._sample(model.online.actor(following), rng)
        values: Tensor = model.target.critics(following, actions).min(0).values - alpha * logp
        return values

    def critic_values(self, network: Any, batch: TensorBatch) -> Tensor:
        """Values [2, B] of the actions taken."""
        actions = torch.from_numpy(self.bounds.inward(batch[ACTIONS].cpu().numpy())).to(batch[ACTIONS].device)
        values: Tensor = network.critics(batch[OBSERVATIONS], actions)
        return values

    def actor_loss(
        self, network: Any, batch: TensorBatch, alpha: Tensor, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """The loss, and the mean entropy by these samples."""
        actions, logp = self._sample(network.actor(batch[OBSERVATIONS]), rng)
        values = network.critics(batch[OBSERVATIONS], actions).min(0).values
        return (alpha * logp - values).mean(), -logp.mean()

    def _sample(self, outputs: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        drawn = rng.standard_normal((len(outputs), self.bounds.size), dtype=np.float32)
        return squashed_sample(outputs, torch.as_tensor(drawn, device=outputs.device))


class TwinQ(nn.Module):
    """Two action-value networks, values [2, B, A]."""

    def __init__(self, space: gym.spaces.Box, actions: int, spec: ModelSpec) -> None:
        super().__init__()
        self.each = nn.ModuleList(QNetwork(space, actions, spec) for _ in range(2))

    def forward(self, observations: Tensor) -> Tensor:
        return torch.stack([network(observations) for network in self.each])


class DiscreteActions:
    """One of n actions, some of them perhaps forbidden."""

    def __init__(self, space: gym.Space[Any]) -> None:
        assert isinstance(space, gym.spaces.Discrete)
        self.categorical = Categorical(int(space.n))
        self.action_shape, self.action_dtype = self.categorical.action_shape, self.categorical.action_dtype

    def default_target_entropy(self, share: float) -> float:
        """A share of the uniform policy's."""
        return share * math.log(self.categorical.n)

    def build(self, space: gym.spaces.Box, spec: ModelSpec) -> SoftNetwork:
        """Actor to logits; twin action values."""
        return SoftNetwork(Actor(space, self.categorical.n, spec), TwinQ(space, self.categorical.n, spec))

    def draw_noise(self, rng: np.random.Generator, length: int, slots: int) -> np.ndarray:
        """Gumbel [length, slots, n]."""
        return self.categorical.draw_noise(rng, length, slots)

    def random_actions(self, noise: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Uniform among those allowed."""
        return self.choose(np.zeros_like(noise), noise, mask)

    def choose(self, outputs: np.ndarray, noise: np.ndarray | None, mask: np.ndarray | None) -> np.ndarray:
        """A sample, or the likeliest action without noise."""
        logits = outputs if mask is None else np.where(mask, outputs, np.float32(MASKED_LOGIT))
        return self.categorical.mode(logits) if noise is None else self.categorical.sample(logits, noise)

    def next_values(self, model: Any, batch: TensorBatch, alpha: Tensor, rng: np.random.Generator) -> Tensor:
        """Soft values [B] of the next states: expectations over the policy."""
        following = batch[NEXT_OBSERVATIONS]
        p, log_p = self._policy(model.online.actor(following), batch.get(NEXT_ACTION_MASK))
        values: Tensor = model.target.critics(following).min(0).values
        return (p * (values - alpha * log_p)).sum(-1)

    def critic_values(self, network: Any, batch: TensorBatch) -> Tensor:
        """Values [2, B] of the actions taken."""
        values: Tensor = network.critics(batch[OBSERVATIONS])
        taken = batch[ACTIONS].expand(2, -1).unsqueeze(-1)
        return values.gather(-1, taken).squeeze(-1)

    def actor_loss(
        self, network: Any, batch: TensorBatch, alpha: Tensor, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """The loss, and the mean entropy."""
        p, log_p = self._policy(network.actor(batch[OBSERVATIONS]), batch.get(ACTION_MASK))
        with torch.no_grad():
            values = network.critics(batch[OBSERVATIONS]).min(0).values
        loss = (p * (alpha * log_p - values)).sum(-1).mean()
        return loss, -(p * log_p).sum(-1).mean()

    @staticmethod
    def _policy(logits: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Probabilities and their logarithms [B, n]; of forbidden actions 0 and 0, so that they add nothing."""
        if mask is None:
            log_p = functional.log_softmax(logits, -1)
            return log_p.exp(), log_p
        log_p = functional.log_softmax(torch.where(mask, logits, MASKED_LOGIT), -1)
        return log_p.exp() * mask, torch.where(mask, log_p, 0.0)
