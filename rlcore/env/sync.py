"""Single gymnasium environments stepped one after the other in this process, into arrays allocated once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers

from rlcore.env.actions import ActionLayout, mask_size
from rlcore.env.base import (
    EnvFailure,
    Phase,
    Step,
    VectorEnv,
    derive_seed,
    describe_action,
    describe_error,
    fresh_seed,
)
from rlcore.env.masks import MASK_KEY, split_mask_space, without_mask, write_mask
from rlcore.env.observations import ObservationLayout
from rlcore.env.state import get_env_state, set_env_state


@dataclass(frozen=True, slots=True)
class StepBuffers:
    """Where a step's results are written; shared memory when a subprocess does the stepping. N rows each."""

    observations: np.ndarray  # [N, *obs]
    rewards: np.ndarray  # float32 [N]
    terminated: np.ndarray  # bool [N]
    truncated: np.ndarray  # bool [N]
    valid: np.ndarray  # bool [N]
    mask: np.ndarray  # bool [N, A]; A = 0 where masks have no meaning


def peel(env: gymnasium.Env) -> tuple[gymnasium.Env, int | None]:
    """Take off the outermost wrappers whose work this module does itself, once for all rows.

    Returns:
        The environment without TimeLimit and OrderEnforcing (as far as they are outermost), and the time limit.
    """
    limit: int | None = None
    while type(env) in (wrappers.TimeLimit, wrappers.OrderEnforcing):
        if isinstance(env, wrappers.TimeLimit):
            own = int(env._max_episode_steps)
            limit = own if limit is None else min(limit, own)
        env = env.env
    return env, limit


