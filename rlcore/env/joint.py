"""The agents of an environment as one: what they see side by side, what they do side by side, what each is paid.

Algorithms that learn what agents are worth together (MADDPG, QMIX) have one policy graph for all of them, and see this
environment. Each agent still acts on its own part of the observation alone: the graph says which part is whose by
`JointBox.layout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np

from rlcore.env.actions import mask_size
from rlcore.env.base import AgentRows, Step
from rlcore.env.multi_agent import MultiAgentVectorEnv
from rlcore.errors import UnsupportedError


@dataclass(frozen=True)
class AgentGroup:
    """The agents that share one of the manifest's policies.

    Attributes:
        policy_id: of the manifest.
        agents: their ids, in order.
        observation_size: D, of one agent.
        action_space: of one agent.
        action_columns: of one agent, in the joint action.
    """

    policy_id: str
    agents: tuple[str, ...]
    observation_size: int
    action_space: gym.Space[Any]
    action_columns: int

    @property
    def size(self) -> int:
        """How many agents there are."""
        return len(self.agents)

    @property
    def mask_columns(self) -> int:
        """Of one agent, in the joint mask; 0 for actions that have none."""
        return mask_size(self.action_space) or 0


@dataclass(frozen=True)
class JointLayout:
    """What is where in joint observations, actions and masks: group by group, agent by agent.

    Attributes:
        groups: in the order of the environment's policies.
        state_size: of the environment's own state, which comes last in an observation; 0 where it is not asked for.
    """

    groups: tuple[AgentGroup, ...]
    state_size: int = 0

    @property
    def num_agents(self) -> int:
        """A."""
        return sum(group.size for group in self.groups)

    @cached_property
    def observation_size(self) -> int:
        """Of all agents, without the state."""
        return sum(group.size * group.observation_size for group in self.groups)

    def parts(self, columns: Any, attribute: str) -> list[Any]:
        """Joint columns [..., C] group by group, each [..., agents, width]; `attribute` names the group's width."""
        found, begin = [], 0
        for group in self.groups:
            width = getattr(group, attribute)
            end = begin + group.size * width
            found.append(columns[..., begin:end].reshape(*columns.shape[:-1], group.size, width))
            begin = end
        return found


class JointBox(gym.spaces.Box):
    """Space of joint observations, float32.

    Attributes:
        layout: see JointLayout.
    """

    def __init__(self, layout: JointLayout) -> None:
        super().__init__(-np.inf, np.inf, (layout.observation_size + layout.state_size,), np.float32)
        self.layout = layout


class JointVectorEnv:
    """N environments whose agents act as one.

    Args:
        env: with simultaneous agents.
        with_state: observations end with the environment's `state()`, where it has one.

    Attributes:
        num_envs: N.
        observation_space: a JointBox.
        action_space: a Tuple of the agents' own.

    Raises:
        UnsupportedError: agents take turns, or see images.
    """

    def __init__(self, env: MultiAgentVectorEnv, *, with_state: bool) -> None:
        if env.turn_based:
            raise UnsupportedError(
                "agents that take turns cannot be trained as one, which acts in every step",
                hint="use PPO, or make the environment parallel (pettingzoo.utils.aec_to_parallel)",
            )
        self.env = env
        self.num_envs = env.num_envs
        groups = []
        for policy_id, slots in env.policies.items():
            space = slots.observation_space
            if len(space.shape) != 1:
                raise UnsupportedError(
                    f"the agents of policy {policy_id!r} see an array of shape {space.shape}, and what several agents "
                    "see can be put side by side for vectors only",
                    hint="flatten the observation, or use PPO",
                )
            columns = slots.actions.num_columns
            groups.append(AgentGroup(policy_id, tuple(slots.agents), space.shape[0], slots.action_space, columns))
        self._with_state = with_state and env.state_size > 0
        self.layout = JointLayout(tuple(groups), env.state_size if self._with_state else 0)
        self.observation_space = JointBox(self.layout)
        self.action_space = gym.spaces.Tuple([group.action_space for group in groups for _ in group.agents])

    def reset(self, seed: int | None) -> tuple[np.ndarray, np.ndarray | None]:
        """New episodes everywhere: observations float32 [N, D] and masks bool [N, M], or None."""
        observed = self.env.reset(seed)
        there = [slots.active.reshape(self.num_envs, -1) for slots in self.env.policies.values()]
        return self._observations([o for o, _ in observed.values()], there), self._mask(
            [m for _, m in observed.values()]
        )

    def step(self, actions: np.ndarray) -> Step:
        """One step of all environments.

        Args:
            actions: float32 [N, C], the agents' side by side in the layout of `rlcore.env.actions`; those of agents
                that are not there are ignored.
        """
        by_policy = {}
        parts = self.layout.parts(actions, "action_columns")
        for (policy_id, slots), part in zip(self.env.policies.items(), parts, strict=True):
            by_policy[policy_id] = part.reshape(slots.num_slots, *slots.actions.shape).astype(slots.actions.dtype)
        steps = list(self.env.step(by_policy).values())
        ending = self.env.pending
        acted = self._joined([step.valid for step in steps])
        terminated = self._joined([step.terminated for step in steps])
        truncated = self._joined([step.truncated for step in steps])
        active = self._joined([slots.active for slots in self.env.policies.values()])
        goes_on = active | (truncated & ~terminated)
        rewards = self._joined([step.rewards for step in steps])
        there = self._by_group(goes_on)
        return Step(
            observations=self._observations([step.observations for step in steps], there),
            rewards=rewards.mean(axis=1),
            terminated=ending & ~goes_on.any(axis=1),
            truncated=ending & goes_on.any(axis=1),
            valid=np.asarray(acted.any(axis=1)),
            action_mask=self._mask([step.action_mask for step in steps]),
            agents=AgentRows(rewards, acted, goes_on),
        )

    def _observations(self, parts: list[np.ndarray], there: list[np.ndarray]) -> np.ndarray:
        """Side by side, [N, D]; zeros of agents that are not there."""
        columns = [
            (part.reshape(self.num_envs, group.size, -1) * here[..., None]).reshape(self.num_envs, -1)
            for part, here, group in zip(parts, there, self.layout.groups, strict=True)
        ]
        if self._with_state:
            columns.append(self.env.states())
        return np.concatenate(columns, axis=1, dtype=np.float32)

    def _mask(self, parts: list[np.ndarray | None]) -> np.ndarray | None:
        if all(part is None for part in parts):
            return None
        columns = []
        for part, group in zip(parts, self.layout.groups, strict=True):
            shape = (self.num_envs, group.size * group.mask_columns)
            columns.append(np.ones(shape, np.bool_) if part is None else part.reshape(shape))
        return np.concatenate(columns, axis=1)

    def _joined(self, parts: list[np.ndarray]) -> np.ndarray:
        """Slots [N * agents] of each policy to [N, A]."""
        return np.concatenate([part.reshape(self.num_envs, -1) for part in parts], axis=1)

    def _by_group(self, columns: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([group.size for group in self.layout.groups])
        return np.split(columns, ends[:-1], axis=1)
