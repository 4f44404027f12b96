"""MADDPG's policy graph (Lowe et al. 2017, arXiv 1706.02275, algorithm 1).

    y_i = r_i + gamma Q_i'(x', a_1', ..., a_A'),   a_j' = pi_j'(o_j')
    critic i: E[(Q_i(x, a_1, ..., a_A) - y_i)^2] / 2,   actor i: -E[Q_i(x, a_1, ..., pi_i(o_i), ..., a_A)]

Each agent has an actor, which sees what the agent sees, and a critic, which sees what all see and do; agents of one
policy share both. Discrete actions are drawn by the Gumbel-softmax estimator (Jang et al. 2017), straight through;
continuous ones are squashed by tanh. An agent that is not there has the action 0, learns nothing, and is worth nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rlcore.env.joint import AgentGroup, JointLayout
from rlcore.policy.action_bounds import ActionBounds
from rlcore.policy.action_spaces import require_discrete_or_bounded_box
from rlcore.policy.joint import (
    ACTED,
    AGENT_REWARDS,
    GOES_ON,
    Perceptron,
    layout_of,
    mask_parts,
    masked,
    numbered,
    own_space,
    single_step_rows,
)
from rlcore.policy.policy_graph import State
from rlcore.policy.q_actor_critic import QActorCriticPolicyGraph, TensorBatch
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    NEXT_ACTION_MASK,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    Fragment,
    SampleBatch,
)


def action_width(group: AgentGroup) -> int:
    """Numbers that stand for one agent's action: one a choice, or one a dimension."""
    space = group.action_space
    return int(space.n) if isinstance(space, gym.spaces.Discrete) else group.action_columns


class CentralCritics(nn.Module):
    """The critics of a group's agents: what all see [B, O] and do [B, agents, E] to the worth for each [B, agents]."""

    def __init__(self, group: AgentGroup, layout: JointLayout, model: Any) -> None:
        super().__init__()
        actions = sum(other.size * action_width(other) for other in layout.groups)
        numbers = group.size if group.size > 1 else 0
        self.net = Perceptron(layout.observation_size + actions + numbers, 1, model, gain=1.0)
        self.agents = group.size

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        seen = observations.unsqueeze(1).expand(-1, self.agents, -1)
        out: Tensor = self.net(numbered(torch.cat([seen, actions], -1))).squeeze(-1)
        return out


class JointActorCritic(nn.Module):
    """`actor` and `critics` by group."""

    def __init__(self, layout: JointLayout, model: Any) -> None:
        super().__init__()
        groups = layout.groups
        self.actor = nn.ModuleList(
            Perceptron(own_space(group).shape[0], action_width(group), model, gain=0.01) for group in groups
        )
        self.critics = nn.ModuleList(CentralCritics(group, layout, model) for group in groups)


