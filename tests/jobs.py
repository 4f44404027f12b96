"""RLJobs for tests, and environments that behave in one way each."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rlcore.api import RLJob
from rlcore.driver.build import evaluator_config
from rlcore.driver.plan import Machine, make_plan
from rlcore.evaluation.config import EvaluatorConfig
from rlcore.offline.records import RecordsInfo, RecordWriter
from rlcore.sample_batch import DEFAULT_POLICY, SampleBatch


def make_job(name: str = "test", **spec: Any) -> RLJob:
    """A small PPO job on CartPole; keyword arguments are fields of spec, in the manifest's spelling."""
    fields = {
        "algorithm": "PPO",
        "environment": {"id": "CartPole-v1"},
        "stop": {"timesteps": 4000},
        "seed": 0,
        "config": {"trainBatchSize": 512, "minibatchSize": 128, "numEpochs": 2},
        "evaluators": {"envsPerEvaluator": 4, "pools": [{"name": "pool", "minReplicas": 0, "maxReplicas": 2}]},
        **spec,
    }
    return RLJob.model_validate(
        {"apiVersion": "rlcore.io/v1alpha1", "kind": "RLJob", "metadata": {"name": name}, "spec": fields}
    )


def pools(evaluators: int, envs: int = 4) -> dict[str, Any]:
    """spec.evaluators with so many evaluators of one core each."""
    pool = {"name": "pool", "minReplicas": evaluators, "maxReplicas": max(1, evaluators)}
    return {"envsPerEvaluator": envs, "pools": [pool]}


def make_evaluator_config(**spec: Any) -> EvaluatorConfig:
    """What a job's evaluators are made from."""
    job = make_job(**spec)
    return evaluator_config(job.spec, make_plan(job.spec, Machine(cores=2, gpus=0)), seed=0)


