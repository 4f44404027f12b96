"""QMIX's policy graph (Rashid et al. 2018, arXiv 1803.11485, equation 6).

    y = r + gamma Q_tot'(s', q_1', ..., q_A'),   q_i' = Q_i'(o_i', argmax_a Q_i(o_i', a))     (double)
    L = E[(Q_tot(s, q_1, ..., q_A) - y)^2] / 2,   q_i = Q_i(o_i, a_i)

With `double` and `clippedDouble` Q_tot' in y is the smaller one of the two networks' (Fujimoto et al. 2018, arXiv
1802.09477, equation 10): a maximum over all agents at once overestimates so much that on particle environments Q_tot
grows without end (Pan et al. 2021, arXiv 2103.11883).

The team's reward is the mean of its agents'. Each agent acts by its own values alone; agents of one policy share a
network. The state that weighs them is the environment's, or all observations side by side. An agent that is not there
has the value 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rlcore.errors import UnsupportedError
from rlcore.policy.action_spaces import require_discrete
from rlcore.policy.exploration import epsilon_greedy, linear_epsilon
from rlcore.policy.joint import ACTED, GOES_ON, layout_of, mask_parts, masked, numbered, own_space
from rlcore.policy.mixer import Mixer, picked, team_targets
from rlcore.policy.n_step import NStep, n_step_returns, n_step_rows
from rlcore.policy.off_policy import OffPolicyPolicyGraph
from rlcore.policy.policy_graph import State
from rlcore.policy.q_network import QNetwork
from rlcore.policy.recurrent_q import sequences_for_replay
from rlcore.policy.torch_policy_graph import Loaded
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    DISCOUNTS,
    NEXT_ACTION_MASK,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    REWARDS,
    STARTS,
    STATE_PREFIX,
    VALID,
    WEIGHTS,
    Fragment,
    SampleBatch,
)

TensorBatch = Mapping[str, Tensor]


class TeamNetwork(nn.Module):
    """`agents`: one network a group; `mixer`."""

    def __init__(self, space: gym.spaces.Box, model: Any, config: Any) -> None:
        super().__init__()
        self.layout = layout_of(space)
        self.agents = nn.ModuleList(
            QNetwork(own_space(group), int(group.action_space.n), model, dueling=config.dueling)
            for group in self.layout.groups
        )
        self.mixer = Mixer(
            self.layout.state_size or self.layout.observation_size,
            self.layout.num_agents,
            embedding=config.mixing_embedding,
            hidden=config.mixing_hypernet,
        )
        self.state_size = model.lstm_size or 0

    def values(self, observations: Tensor) -> list[Tensor]:
        """Joint observations [B, D] to each group's action values [B, agents, n]."""
        found = []
        for network, part in zip(self.agents, self._parts(observations), strict=True):
            found.append(network(part.flatten(0, 1)).unflatten(0, part.shape[:2]))
        return found

    def step(self, observations: Tensor, state: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The same of recurrent agents, whose states [N, A H] lie side by side; and their next states."""
        found, following, begin = [], [], 0
        for network, part in zip(self.agents, self._parts(observations), strict=True):
            shape = part.shape[:2]
            end = begin + shape[1] * self.state_size
            own = [s[:, begin:end].reshape(-1, self.state_size) for s in state]
            assert isinstance(network, QNetwork)
            values, own = network.step(part.flatten(0, 1), own)
            found.append(values.unflatten(0, shape))
            following.append([s.reshape(shape[0], -1) for s in own])
            begin = end
        return found, [torch.cat(parts, 1) for parts in zip(*following, strict=True)]

    def unroll(self, observations: Tensor, state: list[Tensor], starts: Tensor) -> list[Tensor]:
        """Values [T, S, agents, n] of sequences of joint observations [T, S, D]."""
        found, begin = [], 0
        for network, part in zip(self.agents, self._parts(observations), strict=True):
            sequences, agents = part.shape[1:3]
            end = begin + agents * self.state_size
            own = [s[:, begin:end].reshape(-1, self.state_size) for s in state]
            assert isinstance(network, QNetwork)
            each = starts.unsqueeze(-1).expand(-1, -1, agents).flatten(1)
            found.append(network.unroll(part.flatten(1, 2), own, each).unflatten(1, (sequences, agents)))
            begin = end
        return found

    def team_value(self, values: Tensor, there: Tensor, observations: Tensor) -> Tensor:
        """Agents' values [..., A], those that are there [..., A], and joint observations [..., D] to Q_tot [...]."""
        layout = self.layout
        size = layout.observation_size
        states = observations[..., size:] if layout.state_size else observations[..., :size]
        out: Tensor = self.mixer(values * there.float(), states)
        return out

    def _parts(self, observations: Tensor) -> list[Tensor]:
        return [numbered(part) for part in self.layout.parts(observations, "observation_size")]


class QMIXPolicyGraph(OffPolicyPolicyGraph):
    """All agents of an environment, which act alone and are valued together; see JointVectorEnv."""

    stat_names = ("loss", "mean_q", "mean_td_error")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._epsilon = float(self.config.epsilon_initial)

    @classmethod
    def require_action_space(cls, space: gym.Space[Any], algorithm: str) -> None:
        assert isinstance(space, gym.spaces.Tuple)
        for each in space.spaces:
            require_discrete(each, algorithm, hint="use MADDPG or PPO")

    def build_online(self) -> nn.Module:
        self.layout = layout_of(self.observation_space)
        self.action_shape, self.action_dtype = (self.layout.num_agents,), np.dtype(np.int64)
        if self.model_spec.lstm_size and self.config.n_step > 1:
            raise UnsupportedError(
                "spec.config.nStep is not supported with spec.model.lstmSize", hint="leave nStep out, or lstmSize"
            )
        return TeamNetwork(self.observation_space, self.model_spec, self.config)

    # acting --------------------

    @property
    def recurrent(self) -> bool:
        return bool(self.model.online.state_size)

    def initial_state(self, slots: int) -> State:
        width = self.model.online.state_size * self.layout.num_agents
        return [np.zeros((slots, width), np.float32) for _ in range(2)] if width else []

    def draw_noise(self, length: int, slots: int) -> np.ndarray:
        """Uniform [length, slots, sum of 1 + n over all agents]: whether to stray, and whereto."""
        width = sum(group.size * (1 + group.mask_columns) for group in self.layout.groups)
        return self.rng.random((length, slots, width), dtype=np.float32)

    def act(
        self,
        observations: np.ndarray,
        state: State,
        *,
        noise: np.ndarray | None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, State, dict[str, np.ndarray]]:
        values, state = self.action_values(observations, state)
        columns, begin = [], 0
        for part, mask in zip(values, mask_parts(self.layout, action_mask), strict=True):
            rows, agents, choices = part.shape
            allowed = None if mask is None else mask.reshape(-1, choices)
            flat = part.reshape(-1, choices)
            best = (flat if allowed is None else np.where(allowed, flat, -np.inf)).argmax(1)
            if noise is not None:
                end = begin + agents * (1 + choices)
                best = epsilon_greedy(best, noise[:, begin:end].reshape(-1, 1 + choices), self._epsilon, allowed)
                begin = end
            columns.append(best.reshape(rows, agents))
        return np.concatenate(columns, axis=1), state, {}

    def action_values(self, observations: np.ndarray, state: State) -> tuple[list[np.ndarray], State]:
        """Each group's values [N, agents, n], and the next recurrent state."""
        with torch.inference_mode():
            tensor = torch.as_tensor(observations, device=self.device)
            if state:
                found, parts = self.model.online.step(tensor, [torch.as_tensor(s, device=self.device) for s in state])
                state = [part.cpu().numpy() for part in parts]
            else:
                found = self.model.online.values(tensor)
            return [part.cpu().numpy() for part in found], state

    # experience --------------------

    def postprocess(self, fragment: Fragment, others: Mapping[str, Fragment] | None = None) -> SampleBatch:
        config, agents = self.config, fragment.agents
        if self.recurrent:
            extra = {ACTED: agents["acted"], GOES_ON: agents["goes_on"]}
            return sequences_for_replay(fragment, reward_scale=config.reward_scale, extra=extra)
        rewards = fragment.rewards * np.float32(config.reward_scale)
        ends = fragment.terminated, fragment.truncated, fragment.valid
        steps = n_step_returns(rewards, *ends, gamma=config.gamma, n=config.n_step)
        # Row t says who goes on after step t, and a return of k steps ends with step t + k - 1.
        last = np.maximum(steps.next_rows - 1, 0)
        goes_on = agents["goes_on"][last, np.arange(fragment.slots)]
        return n_step_rows(fragment, steps, {ACTED: agents["acted"], GOES_ON: goes_on})

    def first_priorities(self, fragment: Fragment, steps: NStep) -> np.ndarray:
        raise NotImplementedError("the manifest's validation refuses workerPriorities for QMIX")

    # learning --------------------

    def minibatch_gradient(self, loaded: Loaded, indices: Any) -> Tensor:
        batch = self.minibatch(loaded, indices)
        self.flat.gradient.zero_()
        value, td = self.unrolled_td_errors(batch) if self.recurrent else self.td_errors(batch)
        weights = batch.get(WEIGHTS)
        squares = 0.5 * td.square()
        loss = squares.mean() if weights is None else (squares * weights).mean()
        loss.backward()
        magnitudes = td.detach().abs()
        self.priorities = None if self.recurrent else magnitudes.cpu().numpy()
        return torch.stack([loss.detach(), value.detach().mean(), magnitudes.mean()])

    @property
    def clipped(self) -> bool:
        """Whether the smaller of both networks' estimates counts."""
        return bool(self.config.double and self.config.clipped_double)

    def td_errors(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        """Q_tot of the actions taken, and what it errs by, each [B]."""
        online, seen, after = self.model.online, batch[OBSERVATIONS], batch[NEXT_OBSERVATIONS]
        with torch.no_grad():
            following = self.model.target.values(after)
            by = online.values(after) if self.config.double else following
            best = self.best_actions(by, batch.get(NEXT_ACTION_MASK))
            bootstrap = self.model.target.team_value(picked(following, best), batch[GOES_ON], after)
            if self.clipped:
                bootstrap = torch.minimum(bootstrap, online.team_value(picked(by, best), batch[GOES_ON], after))
            targets = team_targets(batch[REWARDS], batch[DISCOUNTS], bootstrap)
        value = online.team_value(picked(online.values(seen), batch[ACTIONS]), batch[ACTED], seen)
        return value, value - targets

    def unrolled_td_errors(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        """The same on sequences [L + 1, S], of their valid steps alone."""
        online, seen = self.model.online, batch[OBSERVATIONS]
        state = [batch[f"{STATE_PREFIX}_{i}"] for i in range(2)]
        values = online.unroll(seen, state, batch[STARTS])
        with torch.no_grad():
            following = self.model.target.unroll(seen, state, batch[STARTS])
            by = values if self.config.double else following
            best = self.best_actions(by, batch.get(ACTION_MASK))
            there = batch[GOES_ON][:-1]
            bootstrap = self.model.target.team_value(picked(following, best)[1:], there, seen[1:])
            if self.clipped:
                bootstrap = torch.minimum(bootstrap, online.team_value(picked(by, best)[1:], there, seen[1:]))
            discounts = self.config.gamma * batch[DISCOUNTS][:-1]
            targets = team_targets(batch[REWARDS][:-1], discounts, bootstrap)
        value = online.team_value(picked(values, batch[ACTIONS]), batch[ACTED], seen)[:-1]
        real = batch[VALID][:-1]
        return value[real], (value - targets)[real]

    def best_actions(self, values: list[Tensor], mask: Tensor | None) -> Tensor:
        """Each agent's best allowed action, [..., A]."""
        masks = mask_parts(self.layout, mask)
        return torch.cat([masked(v.detach(), m).argmax(-1) for v, m in zip(values, masks, strict=True)], -1)

    def apply_own_gradient(self) -> float | Tensor:
        norm = super().apply_own_gradient()
        self.follow_online()
        return norm

    def on_global_timesteps(self, timesteps: int) -> None:
        super().on_global_timesteps(timesteps)
        config = self.config
        self._epsilon = linear_epsilon(
            timesteps, initial=config.epsilon_initial, final=config.epsilon_final, over=config.epsilon_timesteps
        )
