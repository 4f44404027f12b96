"""Policy graphs on V-trace: IMPALA (Espeholt et al. 2018, arXiv 1802.01561) and APPO.

Evaluators send what they saw; values, importance weights and targets are the learner's, with its newest parameters.

    IMPALA: L = -E[log pi(a|x) rho (r + gamma v' - V)] + c_v E[(V - v)^2] / 2 - c_e E[H]
    APPO:   the first term is PPO's, -E[min(w A, clip(w, 1 - e, 1 + e) A)], with w = pi / mu and A = r + gamma v' - V
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcore.policy.a2c import weighted_mean
from rlcore.policy.actor_critic import ActorCriticPolicyGraph
from rlcore.policy.schedules import Schedule
from rlcore.policy.sequences import bootstrapped_sequences
from rlcore.policy.torch_policy_graph import Loaded
from rlcore.policy.vtrace import VTrace, vtrace
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    BEHAVIOUR_LOGP,
    DIST_INPUTS,
    OBSERVATIONS,
    VALID,
    Fragment,
    SampleBatch,
)

REWARDS = "rewards"
TERMINATED = "terminated"
TRUNCATED = "truncated"
# A ratio of e^20 is as good as infinite, and its product with 0 is still 0.
LARGEST_LOG_RATIO = 20.0


class IMPALAPolicyGraph(ActorCriticPolicyGraph):
    """V-trace actor-critic on sequences [L + 1, S] whose last row bootstraps."""

    stat_names = ("policy_loss", "value_loss", "entropy", "kl", "mean_rho")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = self.config
        self.entropy_schedule = Schedule(config.entropy_coefficient, config.entropy_coefficient_schedule)
        self.entropy_coefficient = self.entropy_schedule(0)

    def postprocess(self, fragment: Fragment, others: Mapping[str, Fragment] | None = None) -> SampleBatch:
        config = self.config
        columns = {
            OBSERVATIONS: fragment.observations,
            ACTIONS: fragment.actions,
            REWARDS: fragment.rewards * np.float32(config.reward_scale),
            TERMINATED: fragment.terminated,
            TRUNCATED: fragment.truncated,
            BEHAVIOUR_LOGP: self.logp(fragment.extras[DIST_INPUTS], fragment.actions),
        }
        if fragment.action_mask is not None:
            columns[ACTION_MASK] = fragment.action_mask
        return bootstrapped_sequences(columns, fragment, self.sequence_length(fragment))

    def sequence_length(self, fragment: Fragment) -> int:
        """Steps L of sequences: the same for all samples, whatever the fragments' own, or they could not be joined."""
        config = self.config
        if not self.recurrent:
            return int(config.fragment_length or config.max_sequence_length)
        if config.batch_mode == "truncate" and config.fragment_length:
            return int(min(config.fragment_length, fragment.state_every))
        return fragment.state_every

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Distribution inputs [T, S, A] and values [T, S] of a minibatch of sequences."""
        if self.recurrent:
            return super().forward(batch)
        length, sequences = batch[OBSERVATIONS].shape[:2]
        flat = {name: batch[name].flatten(0, 1) for name in (OBSERVATIONS, ACTION_MASK) if name in batch}
        inputs, values = super().forward(flat)
        return inputs.view(length, sequences, -1), values.view(length, sequences)

    def minibatch_gradient(self, loaded: Loaded, indices: Any) -> Tensor:
        batch = self.minibatch(loaded, indices)
        config, weights = self.config, batch[VALID].float()
        self.flat.gradient.zero_()
        inputs, values = self.forward(batch)
        logp = self.distribution.logp(inputs, batch[ACTIONS])
        log_ratios = (logp - batch[BEHAVIOUR_LOGP]).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO) * weights
        trace = vtrace(
            log_ratios.detach(),
            batch[REWARDS],
            values.detach(),
            batch[TERMINATED],
            batch[TRUNCATED],
            batch[VALID],
            gamma=config.gamma,
            trace_lambda=config.vtrace_lambda,
            rho_clip=config.rho_clip,
            trace_clip=config.trace_clip,
        )
        policy_loss = self.policy_loss(logp, log_ratios, trace, weights)
        value_loss = 0.5 * weighted_mean((values - trace.targets).square(), weights)
        entropy = weighted_mean(self.distribution.entropy(inputs), weights)
        loss = policy_loss + config.value_loss_coefficient * value_loss - self.entropy_coefficient * entropy
        loss.backward()
        with torch.no_grad():
            kl = weighted_mean(log_ratios.exp() - 1 - log_ratios, weights)
            mean_rho = weighted_mean(trace.rhos, weights)
        return torch.stack([policy_loss, value_loss, entropy, kl, mean_rho]).detach()

    def policy_loss(self, logp: Tensor, log_ratios: Tensor, trace: VTrace, weights: Tensor) -> Tensor:
        """The loss of the policy alone; all arguments [T, S], `log_ratios` and `logp` with gradients."""
        return -weighted_mean(logp * trace.rhos * trace.advantages, weights)

    def on_global_timesteps(self, timesteps: int) -> None:
        super().on_global_timesteps(timesteps)
        self.entropy_coefficient = self.entropy_schedule(timesteps)


class APPOPolicyGraph(IMPALAPolicyGraph):
    """PPO's clipped surrogate around the policy that sampled, on V-trace's advantages."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.clip_schedule = Schedule(self.config.clip_range, self.config.clip_range_schedule)
        self.clip_range = self.clip_schedule(0)

    def policy_loss(self, logp: Tensor, log_ratios: Tensor, trace: VTrace, weights: Tensor) -> Tensor:
        advantages = trace.advantages
        if self.config.normalize_advantages:
            centred = (advantages - weighted_mean(advantages, weights)) * weights
            advantages = centred / weighted_mean(centred.square(), weights).sqrt().clamp(min=1e-4)
        ratios = log_ratios.exp()
        clipped = ratios.clamp(1 - self.clip_range, 1 + self.clip_range)
        return -weighted_mean(torch.minimum(ratios * advantages, clipped * advantages), weights)

    def on_global_timesteps(self, timesteps: int) -> None:
        super().on_global_timesteps(timesteps)
        self.clip_range = self.clip_schedule(timesteps)