class SyncVectorEnv(VectorEnv):
    """N single environments in a loop, each with its own failures.

    Args:
        make: returns one environment; called again for each that raised.
        num_envs: N.
        max_episode_steps: truncate after this many timesteps, in place of the environment's own outermost limit.
        worker_index: mixed into the seeds, so that evaluators given one seed still see different episodes.
        first_index: index of the first sub-environment, where this is one slice of a larger vector environment.
    """

    def __init__(
        self,
        make: Callable[[], gymnasium.Env],
        num_envs: int,
        *,
        max_episode_steps: int | None = None,
        worker_index: int = 0,
        first_index: int = 0,
    ) -> None:
        super().__init__()
        self._make = make
        self._worker_index, self._first_index = worker_index, first_index
        first, own_limit = peel(make())
        self._limit = own_limit if max_episode_steps is None else max_episode_steps
        self._envs: list[gymnasium.Env] = [first, *(peel(make())[0] for _ in range(num_envs - 1))]
        self._steps = [env.step for env in self._envs]
        self.num_envs = num_envs
        self.action_space = first.action_space
        source, self._keys = split_mask_space(first.observation_space, self.action_space)
        self.layout = ObservationLayout(source)
        self.observation_space = self.layout.space
        self.has_action_mask = self._keys is not None
        self.mask_size = mask_size(self.action_space) or 0
        self._actions = ActionLayout(self.action_space)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._pending = [True] * num_envs
        # Sub-environments that must be seeded by their next reset: never reset yet, or replaced after a failure.
        self._unseeded = [True] * num_envs
        self._generations = [0] * num_envs
        self._seed = 0
        self._begun = False
        # What the loop collects before it goes into the arrays at once.
        self._row_rewards: list[float] = [0.0] * num_envs
        self._row_terminated: list[bool] = [False] * num_envs
        self._row_truncated: list[bool] = [False] * num_envs
        self.use_buffers(allocate_buffers(self.layout, num_envs, self.mask_size))

    def use_buffers(self, buffers: StepBuffers) -> None:
        """Write all further results into `buffers`."""
        self.buffers = buffers
        self._writer = self.layout.writer(buffers.observations)
        self._set_has_mask(self.has_action_mask)

    def begin(self, seed: int, generation: int = 0) -> None:
        """Let every sub-environment begin an episode at its next step, seeded from (seed, its index, generation)."""
        self._begun = True
        self._seed = seed
        self._generations = [generation] * self.num_envs
        self._pending = [True] * self.num_envs
        self._unseeded = [True] * self.num_envs

    def reset(self, seed: int | None) -> tuple[np.ndarray, np.ndarray | None]:
        if seed is not None or not self._begun:
            self.begin(fresh_seed() if seed is None else seed)
        for index in range(self.num_envs):
            self._reset_row(index)
        self._pending = list(self._row_truncated)
        return self.buffers.observations, self.buffers.mask if self.has_action_mask else None

    def step(self, actions: np.ndarray) -> Step:
        pending, direct = self._pending, self._direct
        rewards, terminated, truncated = self._row_rewards, self._row_terminated, self._row_truncated
        self.buffers.valid.fill(True)
        self._elapsed += 1
        for index, (step, action) in enumerate(zip(self._steps, self._actions.rows(actions), strict=True)):
            if pending[index]:
                self._reset_row(index)
                continue
            try:
                observation, reward, ended, cut, info = step(action)
                rewards[index], terminated[index], truncated[index] = float(reward), bool(ended), bool(cut)
                if direct is not None:
                    direct[index] = observation
                else:
                    self._write(index, observation, info)
            except Exception as error:
                self._fail(index, "step", error, action)
        return self._collect()

    def get_state(self) -> dict[str, Any] | None:
        # One that will be seeded by its next reset has nothing to save.
        fresh = self._unseeded
        states = [None if new else get_env_state(env) for env, new in zip(self._envs, fresh, strict=True)]
        if any(state is None and not new for state, new in zip(states, fresh, strict=True)):
            return None
        return {
            "envs": states,
            "elapsed": self._elapsed.copy(),
            "pending": np.array(self._pending),
            "unseeded": np.array(fresh),
            "generations": list(self._generations),
            "seed": self._seed,
            "observations": self.buffers.observations.copy(),
            "mask": self.buffers.mask.copy(),
            "has_action_mask": self.has_action_mask,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        for env, env_state in zip(self._envs, state["envs"], strict=True):
            if env_state is not None:
                set_env_state(env, env_state)
        self._elapsed[:] = state["elapsed"]
        self._pending = state["pending"].tolist()
        self._unseeded = state["unseeded"].tolist()
        self._generations = list(state["generations"])
        self._seed, self._begun = state["seed"], True
        self.buffers.observations[...] = state["observations"]
        self.buffers.mask[...] = state["mask"]
        self._set_has_mask(state["has_action_mask"])

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _collect(self) -> Step:
        """Carry what the loop left in lists into the arrays, and truncate at the time limit."""
        buffers = self.buffers
        buffers.rewards[:] = self._row_rewards
        buffers.terminated[:] = self._row_terminated
        buffers.truncated[:] = self._row_truncated
        if self._limit is not None:
            np.logical_or(buffers.truncated, self._elapsed >= self._limit, out=buffers.truncated)
        self._pending = (buffers.terminated | buffers.truncated).tolist()
        mask = buffers.mask if self.has_action_mask else None
        return Step(buffers.observations, buffers.rewards, buffers.terminated, buffers.truncated, buffers.valid, mask)

    def _reset_row(self, index: int) -> None:
        env = self._envs[index]
        try:
            observation, info = env.reset(seed=self._env_seed(index)) if self._unseeded[index] else env.reset()
            if self._keys is None and not self.has_action_mask and self.mask_size and MASK_KEY in info:
                self._set_has_mask(True)
            self._check_shape(observation)
            self._write(index, observation, info)
        except Exception as error:
            self._fail(index, "reset", error)
            return
        self._unseeded[index] = False
        self._elapsed[index] = 0
        self._set_row(index, truncated=False)

    def _write(self, index: int, observation: Any, info: dict[str, Any]) -> None:
        if self.has_action_mask:
            write_mask(self.buffers.mask[index], info.get(MASK_KEY) if self._keys is None else observation[MASK_KEY])
        if self._keys is not None:
            observation = without_mask(observation, self._keys)
        self._writer.write(index, observation)

    def _check_shape(self, observation: Any) -> None:
        # Assigning to a row broadcasts, and would hide an environment that does not keep to its own space.
        if self._writer.direct is not None and self._keys is None:
            expected, given = self.layout.source.shape, np.shape(observation)
            if given != expected:
                raise ValueError(f"the observation has shape {given}, the observation space {expected}")

    def _set_row(self, index: int, *, truncated: bool) -> None:
        """A row that is no transition."""
        self._row_rewards[index], self._row_terminated[index], self._row_truncated[index] = 0.0, False, truncated
        self.buffers.valid[index] = False

    def _fail(self, index: int, phase: Phase, error: Exception, action: Any = None) -> None:
        """Record the exception, and put a fresh environment with a new seed in the place of the one that raised."""
        self._record(index, phase, error, None if phase != "step" else describe_action(action))
        self._set_row(index, truncated=True)
        self.buffers.mask[index] = True
        self._generations[index] += 1
        self._unseeded[index] = True
        try:
            replacement, _ = peel(self._make())
        except Exception as creation_error:
            self._record(index, "create", creation_error, None)
            return
        with contextlib.suppress(Exception):  # it is broken already, and this was reported
            self._envs[index].close()
        self._envs[index], self._steps[index] = replacement, replacement.step

    def _record(self, index: int, phase: Phase, error: Exception, action: str | None) -> None:
        number = self._first_index + index
        self.failures.append(EnvFailure(number, self._env_seed(index), phase, action, describe_error(error)))

    def _env_seed(self, index: int) -> int:
        return derive_seed(self._seed, self._worker_index, self._first_index + index, self._generations[index])

    def _set_has_mask(self, value: bool) -> None:
        self.has_action_mask = value
        # Where nothing but an array row must be written, the loop does it itself.
        self._direct = None if value else self._writer.direct


def allocate_buffers(layout: ObservationLayout, num_envs: int, mask_size: int) -> StepBuffers:
    """Ordinary memory for N rows."""
    return StepBuffers(
        observations=layout.empty(num_envs),
        rewards=np.zeros(num_envs, np.float32),
        terminated=np.zeros(num_envs, np.bool_),
        truncated=np.zeros(num_envs, np.bool_),
        valid=np.zeros(num_envs, np.bool_),
        mask=np.ones((num_envs, mask_size), np.bool_),
    )


# What a state holds once for all rows, and what it holds in lists, one entry for each.
_SHARED_KEYS = ("seed", "has_action_mask")
_LIST_KEYS = ("envs", "generations")


def join_states(states: list[dict[str, Any]]) -> dict[str, Any]:
    """One state of all sub-environments from those of consecutive slices."""
    joined: dict[str, Any] = {}
    for key, value in states[0].items():
        parts = [state[key] for state in states]
        if key in _SHARED_KEYS:
            joined[key] = value
        else:
            joined[key] = [row for part in parts for row in part] if key in _LIST_KEYS else np.concatenate(parts)
    return joined


def slice_state(state: dict[str, Any], begin: int, end: int) -> dict[str, Any]:
    """The state of sub-environments begin .. end-1."""
    return {key: value if key in _SHARED_KEYS else value[begin:end] for key, value in state.items()}
