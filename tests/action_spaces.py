"""Action spaces of every kind, environments that have them, and which algorithm acts in which."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rlcore.api.algorithms import ALGORITHMS
from tests.jobs import CountingEnv

KINDS: dict[str, gym.Space] = {
    "Discrete": gym.spaces.Discrete(3),
    "Box": gym.spaces.Box(-1, 1, (2,), np.float32),
    "Box without bounds": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "Box of integers": gym.spaces.Box(0, 9, (2,), np.int64),
    "MultiDiscrete": gym.spaces.MultiDiscrete([2, 3]),
    "MultiBinary": gym.spaces.MultiBinary(3),
    "Dict": gym.spaces.Dict({"a": gym.spaces.Discrete(2), "b": gym.spaces.Box(-1, 1, (1,), np.float32)}),
    "Text": gym.spaces.Text(5),
}
EVERY = frozenset(KINDS) - {"Text"}
DISCRETE = frozenset({"Discrete"})
BOX = frozenset({"Box"})

SUPPORTED: dict[str, frozenset[str]] = {
    **dict.fromkeys(("PPO", "PG", "A2C", "A3C", "IMPALA", "APPO", "ES", "ARS", "PPOES", "BC", "MARWIL"), EVERY),
    **dict.fromkeys(("DQN", "ApexDQN"), DISCRETE),
    **dict.fromkeys(("DDPG", "TD3", "ApexDDPG"), BOX),
    **dict.fromkeys(("SAC", "MADDPG"), DISCRETE | BOX),
    **dict.fromkeys(("QMIX", "AlphaZero"), DISCRETE),
}
"""Algorithm -> the kinds of action space that it acts in."""


class ActionSpaceEnv(CountingEnv):
    """A CountingEnv with an action space of the given kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.action_space = KINDS[kind]


class ActionSpaceAgents:
    """Two agents with an action space of the given kind, in PettingZoo's parallel form; it is never stepped."""

    def __init__(self, kind: str) -> None:
        self.possible_agents = ["one", "two"]
        self.agents: list[str] = []
        self._kind = kind

    def observation_space(self, agent: str) -> gym.Space:
        return gym.spaces.Box(-1, 1, (2,), np.float32)

    def action_space(self, agent: str) -> gym.Space:
        return KINDS[self._kind]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        raise NotImplementedError

    def step(self, actions: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


def job_with(algorithm: str, kind: str) -> dict[str, Any]:
    """Fields of the spec of a job whose agents have such an action space."""
    spec: dict[str, Any] = {"algorithm": algorithm, "config": {}}
    if ALGORITHMS[algorithm].agents == "many":
        spec |= {"multiAgent": {"policies": {"shared": {}}, "mapping": "tests.jobs:one_policy"}}
        return spec | {"environment": {"id": "tests.action_spaces:ActionSpaceAgents", "kwargs": {"kind": kind}}}
    if algorithm in {"BC", "MARWIL"}:
        spec["config"] = {"input": "nowhere"}
    return spec | {"environment": {"id": "tests.action_spaces:ActionSpaceEnv", "kwargs": {"kind": kind}}}
