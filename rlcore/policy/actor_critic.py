"""Policy graphs that have an actor and a critic: acting, values, log-probabilities.

On the CPU a plain MLP acts through `FastMLP`, everything else through torch; either way a sample is computed from the
distribution's inputs by the same numpy code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcore.policy.advantages import generalized_advantages
from rlcore.policy.distributions import MASKED_LOGIT, distribution_for
from rlcore.policy.fast_mlp import SUPPORTED_ACTIVATIONS, FastMLP
from rlcore.policy.models import ActorCritic, SeparateMLP, SharedTrunk, build_model
from rlcore.policy.policy_graph import State
from rlcore.policy.sequences import flatten_rows, flatten_sequences
from rlcore.policy.torch_policy_graph import TorchPolicyGraph
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    ADVANTAGES,
    OBSERVATIONS,
    STARTS,
    STATE_PREFIX,
    VALUE_TARGETS,
    VALUES,
    Fragment,
    SampleBatch,
)

# Timesteps that one inference call takes at most: bounds the memory of the activations of convolutional networks.
INFERENCE_ROWS = 4096


class ActorCriticPolicyGraph(TorchPolicyGraph):
    """A policy on an `ActorCritic` network; arguments as TorchPolicyGraph's."""

    model: ActorCritic

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fast = self._fast_mlp()

    def build_network(self) -> ActorCritic:
        self.distribution = distribution_for(self.action_space)
        self.action_shape, self.action_dtype = self.distribution.action_shape, self.distribution.action_dtype
        return build_model(self.observation_space, self.distribution, self.model_spec, seed=self.seed)

    # acting --------------------

    @property
    def recurrent(self) -> bool:
        """Whether `act` carries a state."""
        return self.model.state_size > 0

    def initial_state(self, slots: int) -> State:
        width = self.model.state_size
        return [np.zeros((slots, width), np.float32) for _ in range(2)] if width else []

    def draw_noise(self, length: int, slots: int) -> np.ndarray:
        return self.distribution.draw_noise(self.rng, length, slots)

    def act(
        self,
        observations: np.ndarray,
        state: State,
        *,
        noise: np.ndarray | None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, State, dict[str, np.ndarray]]:
        extras: dict[str, np.ndarray] = {}
        if self.fast is not None:
            inputs = self.fast.policy_inputs(observations.reshape(len(observations), -1))
        else:
            inputs, extras["values"], state = self._torch_act(observations, state)
        if action_mask is not None:
            inputs = np.where(action_mask, inputs, np.float32(MASKED_LOGIT))
        extras["dist_inputs"] = inputs
        actions = self.distribution.mode(inputs) if noise is None else self.distribution.sample(inputs, noise)
        return actions, state, extras

    def _torch_act(self, observations: np.ndarray, state: State) -> tuple[np.ndarray, np.ndarray, State]:
        with torch.inference_mode():
            tensor = torch.as_tensor(observations, device=self.device)
            if isinstance(self.model, SharedTrunk) and state:
                tensors = [torch.as_tensor(part, device=self.device) for part in state]
                inputs, values, tensors = self.model.step(tensor, tensors)
                state = [part.cpu().numpy() for part in tensors]
            else:
                inputs, values = self.model(tensor)
            return inputs.cpu().numpy(), values.cpu().numpy(), state

    def values(self, observations: np.ndarray, state: State) -> np.ndarray:
        """State values float32 [B] of observations [B, *obs] (recurrent: from `state`, without advancing it)."""
        if self.fast is not None:
            return self.fast.values(observations.reshape(len(observations), -1))
        if state:
            return self._torch_act(observations, state)[1]
        with torch.inference_mode():
            parts = torch.as_tensor(observations).split(INFERENCE_ROWS)
            return torch.cat([self.model.values(part.to(self.device)) for part in parts]).cpu().numpy()

    def logp(self, dist_inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Log-probabilities float32 [...] of actions under distribution inputs [..., A]."""
        with torch.inference_mode():
            return self.distribution.logp(torch.from_numpy(dist_inputs), torch.from_numpy(actions)).numpy()

    # learning --------------------

    def fragment_values(self, fragment: Fragment) -> np.ndarray:
        """Values float32 [T + 1, N]: from `act` where it gave them, else of the whole fragment at once."""
        length, slots = fragment.length, fragment.slots
        if VALUES in fragment.extras:
            last = self.values(fragment.observations[-1], fragment.last_state)
            return np.concatenate([fragment.extras[VALUES], last[None]])
        rows = fragment.observations.reshape((length + 1) * slots, *fragment.observations.shape[2:])
        return self.values(rows, []).reshape(length + 1, slots)

    def advantage_batch(
        self, fragment: Fragment, values: np.ndarray, gae_lambda: float, extra: Mapping[str, np.ndarray]
    ) -> SampleBatch:
        """Rows (recurrent: sequences) with advantages by GAE, and columns of one's own.

        Args:
            fragment: [T, N].
            values: float32 [T + 1, N].
            gae_lambda: see `generalized_advantages`.
            extra: more columns, each [T, N, ...].
        """
        advantages = generalized_advantages(
            fragment.rewards * np.float32(self.config.reward_scale),
            values,
            fragment.terminated,
            fragment.truncated,
            fragment.valid,
            gamma=self.config.gamma,
            gae_lambda=gae_lambda,
        )
        columns = {
            OBSERVATIONS: fragment.observations[:-1],
            ACTIONS: fragment.actions,
            ADVANTAGES: advantages,
            VALUES: values[:-1],
            VALUE_TARGETS: advantages + values[:-1],
            **extra,
        }
        if fragment.action_mask is not None:
            columns[ACTION_MASK] = fragment.action_mask[:-1]
        return flatten_sequences(columns, fragment) if self.recurrent else flatten_rows(columns, fragment)

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Distribution inputs and values of a minibatch: [B, A] and [B], recurrent [T, S, A] and [T, S]."""
        if self.recurrent:
            assert isinstance(self.model, SharedTrunk)
            state = [batch[f"{STATE_PREFIX}_{i}"] for i in range(2)]
            inputs, values = self.model.unroll(batch[OBSERVATIONS], state, batch[STARTS])
        else:
            inputs, values = self.model(batch[OBSERVATIONS])
        if ACTION_MASK in batch:
            inputs = torch.where(batch[ACTION_MASK], inputs, MASKED_LOGIT)
        return inputs, values

    def replicate(self, device: str) -> ActorCriticPolicyGraph:
        twin = super().replicate(device)
        assert isinstance(twin, ActorCriticPolicyGraph)
        twin.fast = twin._fast_mlp()
        return twin

    def _fast_mlp(self) -> FastMLP | None:
        fits = isinstance(self.model, SeparateMLP) and self.model_spec.activation in SUPPORTED_ACTIVATIONS
        if fits and self.device.type == "cpu":
            return FastMLP(self.model, self.flat, self.model_spec.activation)  # type: ignore[arg-type]
        return None
