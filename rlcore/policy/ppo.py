"""PPO's policy graph (Schulman et al. 2017, arXiv 1707.06347)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from rlcore.policy.actor_critic import ActorCriticPolicyGraph
from rlcore.policy.advantages import explained_variance, normalized_advantages
from rlcore.policy.policy_graph import Stats
from rlcore.policy.ppo_loss import STAT_NAMES, PPOCoefficients, closed_form_gradient, has_closed_form, ppo_loss
from rlcore.policy.schedules import Schedule
from rlcore.policy.torch_policy_graph import TIME_MAJOR, Loaded
from rlcore.sample_batch import ADVANTAGES, BEHAVIOUR_LOGP, DIST_INPUTS, VALID, Fragment, SampleBatch


class PPOPolicyGraph(ActorCriticPolicyGraph):
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
        extra = {BEHAVIOUR_LOGP: self.logp(fragment.extras[DIST_INPUTS], fragment.actions)}
        if self.config.kl_coefficient:
            extra[DIST_INPUTS] = fragment.extras[DIST_INPUTS]
        return self.advantage_batch(fragment, self.fragment_values(fragment), self.config.gae_lambda, extra)

    def prepare(self, batch: SampleBatch) -> tuple[SampleBatch, Stats]:
        stats = {"explained_variance": explained_variance(batch)}
        if self.config.normalize_advantages:
            batch = batch.with_columns(**{ADVANTAGES: normalized_advantages(batch)})
        return batch, stats

    @property
    def gradients_in_numpy(self) -> bool:
        return self.fast is not None and has_closed_form(self.distribution)

    def minibatch_gradient(self, loaded: Loaded, indices: Any) -> np.ndarray | Tensor:
        batch = self.minibatch(loaded, indices)
        if self.gradients_in_numpy:
            assert self.fast is not None
            return closed_form_gradient(self.fast, self.distribution, batch, self.coefficients)
        self.flat.gradient.zero_()
        inputs, values = self.forward(batch)
        weights = batch[VALID].float() if loaded[TIME_MAJOR] else None
        loss, stats = ppo_loss(self.distribution, inputs, values, batch, self.coefficients, weights)
        loss.backward()
        return stats

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

    def stops_early(self, stats: np.ndarray | Tensor) -> bool:
        """Whether the mean KL is beyond 1.5 `klTarget`, where there is no KL penalty."""
        config = self.config
        if not config.kl_target or config.kl_coefficient:
            return False
        return self.named_stats(stats)["kl"] > 1.5 * float(config.kl_target)

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "kl_coefficient": self.coefficients.kl_coefficient}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.coefficients.kl_coefficient = state["kl_coefficient"]