class MADDPGPolicyGraph(QActorCriticPolicyGraph):
    """All agents of an environment, which act alone and learn together; see JointVectorEnv."""

    @classmethod
    def require_action_space(cls, space: gym.Space[Any], algorithm: str) -> None:
        assert isinstance(space, gym.spaces.Tuple)
        for each in space.spaces:
            require_discrete_or_bounded_box(each, algorithm)

    def build_online(self) -> nn.Module:
        self.layout = layout_of(self.observation_space)
        groups = self.layout.groups
        self.action_shape = (sum(group.size * group.action_columns for group in groups),)
        self.action_dtype = np.dtype(np.float32)
        self.bounds = [
            ActionBounds(group.action_space) if isinstance(group.action_space, gym.spaces.Box) else None
            for group in groups
        ]
        return JointActorCritic(self.layout, self.model_spec)

    def build_fast(self) -> None:
        self.fast = None

    # acting --------------------

    def draw_noise(self, length: int, slots: int) -> np.ndarray:
        """[length, slots, 2 A W]: Gumbel or Gaussian noise, then the same for the random beginning's actions."""
        parts = []
        for random_beginning in (False, True):
            for group, bounds in zip(self.layout.groups, self.bounds, strict=True):
                shape = (length, slots, group.size * action_width(group))
                if bounds is None:
                    parts.append(self._gumbel(shape))
                elif random_beginning:
                    parts.append(2 * self.rng.random(shape, dtype=np.float32) - 1)
                else:
                    parts.append(self.rng.standard_normal(shape, dtype=np.float32))
        return np.concatenate(parts, axis=-1)

    def act(
        self,
        observations: np.ndarray,
        state: State,
        *,
        noise: np.ndarray | None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, State, dict[str, np.ndarray]]:
        rows, begin = len(observations), 0
        at_random = noise is not None and self.timesteps < self.config.random_timesteps
        outputs = self.actor_parts(observations)
        masks = mask_parts(self.layout, action_mask)
        drawn = None if noise is None else noise[:, noise.shape[1] // 2 if at_random else 0 :]
        columns = []
        for group, bounds, out, mask in zip(self.layout.groups, self.bounds, outputs, masks, strict=True):
            end = begin + group.size * action_width(group)
            own = np.zeros_like(out) if drawn is None else drawn[:, begin:end].reshape(out.shape)
            begin = end
            if bounds is not None:
                scale = np.float32(self.config.exploration_noise)
                inside = own if at_random else np.clip(np.tanh(out) + scale * own, -1.0, 1.0)
                columns.append(bounds.outward(inside).reshape(rows, -1))
                continue
            keys = own if at_random else out + own
            if mask is not None:
                keys = np.where(mask, keys, -np.inf)
            columns.append(keys.argmax(-1))
        return np.concatenate(columns, axis=1, dtype=np.float32), state, {}

    def actor_parts(self, observations: np.ndarray) -> list[np.ndarray]:
        """The actors' last layers group by group, [N, agents, W]."""
        with torch.inference_mode():
            found = self._outputs(self.model.online, torch.as_tensor(observations, device=self.device))
            return [out.cpu().numpy() for out in found]

    # experience --------------------

    def postprocess(self, fragment: Fragment, others: Mapping[str, Fragment] | None = None) -> SampleBatch:
        return single_step_rows(fragment, reward_scale=self.config.reward_scale)

    # learning --------------------

    def targets(self, batch: TensorBatch) -> Tensor:
        """y [A, B]."""
        following, goes_on = batch[NEXT_OBSERVATIONS], batch[GOES_ON].float()
        target = self.model.target
        outputs = self._outputs(target, following)
        masks = mask_parts(self.layout, batch.get(NEXT_ACTION_MASK))
        chosen = [
            self._chosen(number, out, mask) for number, (out, mask) in enumerate(zip(outputs, masks, strict=True))
        ]
        joint = self._side_by_side(chosen, goes_on)
        values = [
            critics(following, joint.unsqueeze(1).expand(-1, group.size, -1))
            for group, critics in zip(self.layout.groups, target.critics, strict=True)
        ]
        bootstrap = torch.cat(values, 1) * goes_on
        return (batch[AGENT_REWARDS] + self.config.gamma * bootstrap).T

    def critic_values(self, batch: TensorBatch) -> Tensor:
        """[A, B]."""
        seen, joint = batch[OBSERVATIONS], self.joint_actions(batch)
        values = [
            critics(seen, joint.unsqueeze(1).expand(-1, group.size, -1))
            for group, critics in zip(self.layout.groups, self.model.online.critics, strict=True)
        ]
        return torch.cat(values, 1).T

    def td_errors(self, values: Tensor, targets: Tensor, batch: TensorBatch) -> Tensor:
        """Those of agents that were there."""
        return (values - targets) * batch[ACTED].T

    def actor_loss(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        online, acted = self.model.online, batch[ACTED].float()
        seen, joint = batch[OBSERVATIONS], self.joint_actions(batch)
        outputs = self._outputs(online, seen)
        masks = mask_parts(self.layout, batch.get(ACTION_MASK))
        there = acted.split([group.size for group in self.layout.groups], 1)
        loss = entropy = torch.zeros((), device=self.device)
        begin = 0
        for number, group in enumerate(self.layout.groups):
            width, out = action_width(group), outputs[number]
            own = self._chosen(number, out, masks[number], differentiable=True)
            # Each agent looks at its own action as it would choose now, and at the others' as they were.
            views = []
            for agent in range(group.size):
                end = begin + width
                views.append(torch.cat([joint[:, :begin], own[:, agent], joint[:, end:]], 1))
                begin = end
            values = online.critics[number](seen, torch.stack(views, 1))
            loss = loss - (values * there[number]).sum() / there[number].sum().clamp(min=1.0)
            loss = loss + self.config.action_penalty * out.square().mean()
            if self.bounds[number] is None:
                p = masked(out.detach(), masks[number]).softmax(-1)
                entropy = entropy - torch.special.xlogy(p, p).sum(-1).mean() / len(self.layout.groups)
        return loss, entropy

    def joint_actions(self, batch: TensorBatch) -> Tensor:
        """The actions taken as critics take them, [B, E]: one-hot, or -1..1; 0 of agents that were not there."""
        parts = []
        columns = self.layout.parts(batch[ACTIONS], "action_columns")
        for group, bounds, part in zip(self.layout.groups, self.bounds, columns, strict=True):
            if bounds is None:
                parts.append(functional.one_hot(part.squeeze(-1).long(), action_width(group)).float())
            else:
                inward = bounds.inward(part.cpu().numpy())
                parts.append(torch.from_numpy(inward).to(self.device))
        return self._side_by_side(parts, batch[ACTED].float())

    def _outputs(self, network: Any, observations: Tensor) -> list[Tensor]:
        parts = self.layout.parts(observations, "observation_size")
        return [actor(numbered(part)) for actor, part in zip(network.actor, parts, strict=True)]

    def _chosen(self, number: int, out: Tensor, mask: Tensor | None, *, differentiable: bool = False) -> Tensor:
        """Actions [B, agents, W] of a group's actor outputs; discrete ones are drawn."""
        if self.bounds[number] is not None:
            return torch.tanh(out)
        noise = torch.from_numpy(self._gumbel(tuple(out.shape))).to(self.device)
        keys = masked(out, mask) + noise
        hard = functional.one_hot(keys.argmax(-1), out.shape[-1]).float()
        if not differentiable:
            return hard
        soft = (keys / self.config.gumbel_temperature).softmax(-1)
        return hard + soft - soft.detach()

    def _side_by_side(self, parts: list[Tensor], there: Tensor) -> Tensor:
        """Actions [B, agents, W] of each group to [B, E], 0 of agents that are not there."""
        masks = there.split([group.size for group in self.layout.groups], 1)
        return torch.cat([(p * m.unsqueeze(-1)).flatten(1) for p, m in zip(parts, masks, strict=True)], 1)

    def _gumbel(self, shape: tuple[int, ...]) -> np.ndarray:
        smallest = np.float32(1e-20)
        exponential = -np.log(np.maximum(self.rng.random(shape, dtype=np.float32), smallest))
        return -np.log(np.maximum(exponential, smallest))
