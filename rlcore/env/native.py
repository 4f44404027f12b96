"""Environments that come with a vector environment of their own (gymnasium's `vector_entry_point`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import MultiDiscrete
from gymnasium.vector import AutoresetMode

from rlcore.env.actions import ActionLayout, mask_size
from rlcore.env.base import EnvFailure, Step, VectorEnv, derive_seed, describe_action, describe_error, fresh_seed
from rlcore.env.masks import MASK_KEY, split_mask_space, without_mask, write_masks
from rlcore.env.observations import ObservationLayout
from rlcore.env.state import get_vector_state, set_vector_state
from rlcore.errors import EnvironmentFailure


def autoreset_mode(env: Any) -> AutoresetMode | None:
    """The declared autoreset mode; None where the environment says nothing that gymnasium knows."""
    mode = env.metadata.get("autoreset_mode")
    return mode if isinstance(mode, AutoresetMode) else None


class QuickMultiDiscrete(MultiDiscrete):
    """The same space; asking whether it contains an array takes a tenth of the time."""

    def contains(self, x: Any) -> bool:
        actions = np.asarray(x)
        if actions.shape != self.nvec.shape:
            return False
        offsets = actions - self.start
        return bool(((offsets >= 0) & (offsets < self.nvec)).all())


def quick_to_check(env: Any) -> Any:
    """The environment, whose own check of every step's actions cost it a third of CartPole's time."""
    inner: Any = getattr(env, "unwrapped", env)
    space: Any = getattr(inner, "action_space", None)
    if type(space) is MultiDiscrete and space.nvec.ndim == 1:
        inner.action_space = QuickMultiDiscrete(space.nvec, dtype=space.dtype, start=space.start)
    return env


class NativeVectorEnv(VectorEnv):
    """Adapts a gymnasium vector environment with NEXT_STEP autoreset, which does all the stepping itself.

    An exception concerns all N sub-environments, for their state is shared: it is recorded once (as sub-environment
    0), a new vector environment with a new seed takes over, and all rows are truncated.

    Args:
        make: returns the vector environment (gymnasium's, or one that looks like it); called again after a failure.
        worker_index: mixed into the seed, so that evaluators given one seed still see different episodes.
        seed_each: the environment takes an array with one seed for each sub-environment, as ale-py's does.

    Raises:
        EnvironmentFailure: the environment does not reset on the step after an episode's last.
    """

    def __init__(self, make: Callable[[], Any], *, worker_index: int = 0, seed_each: bool = False) -> None:
        super().__init__()
        self._make = make
        self._seed_each = seed_each
        self._worker_index = worker_index
        self._env = quick_to_check(make())
        mode = autoreset_mode(self._env)
        if mode is not AutoresetMode.NEXT_STEP:
            self._env.close()
            raise EnvironmentFailure(
                f"the environment's own vectorization resets by {'an unknown mode' if mode is None else mode.value}, "
                "not on the next step, which loses the final observations",
                hint="set environment.vectorization to sync or subprocess",
                permanent=True,
            )
        self.num_envs = int(self._env.num_envs)
        self.action_space = self._env.single_action_space
        source, self._keys = split_mask_space(self._env.single_observation_space, self.action_space)
        layout = ObservationLayout(source)
        self.observation_space = layout.space
        self._actions = ActionLayout(self.action_space)
        self._writer = None if layout.passthrough else layout.writer(layout.empty(self.num_envs))
        self.has_action_mask = self._keys is not None
        self._mask = np.ones((self.num_envs, mask_size(self.action_space) or 0), np.bool_)
        self._seed = 0
        self._begun = False
        self._generation = 0
        self._done = np.zeros(self.num_envs, np.bool_)
        self._last = layout.empty(self.num_envs)
        self._restart = False

    def reset(self, seed: int | None) -> tuple[np.ndarray, np.ndarray | None]:
        seeding = seed is not None or not self._begun or self._restart
        if seed is not None or not self._begun:
            self._seed, self._generation, self._begun = fresh_seed() if seed is None else seed, 0, True
        self._done = np.zeros(self.num_envs, np.bool_)
        try:
            observations = self._reset(seeding)
        except Exception as error:
            self._fail("reset", None, error)
            observations = self._last
        return observations, self._mask if self.has_action_mask else None

    def step(self, actions: np.ndarray) -> Step:
        if self._restart:
            return self._step_restart()
        try:
            observations, rewards, terminated, truncated, info = self._env.step(self._actions.decode(actions))
            if self._writer is not None or self.has_action_mask:
                observations = self._convert(observations, info)
        except Exception as error:
            self._fail("step", describe_action(actions[0]), error)
            return self._failed_step()
        if rewards.dtype != np.float32:
            rewards = rewards.astype(np.float32)
        valid = ~self._done
        self._done = terminated | truncated
        self._last = observations
        return Step(observations, rewards, terminated, truncated, valid, self._mask if self.has_action_mask else None)

    def get_state(self) -> dict[str, Any] | None:
        inner = get_vector_state(self._env)
        if inner is None or self._restart:
            return None
        return {
            "env": inner,
            "done": self._done.copy(),
            "observations": self._last.copy(),
            "mask": self._mask.copy(),
            "has_action_mask": self.has_action_mask,
            "seed": self._seed,
            "generation": self._generation,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        set_vector_state(self._env, state["env"])
        self._done = state["done"].copy()
        self._last = state["observations"].copy()
        self._mask[...] = state["mask"]
        self.has_action_mask = state["has_action_mask"]
        self._seed, self._generation = state["seed"], state["generation"]
        self._begun, self._restart = True, False

    def close(self) -> None:
        self._env.close()

    def _env_seed(self, index: int = 0) -> int:
        return derive_seed(self._seed, self._worker_index, index, self._generation)

    def _reset(self, seeding: bool) -> np.ndarray:
        seeds: Any = None
        if seeding:
            each = self._seed_each
            seeds = np.array([self._env_seed(i) for i in range(self.num_envs)]) if each else self._env_seed()
        observations, info = self._env.reset(seed=seeds)
        if self._keys is None and MASK_KEY in info and self._mask.shape[1]:
            self.has_action_mask = True
        self._restart = False
        self._last = self._convert(observations, info)
        return self._last

    def _convert(self, observations: Any, info: dict[str, Any]) -> np.ndarray:
        """Take out the mask, and flatten."""
        if self.has_action_mask:
            masks = info.get(MASK_KEY) if self._keys is None else observations[MASK_KEY]
            if masks is None:
                self._mask[:] = True
            else:
                write_masks(self._mask, masks)
        if self._keys is not None:
            observations = without_mask(observations, self._keys)
        if self._writer is None:
            return np.asarray(observations)
        self._writer.write_all(observations)
        return self._writer.out

    def _fail(self, phase: Any, action: str | None, error: Exception) -> None:
        self.failures.append(EnvFailure(0, self._env_seed(), phase, action, describe_error(error)))
        self._generation += 1
        self._restart = True
        self._mask[:] = True

    def _failed_step(self) -> Step:
        self._done = np.zeros(self.num_envs, np.bool_)
        return Step(
            self._last,
            np.zeros(self.num_envs, np.float32),
            np.zeros(self.num_envs, np.bool_),
            np.ones(self.num_envs, np.bool_),
            np.zeros(self.num_envs, np.bool_),
            self._mask if self.has_action_mask else None,
        )

    def _step_restart(self) -> Step:
        """Replace the vector environment that raised, and begin new episodes everywhere."""
        try:
            replacement = quick_to_check(self._make())
            self._env.close()
            self._env = replacement
            self._reset(seeding=True)
        except Exception as error:
            self._fail("reset", None, error)
            return self._failed_step()
        step = self._failed_step()
        return step._replace(observations=self._last, truncated=np.zeros(self.num_envs, np.bool_))
