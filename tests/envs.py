"""Tiny deterministic environments for tests; named in manifests as "tests.envs:Name"."""

from __future__ import annotations

import os
import time
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

GO, TERMINATE, TRUNCATE, RAISE, RAISE_ON_RESET, HANG, EXIT, TERMINATE_AND_TRUNCATE, BAD_SHAPE = range(9)


class ObeyingEnv(gym.Env):
    """Does what the action says (GO, TERMINATE, ...); observes [a draw of the episode, timestep]; pays the timestep."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(9)
        self.break_reset = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        if self.break_reset:
            raise RuntimeError("reset is broken")
        self.draw, self.t = float(self.np_random.integers(1, 1 << 20)), 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        if action == RAISE:
            raise ValueError("the robot fell over")
        if action == HANG:
            time.sleep(3600)
        if action == EXIT:
            os._exit(3)
        self.break_reset |= bool(action == RAISE_ON_RESET)
        self.t += 1
        both = action == TERMINATE_AND_TRUNCATE
        terminated, truncated = action in (TERMINATE, RAISE_ON_RESET), action == TRUNCATE
        observation = np.zeros((3, 1), np.float32) if action == BAD_SHAPE else self.observe()
        return observation, float(self.t), bool(terminated or both), bool(truncated or both), {}

    def observe(self) -> np.ndarray:
        return np.array([self.draw, self.t], np.float32)


class ResumableEnv(ObeyingEnv):
    """Offers its own state."""

    def get_state(self) -> dict[str, Any]:
        return {"draw": self.draw, "t": self.t, "rng": self.np_random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        self.draw, self.t = state["draw"], state["t"]
        self.np_random.bit_generator.state = state["rng"]


class SampledEnv(gym.Env):
    """Observes samples of any space, and keeps the actions that it was given; episodes of 3 timesteps."""

    def __init__(self, observation_space: gym.Space, action_space: gym.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.observed: list[Any] = []
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self._sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.actions.append(action)
        self.t += 1
        return self._sample(), 1.0, self.t == 3, False, {}

    def _sample(self) -> Any:
        self.observed.append(self.observation_space.sample())
        return self.observed[-1]


class MaskedEnv(gym.Env):
    """Allows action t % 3 at timestep t, and none at all at t = 4, the last; `style` is where the mask is."""

    def __init__(self, style: str, key: str = "observation") -> None:
        self.style, self.key = style, key
        self.action_space = spaces.Discrete(3)
        plain = spaces.Box(0, 10, (1,), np.float32)
        masked = spaces.Dict({"action_mask": spaces.Box(0, 1, (3,), np.int8), key: plain})
        self.observation_space = masked if style == "dict" else plain

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self._observe()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        if action != self.t % 3:
            raise ValueError("that action was masked")
        self.t += 1
        observation, info = self._observe()
        return observation, 1.0, self.t == 4, False, info

    def _observe(self) -> tuple[Any, dict]:
        mask = np.zeros(3, np.int8)
        if self.t < 4:
            mask[self.t % 3] = 1
        value = np.array([self.t], np.float32)
        return ({"action_mask": mask, self.key: value}, {}) if self.style == "dict" else (value, {"action_mask": mask})


class CountingVectorEnv(gym.vector.VectorEnv):
    """A vector environment whose episodes last 2 timesteps; raises where an action is RAISE."""

    def __init__(
        self, num_envs: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP, max_episode_steps: int = 2
    ) -> None:
        self.num_envs, self.limit = num_envs, max_episode_steps
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = spaces.Box(-1, 1e9, (2,), np.float64)
        self.single_action_space = spaces.Discrete(9)
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self.seeds.append(seed)
        self.t = np.zeros(self.num_envs)
        return self._observe(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        if (actions == RAISE).any():
            raise ValueError("the simulator fell over")
        fresh = self.t >= self.limit
        self.t = np.where(fresh, 0, self.t + 1)
        done = self.t >= self.limit
        return self._observe(), np.where(fresh, 0.0, 1.0), done, np.zeros_like(done), {}

    def _observe(self) -> np.ndarray:
        return np.stack([np.arange(self.num_envs, dtype=np.float64), self.t], axis=1)


class ChoosableVectorEnv(CountingVectorEnv):
    """Its constructor takes the autoreset mode, and defaults to one that we cannot use."""

    def __init__(
        self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP, max_episode_steps: int = 2
    ) -> None:
        super().__init__(num_envs, autoreset_mode, max_episode_steps)


class SameStepVectorEnv(CountingVectorEnv):
    """Knows only SAME_STEP autoreset."""

    def __init__(self, num_envs: int, max_episode_steps: int = 2) -> None:
        super().__init__(num_envs, AutoresetMode.SAME_STEP, max_episode_steps)


class RelayEnv:
    """Parallel, multi-agent: agents leave one after the other ("a" at 2, "b" at 3, ...), "late" joins at timestep 1."""

    spaces: ClassVar[dict[str, gym.Space]] = {}

    def __init__(self, agents: tuple[str, ...] = ("a", "b", "boss"), late: bool = False) -> None:
        self.possible_agents = [*agents, *(["late"] if late else [])]
        self.agents: list[str] = []
        self.received: list[dict[str, Any]] = []
        self.closed = False

    def observation_space(self, agent: str) -> gym.Space:
        return spaces.Box(-np.inf, np.inf, (3 if agent == "boss" else 2,), np.float32)

    def action_space(self, agent: str) -> gym.Space:
        return spaces.Box(-1, 1, (2,), np.float32) if agent == "boss" else spaces.Discrete(5, start=1)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.t, self.draw = 0, float(self.rng.integers(1, 1 << 20))
        self.agents = [agent for agent in self.possible_agents if agent != "late"]
        return {agent: self._observe(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        assert set(actions) == set(self.agents), f"actions of {set(actions)}, agents are {set(self.agents)}"
        self.received.append(actions)
        if any(np.ndim(action) == 0 and action == 5 for action in actions.values()):
            raise ValueError("the relay was dropped")
        self.t += 1
        acted = list(self.agents)
        if self.t == 1 and "late" in self.possible_agents:
            self.agents.append("late")
        ended = {agent: self.t >= 2 + self.possible_agents.index(agent) for agent in acted}
        present = list(self.agents)
        self.agents = [agent for agent in self.agents if not ended.get(agent, False)]
        rewards = {agent: float(self.t) for agent in acted}
        cut = dict.fromkeys(present, False)
        return {agent: self._observe(agent) for agent in present}, rewards, {**cut, **ended}, cut, {}

    def close(self) -> None:
        self.closed = True

    def _observe(self, agent: str) -> np.ndarray:
        values = [self.draw, float(self.t), 7.0]
        return np.array(values[: 3 if agent == "boss" else 2], np.float32)


def not_an_env() -> dict[str, int]:
    """A factory that returns something else."""
    return {}


def broken_factory(size: int = 1) -> gym.Env:
    """A factory that raises."""
    raise ZeroDivisionError("no floor to stand on")


def make_relay(**kwargs: Any) -> RelayEnv:
    """A factory of multi-agent environments."""
    return RelayEnv(**kwargs)


NOT_CALLABLE = 3
