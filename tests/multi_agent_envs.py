"""Small multi-agent environments for tests, turn-based and parallel."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class CountdownGame:
    """Turn-based, by script: `script` names who moves in turn.

    An agent observes [its number, moves made so far by all]. Every move pays its mover 1 and everybody else 10, who has
    it at the own next turn. `leaving` maps an agent to the number of moves after which it is at its end; the others go
    on. After the whole script all are at their end; `truncate` says in which way.
    """

    def __init__(
        self,
        script: tuple[str, ...] = ("a", "b", "a", "b"),
        leaving: dict[str, int] | None = None,
        truncate: bool = False,
        fault: str | None = None,
        masks: str | None = None,
    ) -> None:
        self.script, self.leaving, self.truncate, self.fault, self.masks = script, leaving or {}, truncate, fault, masks
        self.possible_agents = sorted(set(script))
        self.agents: list[str] = []
        self.received: list[tuple[str, Any]] = []

    def observation_space(self, agent: str) -> gym.Space:
        plain = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        return (
            spaces.Dict({"observation": plain, "action_mask": spaces.MultiBinary(3)}) if self.masks == "dict" else plain
        )

    def action_space(self, agent: str) -> gym.Space:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.moves = list(self.possible_agents), 0
        self.owed = dict.fromkeys(self.agents, 0.0)
        self.over = dict.fromkeys(self.agents, False)
        self.agent_selection = "nobody" if self.fault == "selection" else self.script[0]

    def observe(self, agent: str) -> Any:
        if self.fault == "observation":
            return None
        plain = np.array([self.possible_agents.index(agent), self.moves], np.float32)
        return {"observation": plain, "action_mask": self._mask()} if self.masks == "dict" else plain

    def last(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        agent = self.agent_selection
        over = self.over.get(agent, False)
        info = {"action_mask": self._mask()} if self.masks == "info" else {}
        seen = self.observe(agent) if agent in self.possible_agents else None
        return seen, self.owed.get(agent, 0.0), over and not self.truncate, over and self.truncate, info

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.over[agent]:
            assert action is None, "an agent at its end has one action, None"
            if self.fault != "stays":
                self.agents.remove(agent)
            self._select()
            return
        self.received.append((agent, int(action)))
        self.moves += 1
        for other in self.agents:
            self.owed[other] = 1.0 if other == agent else self.owed[other] + 10.0
            done = self.moves >= self.leaving.get(other, len(self.script))
            self.over[other] = done or self.moves >= len(self.script)
        if self.fault == "vanishes" and self.moves >= 2 and "b" in self.agents:
            self.agents.remove("b")
        self._select()

    def close(self) -> None:
        self.agents = []

    def _select(self) -> None:
        gone = [agent for agent in self.agents if self.over[agent]]
        left = [agent for agent in self.script[self.moves :] if agent in self.agents]
        self.agent_selection = (gone or left or self.agents or ["nobody"])[0]

    def _mask(self) -> np.ndarray:
        return np.eye(3, dtype=np.int8)[self.moves % 3]


class MatchingGame:
    """Parallel: two agents see a bit, and are paid 1 each where both name it; `leaver` leaves after two steps of six.

    With `state` it has a global state: the bit and the timestep.
    """

    possible_agents: ClassVar[list[str]] = ["x_0", "x_1"]

    def __init__(self, leaver: str | None = None, state: bool = False, actions: str = "discrete") -> None:
        self.leaver, self.actions = leaver, actions
        self.agents: list[str] = []
        if state:
            self.state_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observation_space(self, agent: str) -> gym.Space:
        return spaces.Box(-1, 1, (1,), np.float32)

    def action_space(self, agent: str) -> gym.Space:
        if self.actions == "mixed" and agent == "x_1":
            return spaces.Box(0, 2, (2,), np.float32)
        if self.actions == "binary":
            return spaces.MultiBinary(2)
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None or not hasattr(self, "rng"):
            self.rng = np.random.default_rng(seed)
        self.agents, self.t = list(self.possible_agents), 0
        return self._observe(), {}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        assert set(actions) == set(self.agents)
        self.t += 1
        right = all(np.sum(action) == self.bit for action in actions.values())
        rewards = {agent: float(right) for agent in self.agents}
        gone = {agent: agent == self.leaver and self.t == 2 for agent in self.agents}
        cut = dict.fromkeys(self.agents, self.t >= 6)
        observations = self._observe()
        self.agents = [agent for agent in self.agents if not (gone[agent] or cut[agent])]
        return observations, rewards, gone, cut, {}

    def state(self) -> np.ndarray:
        return np.array([self.bit, self.t], np.float32)

    def close(self) -> None:
        self.agents = []

    def _observe(self) -> dict[str, Any]:
        self.bit = int(self.rng.integers(2))
        return {agent: np.array([2 * self.bit - 1], np.float32) for agent in self.agents}


class LingeringGame(MatchingGame):
    """Names x_1, which has terminated after two steps, until the end, and tells of that end in each step."""

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self.t += 1
        over = {"x_0": False, "x_1": self.t >= 2}
        cut = dict.fromkeys(over, self.t >= 6)
        observations = self._observe()
        if self.t >= 6:
            self.agents = []
        return observations, dict.fromkeys(over, 1.0), over, cut, {}


class SilentGame(MatchingGame):
    """Breaks the protocol: agent x_1 goes on, and is told nothing."""

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        observations, *rest = super().step(actions)
        observations.pop("x_1")
        return observations, *rest


class TwoCartPoles:
    """Parallel: two agents, each with a CartPole-v1 of its own, which end one after the other."""

    possible_agents: ClassVar[list[str]] = ["pole_0", "pole_1"]

    def __init__(self) -> None:
        self.poles = {agent: gym.make("CartPole-v1", disable_env_checker=True) for agent in self.possible_agents}
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> gym.Space:
        return self.poles[agent].observation_space

    def action_space(self, agent: str) -> gym.Space:
        return self.poles[agent].action_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents = list(self.possible_agents)
        seeds = {agent: None if seed is None else seed + number for number, agent in enumerate(self.agents)}
        return {agent: pole.reset(seed=seeds[agent])[0] for agent, pole in self.poles.items()}, {}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        results = {agent: self.poles[agent].step(int(action)) for agent, action in actions.items()}
        self.agents = [agent for agent in self.agents if not (results[agent][2] or results[agent][3])]
        observations, rewards, terminated, truncated, infos = (
            {agent: result[part] for agent, result in results.items()} for part in range(5)
        )
        return observations, rewards, terminated, truncated, infos

    def close(self) -> None:
        for pole in self.poles.values():
            pole.close()


def policy_weights(evaluator: Any, policy_id: str) -> np.ndarray:
    """A policy's parameters as an evaluator has them."""
    return np.asarray(evaluator.policies[policy_id].get_weights())
