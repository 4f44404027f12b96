"""Train on clipped rewards, report whole ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcore.env.base import Step, VectorEnv


class RewardClipping(VectorEnv):
    """Clips the rewards of another VectorEnv to -1 .. 1 and keeps them whole in `raw_rewards` (Mnih et al. 2015)."""

    def __init__(self, env: VectorEnv) -> None:
        super().__init__()
        self.env = env
        self.num_envs = env.num_envs
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.failures = env.failures  # one list: what the inner environment records is drained here
        self.has_action_mask = env.has_action_mask
        self.raw_rewards = np.zeros(env.num_envs, np.float32)

    def reset(self, seed: int | None) -> tuple[np.ndarray, np.ndarray | None]:
        result = self.env.reset(seed)
        self.has_action_mask = self.env.has_action_mask
        return result

    def step(self, actions: np.ndarray) -> Step:
        step = self.env.step(actions)
        self.raw_rewards = step.rewards
        return step._replace(rewards=np.minimum(np.maximum(step.rewards, -1.0), 1.0))

    def get_state(self) -> dict[str, Any] | None:
        return self.env.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        self.env.set_state(state)
        self.has_action_mask = self.env.has_action_mask

    def close(self) -> None:
        self.env.close()