class CountingEnv(gym.Env):
    """Observes the timestep; pays 1 a step; ends by itself after `length` steps, or is cut off after `limit`."""

    def __init__(self, length: int = 5, limit: int = 1000) -> None:
        self.observation_space = gym.spaces.Box(0, np.inf, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.length, self.limit = length, limit

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.array([0.0], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.array([self.t], np.float32), 1.0, self.t >= self.length, self.t >= self.limit, {}


class MemoryEnv(gym.Env):
    """Shows a bit at the first step only and pays for repeating it at the last: only memory can know it."""

    def __init__(self, length: int = 4) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.bit = 0, int(self.np_random.integers(2))
        return np.array([2 * self.bit - 1, 0], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        last = self.t >= self.length
        reward = (1.0 if action == self.bit else -1.0) if last else 0.0
        return np.array([0, self.t / self.length], np.float32), reward, last, False, {}


class MaskedEnv(gym.Env):
    """Allows two of four actions, tells which in its observation, raises for others; pays for the larger."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Dict(
            {"observation": gym.spaces.Box(0, 1, (2,), np.float32), "action_mask": gym.spaces.MultiBinary(4)}
        )
        self.action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        if not self.mask[action]:
            raise ValueError(f"action {action} is not allowed by {self.mask}")
        self.t += 1
        reward = float(action == np.flatnonzero(self.mask).max())
        return self._observe(), reward, False, self.t >= 10, {}

    def _observe(self) -> dict[str, Any]:
        self.mask = np.zeros(4, np.int8)
        self.mask[self.np_random.choice(4, 2, replace=False)] = 1
        return {"observation": self.np_random.random(2, dtype=np.float32), "action_mask": self.mask.copy()}


class PoisonedEnv(CountingEnv):
    """Gives NaN in rewards or observations, or infinite observations, from one timestep on."""

    def __init__(self, what: str = "reward", after: int = 40) -> None:
        super().__init__(length=10_000)
        self.what, self.after = what, after

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        if self.t >= self.after:
            reward = np.nan if self.what == "reward" else reward
            observation = observation * {"observation": np.nan, "infinity": np.inf}.get(self.what, 1.0)
        return observation, reward, terminated, truncated, info


class FailingEnv(CountingEnv):
    """Raises at the tenth step of each episode."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.t >= 9:
            raise RuntimeError("the simulator crashed")
        return super().step(action)


class PaidActionEnv(CountingEnv):
    """Pays 1 for action 1, 0 for action 0; six steps."""

    def __init__(self) -> None:
        super().__init__(length=6)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float(action), terminated, truncated, info


class ImageEnv(CountingEnv):
    """Shows a small image of noise."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(0, 255, (3, 10, 10), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        _, info = super().reset(seed=seed)
        return self.observation_space.sample(), info

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        _, reward, terminated, truncated, info = super().step(action)
        return self.observation_space.sample(), reward, terminated, truncated, info


class FailsOnceEnv(CountingEnv):
    """Raises in the middle of the first episode of the process, once."""

    failed = False

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.t == 2 and not FailsOnceEnv.failed:
            FailsOnceEnv.failed = True
            raise RuntimeError("the simulator crashed")
        return super().step(action)


class FailsWhenEvaluated(CountingEnv):
    """Raises in evaluation only."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        import inspect

        if any(frame.function == "evaluate" for frame in inspect.stack()):
            raise RuntimeError("the simulator has no evaluation licence")
        return super().reset(seed=seed, options=options)


class DeadlyEnv(CountingEnv):
    """Takes its process with it at the tenth step, as running out of memory would."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.t >= 3:
            os._exit(1)
        return super().step(action)


class DeadlyWhereToldEnv(CountingEnv):
    """Takes its process with it at once where the environment variable DEADLY is set."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if os.environ.get("DEADLY"):
            os._exit(1)
        return super().step(action)


class TwoAgents:
    """PettingZoo's parallel interface: two agents see a bit; one is paid for the same, one for the other."""

    possible_agents = ("same", "other")

    def __init__(self, length: int = 10) -> None:
        self.length = length
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> gym.Space:
        return gym.spaces.Box(-1, 1, (1,), np.float32)

    def action_space(self, agent: str) -> gym.Space:
        return gym.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None or not hasattr(self, "rng"):
            self.rng = np.random.default_rng(seed)
        self.agents, self.t = list(self.possible_agents), 0
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        self.t += 1
        wanted = {"same": self.bit, "other": 1 - self.bit}
        rewards = {agent: float(actions[agent] == wanted[agent]) for agent in self.agents}
        over = self.t >= self.length
        flags = dict.fromkeys(self.agents, over)
        no = dict.fromkeys(self.agents, False)
        infos: dict[str, Any] = {agent: {} for agent in self.agents}
        observations = self._observe()
        if over:
            self.agents = []
        return observations, rewards, no, flags, infos

    def close(self) -> None:
        self.agents = []

    def _observe(self) -> dict[str, Any]:
        self.bit = int(self.rng.integers(2))
        return {agent: np.array([2 * self.bit - 1], np.float32) for agent in self.possible_agents}


def own_policy(agent: str) -> str:
    """Each agent its own policy."""
    return agent


def unknown_policy(agent: str) -> str:
    """All agents a policy that there is not."""
    return "nobody"


def one_policy(agent: str) -> str:
    """All agents one policy."""
    return "shared"


# Over Ray these must be importable: a test's own module is not, in a worker.


def slow_second(evaluator: Any, index: int) -> None:
    """Makes every second evaluator's samples take a second longer."""
    if index % 2:
        sample = evaluator.sample
        evaluator.sample = lambda: (time.sleep(1.0), sample())[1]


def process_id(evaluator: Any) -> int:
    """Of the process that an evaluator lives in."""
    return os.getpid()


def inner_evaluators(evaluator: Any) -> list[int]:
    """Process ids of the evaluators that a PPO-ES evaluator launched."""
    return [pid for run in evaluator.worker._runs.values() for pid in run.evaluators.foreach(process_id)]


def leave_the_process(evaluator: Any) -> None:
    """Ends an evaluator as running out of memory would."""
    os._exit(1)


def policy_version(evaluator: Any) -> int:
    """Version of the weights that an evaluator acts with."""
    return int(evaluator.policies[DEFAULT_POLICY].version)


def weights_of(evaluator: Any) -> np.ndarray:
    """The default policy's parameters as an evaluator has them."""
    return np.asarray(evaluator.policies[DEFAULT_POLICY].get_weights())


def write_cartpole_records(folder: Path, timesteps: int = 128) -> None:
    """Records of CartPole-v1, of random actions and episodes of 16 timesteps."""
    rng = np.random.default_rng(0)
    ends = np.arange(timesteps) % 16 == 15
    rows = {
        "observations": rng.normal(size=(timesteps, 4)).astype(np.float32),
        "next_observations": rng.normal(size=(timesteps, 4)).astype(np.float32),
        "actions": rng.integers(2, size=timesteps),
        "rewards": np.ones(timesteps, np.float32),
        "terminated": ends,
        "truncated": np.zeros(timesteps, bool),
    }
    info = RecordsInfo("CartPole-v1", "Box(4,) float32", "Discrete(2)")
    RecordWriter(folder, info, append=False).write(SampleBatch(rows), [16.0] * int(ends.sum()))
