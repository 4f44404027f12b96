"""Policy graphs that learn from records: behaviour cloning, and MARWIL (Wang et al. 2018, "Exponentially Weighted
Imitation Learning for Batched Historical Data", algorithm 1).

    BC:     L = -E[log pi(a|s)]
    MARWIL: L = -E[exp(beta A / c) log pi(a|s)] + c_v E[(V - R)^2] / 2,  A = R - V(s),  c^2 a moving average of A^2

R is the discounted sum of the recorded rewards, and where the trajectory was cut off the value of what came next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcore.errors import UnsupportedError
from rlcore.policy.actor_critic import ActorCriticPolicyGraph
from rlcore.policy.policy_graph import Stats
from rlcore.policy.torch_policy_graph import Loaded
from rlcore.sample_batch import ACTIONS, DISCOUNTS, FINAL_OBSERVATIONS, RETURNS, VALUE_TARGETS, Fragment, SampleBatch


class BCPolicyGraph(ActorCriticPolicyGraph):
    """Behaviour cloning; arguments as TorchPolicyGraph's.

    Raises:
        UnsupportedError: a recurrent model.
    """

    stat_names: tuple[str, ...] = ("policy_loss", "entropy")
    needs_returns = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.recurrent:
            raise UnsupportedError(
                f"spec.model.lstmSize: {self.model_spec.lstm_size} is not supported by BC and MARWIL: "
                "records are single timesteps",
                hint="leave lstmSize out",
            )

    def postprocess(self, fragment: Fragment, others: Mapping[str, Fragment] | None = None) -> SampleBatch:
        raise UnsupportedError(f"{type(self).__name__} learns from records, not from episodes of its own")

    def minibatch_gradient(self, loaded: Loaded, indices: Any) -> np.ndarray | Tensor:
        batch = self.minibatch(loaded, indices)
        self.flat.gradient.zero_()
        inputs, values = self.forward(batch)
        loss, stats = self.loss(inputs, values, batch)
        loss.backward()
        return stats

    def loss(self, inputs: Tensor, values: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The scalar loss and its statistics (`stat_names`), from distribution inputs [B, A] and values [B]."""
        loss = -self.distribution.logp(inputs, batch[ACTIONS]).mean()
        return loss, torch.stack([loss, self.distribution.entropy(inputs).mean()]).detach()


class MARWILPolicyGraph(BCPolicyGraph):
    """Advantage-weighted cloning with a value function; arguments as TorchPolicyGraph's."""

    stat_names = ("policy_loss", "entropy", "value_loss", "mean_weight", "advantage_norm")
    needs_returns = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # An array, which towers share: c^2, and whether there is one yet.
        self.squared_norm = np.zeros(1)

    def prepare(self, batch: SampleBatch) -> tuple[SampleBatch, Stats]:
        scale = np.float32(self.config.reward_scale)
        beyond = self.values(batch[FINAL_OBSERVATIONS], []) * batch[DISCOUNTS]
        targets = {VALUE_TARGETS: scale * batch[RETURNS] + beyond}
        return batch.without(FINAL_OBSERVATIONS, RETURNS, DISCOUNTS).with_columns(**targets), {}

    def loss(self, inputs: Tensor, values: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        config = self.config
        advantages = batch[VALUE_TARGETS] - values
        norm = self._norm(float(advantages.detach().square().mean()))
        weights = (config.beta * advantages.detach() / norm).exp().clamp(max=config.largest_weight)
        policy_loss = -(weights * self.distribution.logp(inputs, batch[ACTIONS])).mean()
        value_loss = 0.5 * advantages.square().mean()
        stats = [policy_loss, self.distribution.entropy(inputs).mean(), value_loss, weights.mean()]
        loss = policy_loss + config.value_loss_coefficient * value_loss
        return loss, torch.stack([*stats, torch.tensor(norm, device=values.device)]).detach()

    def _norm(self, mean_square: float) -> float:
        """c, after a step of its square towards this minibatch's; the first minibatch sets it."""
        before = self.squared_norm[0] or mean_square
        self.squared_norm[0] = before + self.config.advantage_norm_rate * (mean_square - before)
        return max(float(np.sqrt(self.squared_norm[0])), 1e-8)

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "squared_norm": self.squared_norm.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.squared_norm[:] = state["squared_norm"]
