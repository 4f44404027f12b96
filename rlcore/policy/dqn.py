"""DQN's policy graph (Mnih et al. 2015, Nature 518), Rainbow's extensions (Hessel et al. 2018) being switches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rlcore.errors import UnsupportedError
from rlcore.policy.action_spaces import require_discrete
from rlcore.policy.distributions import MASKED_LOGIT
from rlcore.policy.dqn_loss import STAT_NAMES, distribution_loss, huber_delta, huber_loss, next_values
from rlcore.policy.exploration import epsilon_greedy, linear_epsilon, slot_epsilons
from rlcore.policy.models import relu_unless_chosen
from rlcore.policy.n_step import NStep, at_next_rows
from rlcore.policy.numpy_q import NumpyQ
from rlcore.policy.off_policy import OffPolicyPolicyGraph
from rlcore.policy.policy_graph import State
from rlcore.policy.q_network import QNetwork, scale_noise
from rlcore.policy.recurrent_q import sequences_for_replay, unrolled_td_errors
from rlcore.policy.torch_policy_graph import Loaded
from rlcore.policy.with_target import WithTarget
from rlcore.sample_batch import (
    ACTIONS,
    DISCOUNTS,
    NEXT_ACTION_MASK,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    REWARDS,
    VALID,
    WEIGHTS,
    Fragment,
    SampleBatch,
)

Q_VALUES = "q_values"


class DQNPolicyGraph(OffPolicyPolicyGraph):
    """Acts by the largest action value, and strays by epsilon or by noisy layers."""

    stat_names = STAT_NAMES
    model: WithTarget[QNetwork]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = self.config
        self.support = torch.linspace(config.value_min, config.value_max, config.atoms, device=self.device)
        self._support = self.support.cpu().numpy()
        self._epsilons: np.ndarray | float = config.epsilon_initial

    @classmethod
    def require_action_space(cls, space: gym.Space[Any], algorithm: str) -> None:
        require_discrete(space, algorithm)

    def build_online(self) -> nn.Module:
        config, space = self.config, self.action_space
        assert isinstance(space, gym.spaces.Discrete)
        self.action_shape, self.action_dtype = (), np.dtype(np.int64)
        if self.model_spec.lstm_size:
            refuse_for_recurrent(config)
        return QNetwork(
            self.observation_space,
            int(space.n),
            self.model_spec,
            dueling=config.dueling,
            atoms=config.atoms if config.distributional else 1,
            sigma=config.noisy_sigma if config.noisy else None,
        )

    def build_fast(self) -> None:
        activation = relu_unless_chosen(self.model_spec)
        self.fast: NumpyQ | None = None
        if self.device.type == "cpu" and NumpyQ.fits(self.model.online, activation):
            self.fast = NumpyQ(self.model.online, self.flat, "online", activation)
            self.fast_target = NumpyQ(self.model.target, self.flat, "target", activation)

    # acting --------------------

    @property
    def recurrent(self) -> bool:
        return self.model.online.state_size > 0

    def initial_state(self, slots: int) -> State:
        width = self.model.online.state_size
        return [np.zeros((slots, width), np.float32) for _ in range(2)] if width else []

    def draw_noise(self, length: int, slots: int) -> np.ndarray:
        """Uniform [length, slots, 1 + A]; for noisy layers [length, 1, K], one draw a step for all slots."""
        if self.config.noisy:
            size = (length, 1, self.model.online.noise_size)
            return scale_noise(self.rng.standard_normal(size, dtype=np.float32))
        return self.rng.random((length, slots, 1 + self.model.online.actions), dtype=np.float32)

    def act(
        self,
        observations: np.ndarray,
        state: State,
        *,
        noise: np.ndarray | None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, State, dict[str, np.ndarray]]:
        values, state = self.action_values(observations, state, noise if self.config.noisy else None)
        allowed = values if action_mask is None else np.where(action_mask, values, np.float32(MASKED_LOGIT))
        actions = allowed.argmax(axis=1)
        if noise is not None and not self.config.noisy:
            actions = epsilon_greedy(actions, noise, self.epsilons(len(actions)), action_mask)
        return actions, state, {Q_VALUES: values} if self.config.worker_priorities else {}

    def epsilons(self, slots: int) -> np.ndarray | float:
        """How often each slot strays now: [slots], or one for all."""
        config = self.config
        if not config.per_slot_epsilon:
            return self._epsilons
        if not isinstance(self._epsilons, np.ndarray) or len(self._epsilons) != slots:
            self._epsilons = slot_epsilons(self.worker_index, slots)
        return self._epsilons

    def action_values(
        self, observations: np.ndarray, state: State, noise: np.ndarray | None = None
    ) -> tuple[np.ndarray, State]:
        """Q(s, .) float32 [N, A], and the next recurrent state."""
        if self.fast is not None:
            return self._expected(self.fast.values(observations.reshape(len(observations), -1))), state
        with torch.inference_mode():
            tensor = torch.as_tensor(observations, device=self.device)
            if state:
                parts = [torch.as_tensor(part, device=self.device) for part in state]
                values, parts = self.model.online.step(tensor, parts)
                state = [part.cpu().numpy() for part in parts]
            else:
                drawn = None if noise is None else torch.as_tensor(noise, device=self.device)
                values = self.model.online(tensor, drawn)
            return self._expected(values.cpu().numpy()), state

    def _expected(self, outputs: np.ndarray) -> np.ndarray:
        """Action values [N, A] of the network's outputs."""
        if not self.config.distributional:
            return outputs
        p = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
        mean: np.ndarray = (p @ self._support) / p.sum(axis=-1)
        return mean

    # experience --------------------

    def postprocess(self, fragment: Fragment, others: Mapping[str, Fragment] | None = None) -> SampleBatch:
        if self.recurrent:
            return sequences_for_replay(fragment, reward_scale=self.config.reward_scale)
        return super().postprocess(fragment, others)

    def first_priorities(self, fragment: Fragment, steps: NStep) -> np.ndarray:
        last, _ = self.action_values(fragment.observations[-1], [])
        values = np.concatenate([fragment.extras[Q_VALUES], last[None]])
        allowed = values
        if fragment.action_mask is not None:
            allowed = np.where(fragment.action_mask, values, np.float32(MASKED_LOGIT))
        bootstrap = at_next_rows(allowed.max(axis=2), steps)
        taken = np.take_along_axis(values[:-1], fragment.actions[..., None], axis=2)[..., 0]
        return np.abs(taken - steps.returns - steps.discounts * bootstrap)

    # learning --------------------

    @property
    def gradients_in_numpy(self) -> bool:
        return self.fast is not None and not self.config.distributional

    def minibatch_gradient(self, loaded: Loaded, indices: Any) -> np.ndarray | Tensor:
        batch = self.minibatch(loaded, indices)
        if self.gradients_in_numpy:
            return self._closed_form_gradient(batch)
        self.flat.gradient.zero_()
        if self.recurrent:
            loss, mean_q, errors = self._recurrent_loss(batch)
        else:
            loss, mean_q, errors = self._loss(batch)
        loss.backward()
        return torch.stack([loss.detach(), mean_q, errors.mean()])

    def _closed_form_gradient(self, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        assert self.fast is not None
        rows = len(batch[ACTIONS])
        following = batch[NEXT_OBSERVATIONS].reshape(rows, -1)
        online_next = self.fast.values(following) if self.config.double else None
        bootstrap = next_values(
            self.fast_target.values(following), online_next, batch.get(NEXT_ACTION_MASK), MASKED_LOGIT
        )
        targets = batch[REWARDS] + batch[DISCOUNTS] * bootstrap
        values, outputs = self.fast.forward(batch[OBSERVATIONS].reshape(rows, -1))
        delta, errors, stats = huber_delta(values, batch[ACTIONS], targets, batch.get(WEIGHTS))
        self.fast.backward(outputs, delta)
        self.priorities = np.abs(errors)
        return stats

    def _loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, the mean value of the actions taken, and each row's error [B]."""
        online, config = self.model.online, self.config
        rows = torch.arange(len(batch[ACTIONS]), device=self.device)
        with torch.no_grad():
            following = self.model.target(batch[NEXT_OBSERVATIONS], self._noise())
            by = online(batch[NEXT_OBSERVATIONS], self._noise()) if config.double else following
            by = self._mean(by)
            if NEXT_ACTION_MASK in batch:
                by = torch.where(batch[NEXT_ACTION_MASK], by, MASKED_LOGIT)
            bootstrap = following[rows, by.argmax(1)]
        taken = online(batch[OBSERVATIONS], self._noise())[rows, batch[ACTIONS]]
        weights = batch.get(WEIGHTS)
        if config.distributional:
            loss, errors = distribution_loss(
                taken, bootstrap.softmax(-1), batch[REWARDS], batch[DISCOUNTS], self.support, weights
            )
        else:
            td = taken - (batch[REWARDS] + batch[DISCOUNTS] * bootstrap)
            loss, errors = huber_loss(td, weights), td.detach().abs()
        self.priorities = errors.cpu().numpy()
        return loss, self._mean(taken.detach()).mean(), errors

    def _recurrent_loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        td, taken = unrolled_td_errors(self.model, batch, gamma=self.config.gamma, double=self.config.double)
        real = batch[VALID]
        self.priorities = None
        return huber_loss(td[real], None), taken.detach()[real].mean(), td.detach()[real].abs()

    def _mean(self, outputs: Tensor) -> Tensor:
        """Expected values [...] of outputs [..., Z]; plain values are their own."""
        return outputs.softmax(-1) @ self.support if self.config.distributional else outputs

    def _noise(self) -> Tensor | None:
        if not self.config.noisy:
            return None
        drawn = self.rng.standard_normal(self.model.online.noise_size, dtype=np.float32)
        return torch.as_tensor(scale_noise(drawn), device=self.device)

    def apply_own_gradient(self) -> float | Tensor:
        norm = super().apply_own_gradient()
        self.follow_online()
        return norm

    def on_global_timesteps(self, timesteps: int) -> None:
        super().on_global_timesteps(timesteps)
        config = self.config
        if not config.per_slot_epsilon:
            self._epsilons = linear_epsilon(
                timesteps, initial=config.epsilon_initial, final=config.epsilon_final, over=config.epsilon_timesteps
            )

    def replicate(self, device: str) -> DQNPolicyGraph:
        twin = super().replicate(device)
        assert isinstance(twin, DQNPolicyGraph)
        twin.support = self.support.to(device)
        return twin


def refuse_for_recurrent(config: Any) -> None:
    """What has no recurrent form here.

    Raises:
        UnsupportedError: distributional, noisy or n-step learning, or prioritised replay, with an LSTM.
    """
    wrong = [
        name
        for name, on in (
            ("distributional", config.distributional),
            ("noisy", config.noisy),
            ("nStep", config.n_step > 1),
            ("workerPriorities", config.worker_priorities),
        )
        if on
    ]
    if wrong:
        raise UnsupportedError(
            f"spec.config.{wrong[0]} is not supported with spec.model.lstmSize",
            hint="recurrent DQN supports double and dueling; leave the others out",
        )
