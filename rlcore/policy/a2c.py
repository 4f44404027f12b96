"""Policy graphs of on-policy gradients: PG (Williams 1992), and A2C and A3C (Mnih et al. 2016, arXiv 1602.01783).

L = -E[log pi(a|s) A] + c_v E[(V - R)^2] / 2 - c_e E[H]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcore.policy.actor_critic import ActorCriticPolicyGraph
from rlcore.policy.advantages import explained_variance, normalized_advantages
from rlcore.policy.policy_graph import Stats
from rlcore.policy.schedules import Schedule
from rlcore.policy.torch_policy_graph import TIME_MAJOR, Loaded
from rlcore.sample_batch import ACTIONS, ADVANTAGES, VALID, VALUE_TARGETS, Fragment, SampleBatch


class PGPolicyGraph(ActorCriticPolicyGraph):
    """REINFORCE: the gradient of log-probabilities, weighted by the rewards from there to the episode's end.

    An episode that was cut off counts as it is: there is no value function that could say what it missed.
    """

    stat_names: tuple[str, ...] = ("policy_loss", "entropy")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entropy_schedule = Schedule(self.config.entropy_coefficient, self.config.entropy_coefficient_schedule)
        self.entropy_coefficient = self.entropy_schedule(0)

    def postprocess(self, fragment: Fragment, others: Mapping[str, Fragment] | None = None) -> SampleBatch:
        no_values = np.zeros((fragment.length + 1, fragment.slots), np.float32)
        return self.advantage_batch(fragment, no_values, 1.0, {})

    def prepare(self, batch: SampleBatch) -> tuple[SampleBatch, Stats]:
        if self.config.normalize_advantages:
            batch = batch.with_columns(**{ADVANTAGES: normalized_advantages(batch)})
        return batch, {}

    def minibatch_gradient(self, loaded: Loaded, indices: Any) -> Tensor:
        batch = self.minibatch(loaded, indices)
        self.flat.gradient.zero_()
        inputs, values = self.forward(batch)
        loss, stats = self.loss(inputs, values, batch, batch[VALID].float() if loaded[TIME_MAJOR] else None)
        loss.backward()
        return stats

    def loss(
        self, inputs: Tensor, values: Tensor, batch: Mapping[str, Tensor], weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The scalar loss and its statistics (`stat_names`).

        Args:
            inputs: distribution inputs [..., A].
            values: [...].
            batch: actions, advantages, and what a subclass needs.
            weights: [...] 1 for real timesteps and 0 for padding; None for all real.
        """
        policy_loss = -weighted_mean(self.distribution.logp(inputs, batch[ACTIONS]) * batch[ADVANTAGES], weights)
        entropy = weighted_mean(self.distribution.entropy(inputs), weights)
        return policy_loss - self.entropy_coefficient * entropy, torch.stack([policy_loss, entropy]).detach()

    def on_global_timesteps(self, timesteps: int) -> None:
        super().on_global_timesteps(timesteps)
        self.entropy_coefficient = self.entropy_schedule(timesteps)


class A2CPolicyGraph(PGPolicyGraph):
    """The same gradient, weighted by advantages over a value function that is learned beside it."""

    stat_names = ("policy_loss", "entropy", "value_loss")

    def postprocess(self, fragment: Fragment, others: Mapping[str, Fragment] | None = None) -> SampleBatch:
        return self.advantage_batch(fragment, self.fragment_values(fragment), self.config.gae_lambda, {})

    def prepare(self, batch: SampleBatch) -> tuple[SampleBatch, Stats]:
        stats = {"explained_variance": explained_variance(batch)}
        return super().prepare(batch)[0], stats

    def loss(
        self, inputs: Tensor, values: Tensor, batch: Mapping[str, Tensor], weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        loss, stats = super().loss(inputs, values, batch, weights)
        value_loss = 0.5 * weighted_mean((values - batch[VALUE_TARGETS]).square(), weights)
        stats = torch.cat([stats, value_loss.detach()[None]])
        return loss + self.config.value_loss_coefficient * value_loss, stats


def weighted_mean(x: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over real timesteps."""
    return x.mean() if weights is None else (x * weights).sum() / weights.sum()
