"""envpool's C++ environments behind the interface of a gymnasium vector environment.

envpool resets on the step after an episode's last, as we do everywhere. Two things of its own: seeds are given when
the pool is made, so that a reset with a seed makes a new pool; and an episode that ends by itself on exactly its last
allowed step is reported as truncated only, so that its value is bootstrapped.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rlcore.env.atari import episode_limit
from rlcore.env.registry import creation_failure
from rlcore.errors import EnvironmentFailure

if TYPE_CHECKING:
    from rlcore.api import EnvironmentSpec


class EnvPoolAdapter:
    """The part of gymnasium's vector interface that NativeVectorEnv uses."""

    def __init__(self, env_id: str, num_envs: int, kwargs: dict[str, Any]) -> None:
        self._env_id, self._kwargs = env_id, kwargs
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._pool = self._make(0)
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space

    def reset(self, *, seed: int | None) -> tuple[Any, dict[str, Any]]:
        """Begin everywhere; sub-environment i gets `seed + i` from envpool."""
        if seed is not None:
            self._pool.close()
            self._pool = self._make(seed)
        observations, _ = self._pool.reset()
        return observations, {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One timestep of every sub-environment."""
        observations, rewards, terminated, truncated, _ = self._pool.step(actions)
        return observations, rewards, terminated, truncated, {}

    def close(self) -> None:
        """Stop the pool's threads."""
        self._pool.close()

    def _make(self, seed: int) -> Any:
        import envpool

        with warnings.catch_warnings():
            # Its float32 boxes are declared with float64 bounds, about which gymnasium warns when they are first used.
            warnings.simplefilter("ignore", UserWarning)
            pool = envpool.make(self._env_id, env_type="gymnasium", num_envs=self.num_envs, seed=seed, **self._kwargs)
            _ = pool.observation_space, pool.action_space
        return pool


def make_envpool(spec: EnvironmentSpec, num_envs: int, threads: int) -> EnvPoolAdapter:
    """The pool that the manifest asks for; Atari's preprocessing and time limits in envpool's own words.

    Raises:
        EnvironmentFailure: envpool is not installed or does not know the environment.
    """
    if importlib.util.find_spec("envpool") is None:
        hint = "pip install 'rlcore[envpool]'"
        message = "environment.vectorization is envpool, which is not installed here"
        raise EnvironmentFailure(message, hint=hint, permanent=True)
    import envpool

    env_id = spec.id.removeprefix("ALE/")
    if env_id not in envpool.list_all_envs():
        hint = "use vectorization: auto; envpool.list_all_envs() lists its own"
        raise EnvironmentFailure(f"envpool does not offer environment {spec.id!r}", hint=hint, permanent=True)
    kwargs: dict[str, Any] = {"num_threads": threads}
    if spec.wrappers == "atari":
        kwargs.update(_atari_kwargs(spec))
    elif spec.max_episode_steps is not None:
        kwargs["max_episode_steps"] = spec.max_episode_steps
    kwargs.update(spec.kwargs)
    try:
        return EnvPoolAdapter(env_id, num_envs, kwargs)
    except Exception as error:
        raise creation_failure(spec.id, error, spec.kwargs) from error


def _atari_kwargs(spec: EnvironmentSpec) -> dict[str, Any]:
    atari = spec.atari
    return {
        "img_height": atari.frame_size,
        "img_width": atari.frame_size,
        "stack_num": atari.frame_stack,
        "frame_skip": atari.frame_skip,
        "gray_scale": atari.grayscale,
        "noop_max": atari.noop_max,
        "episodic_life": atari.episodic_life,
        "use_fire_reset": atari.fire_reset,
        "repeat_action_probability": atari.sticky_action_probability,
        "full_action_space": atari.full_action_space,
        "max_episode_steps": episode_limit(spec),
        "reward_clip": False,
    }
