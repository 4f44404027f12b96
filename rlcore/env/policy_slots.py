"""The slots that one policy fills in a multi-agent vector environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rlcore.env.actions import ActionLayout, mask_size
from rlcore.env.base import Step
from rlcore.env.masks import MASK_KEY, split_mask_space, without_mask, write_mask
from rlcore.env.observations import ObservationLayout
from rlcore.env.sync import allocate_buffers
from rlcore.errors import UnsupportedError


class PolicySlots:
    """The slots of one policy: N environments times the policy's agents.

    Attributes:
        agents: the policy's agents, in the environment's order; slot = environment * len(agents) + position.
        observation_space: flattened, of one slot.
        action_space: of one slot.
        env_index: int64 [N_p], the environment of each slot.
    """

    def __init__(self, policy_id: str, agents: list[str], env: Any, num_envs: int) -> None:
        self.agents = agents
        source, self.action_space = env.observation_space(agents[0]), env.action_space(agents[0])
        for agent in agents[1:]:
            self._check_same(policy_id, "observation", agents[0], source, agent, env.observation_space(agent))
            self._check_same(policy_id, "action", agents[0], self.action_space, agent, env.action_space(agent))
        rest, self.keys = split_mask_space(source, self.action_space)
        layout = ObservationLayout(rest)
        self.observation_space: gymnasium.spaces.Box = layout.space
        self.num_slots = num_envs * len(agents)
        self.env_index = np.repeat(np.arange(num_envs), len(agents))
        self.has_action_mask = self.keys is not None
        self.buffers = allocate_buffers(layout, self.num_slots, mask_size(self.action_space) or 0)
        self.active = np.zeros(self.num_slots, np.bool_)
        self.actions = ActionLayout(self.action_space)
        self._writer = layout.writer(self.buffers.observations)

    def write(self, slot: int, observation: Any, info: dict[str, Any]) -> None:
        """Write one agent's observation and mask."""
        mask_of_info = info.get(MASK_KEY)
        if self.keys is not None:
            write_mask(self.buffers.mask[slot], observation[MASK_KEY])
            observation = without_mask(observation, self.keys)
        elif self.buffers.mask.shape[1] and (self.has_action_mask or mask_of_info is not None):
            self.has_action_mask = True
            write_mask(self.buffers.mask[slot], mask_of_info)
        self._writer.write(slot, observation)

    def set_row(
        self, slot: int, reward: float = 0.0, *, terminated: bool = False, truncated: bool = False, valid: bool = False
    ) -> None:
        """Write what a step gave one agent, beside the observation."""
        b = self.buffers
        b.rewards[slot], b.terminated[slot], b.truncated[slot], b.valid[slot] = reward, terminated, truncated, valid

    def mask(self) -> np.ndarray | None:
        """Allowed actions, bool [N_p, A]."""
        return self.buffers.mask if self.has_action_mask else None

    def step(self) -> Step:
        """The buffers as a Step."""
        b = self.buffers
        return Step(b.observations, b.rewards, b.terminated, b.truncated, b.valid, self.mask())

    @staticmethod
    def _check_same(policy_id: str, kind: str, first: str, expected: Any, agent: str, given: Any) -> None:
        if expected != given:
            raise UnsupportedError(
                f"policy {policy_id!r} cannot serve both agents {first!r} and {agent!r}: their {kind} spaces are "
                f"{expected} and {given}",
                hint="map them to different policies in spec.multiAgent.mapping",
            )
