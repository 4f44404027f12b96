"""PPO's policy graph (Schulman et al. 2017, arXiv 1707.06347)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcore.policy.advantages import generalized_advantages
from rlcore.policy.distributions import MASKED_LOGIT
from rlcore.policy.models import SharedTrunk
from rlcore.policy.policy_graph import Stats
from rlcore.policy.ppo_loss import STAT_NAMES, PPOCoefficients, closed_form_gradient, has_closed_form, ppo_loss
from rlcore.policy.schedules import Schedule
from rlcore.policy.sequences import flatten_rows, flatten_sequences
from rlcore.policy.torch_policy_graph import Loaded, TorchPolicyGraph
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    ADVANTAGES,
    BEHAVIOUR_LOGP,
    DIST_INPUTS,
    OBSERVATIONS,
    STARTS,
    STATE_PREFIX,
    VALID,
    VALUE_TARGETS,
    VALUES,
    Fragment,
    SampleBatch,
)


class PPOPolicyGraph(TorchPolicyGraph):
    """Clipped surrogate, value and entropy losses; advantages by GAE, computed where the samples are."""

    stat_names = STAT_NAMES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = self.config
        self.clip_range = Schedule(config.clip_range, config.clip_range_schedule)
        self.entropy_coefficient = Schedule(config.entropy_coefficient, config.entropy_coefficient_schedule)
        self.coefficients = PPOCoefficients(
            clip_range=self.clip_range(0),
            value_clip_range=config.value_clip_range,
            value_coefficient=config.value_loss_coefficient,
            entropy_coefficient=self.entropy_coefficient(0),
            kl_coefficient=config.kl_coefficient,
        )

    def postprocess(self, fragment: Fragment, others: Mapping[str, Fragment] | None = None) -> SampleBatch:
        config = self.config
        values = self._fragment_values(fragment)
        advantages = generalized_advantages(
            fragment.rewards * np.float32(config.reward_scale),
            values,
            fragment.terminated,
            fragment.truncated,
            fragment.valid,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
        )
        columns = {
            OBSERVATIONS: fragment.observations[:-1],
            ACTIONS: fragment.actions,
            BEHAVIOUR_LOGP: self.logp(fragment.extras[DIST_INPUTS], fragment.actions),
            ADVANTAGES: advantages,
            VALUES: values[:-1],
            VALUE_TARGETS: advantages + values[:-1],
        }
        if fragment.action_mask is not None:
            columns[ACTION_MASK] = fragment.action_mask[:-1]
        if config.kl_coefficient:
            columns[DIST_INPUTS] = fragment.extras[DIST_INPUTS]
        if self.recurrent:
            return flatten_sequences(columns, fragment)
        return flatten_rows(columns, fragment)

    def _fragment_values(self, fragment: Fragment) -> np.ndarray:
        """Values float32 [T + 1, N]: from `act` where it gave them, else of the whole fragment at once."""
        length, slots = fragment.length, fragment.slots
        if VALUES in fragment.extras:
            last = self.values(fragment.observations[-1], fragment.last_state)
            return np.concatenate([fragment.extras[VALUES], last[None]])
        rows = fragment.observations.reshape((length + 1) * slots, *fragment.observations.shape[2:])
        return self.values(rows, []).reshape(length + 1, slots)

    @property
    def gradients_in_numpy(self) -> bool:
        return self.fast is not None and has_closed_form(self.distribution)

    def minibatch_gradient(self, loaded: Loaded, indices: Any) -> np.ndarray | Tensor:
        time_major = loaded["__time_major__"]
        if self.device.type != "cpu" and isinstance(indices, np.ndarray):
            indices = torch.from_numpy(indices).to(self.device, non_blocking=True)
        batch = {
            name: column[:, indices] if time_major and not name.startswith(STATE_PREFIX) else column[indices]
            for name, column in loaded.items()
            if name != "__time_major__"
        }
        if self.gradients_in_numpy:
            assert self.fast is not None
            return closed_form_gradient(self.fast, self.distribution, batch, self.coefficients)
        self.flat.gradient.zero_()
        inputs, values = self._forward(batch)
        if ACTION_MASK in batch:
            inputs = torch.where(batch[ACTION_MASK], inputs, MASKED_LOGIT)
        weights = batch[VALID].float() if time_major else None
        loss, stats = ppo_loss(self.distribution, inputs, values, batch, self.coefficients, weights)
        loss.backward()
        return stats

    def _forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        if self.recurrent:
            assert isinstance(self.model, SharedTrunk)
            state = [batch[f"{STATE_PREFIX}_{i}"] for i in range(2)]
            return self.model.unroll(batch[OBSERVATIONS], state, batch[STARTS])
        inputs, values = self.model(batch[OBSERVATIONS])
        return inputs, values

    def on_global_timesteps(self, timesteps: int) -> None:
        super().on_global_timesteps(timesteps)
        self.coefficients.clip_range = self.clip_range(timesteps)
        self.coefficients.entropy_coefficient = self.entropy_coefficient(timesteps)

    def after_update(self, stats: Stats) -> None:
        """Adapts the KL coefficient towards `klTarget` (section 4 of the paper), where both are set."""
        target = self.config.kl_target
        if not target or not self.config.kl_coefficient:
            return
        if stats["kl"] > 2.0 * target:
            self.coefficients.kl_coefficient *= 1.5
        elif stats["kl"] < 0.5 * target:
            self.coefficients.kl_coefficient *= 0.5

    def exceeds_kl_target(self, kl: float) -> bool:
        """Whether further epochs on this batch should be left out: KL > 1.5 `klTarget` without a KL penalty."""
        config = self.config
        return bool(config.kl_target and not config.kl_coefficient and kl > 1.5 * config.kl_target)

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "kl_coefficient": self.coefficients.kl_coefficient}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.coefficients.kl_coefficient = state["kl_coefficient"]
