"""Minari datasets (minari.farama.org) as transitions: `spec.config.input: minari:NAME`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rlcore.errors import UserError
from rlcore.offline.transitions import TERMINATED, TRUNCATED, check_rows, space_text
from rlcore.sample_batch import ACTIONS, NEXT_OBSERVATIONS, OBSERVATIONS, REWARDS, SampleBatch

PREFIX = "minari:"


def open_dataset(name: str) -> Any:
    """A dataset on this machine.

    Raises:
        UserError: minari is not installed, or has no such dataset here.
    """
    try:
        import minari
    except ImportError as error:
        raise UserError(
            f"spec.config.input: {PREFIX}{name} needs minari, which is not installed",
            hint="pip install 'rlcore[minari]'",
        ) from error
    try:
        return minari.load_dataset(name)
    except FileNotFoundError as error:
        raise UserError(
            f"spec.config.input: {PREFIX}{name}: there is no such dataset on this machine",
            hint=f"minari download {name}",
        ) from error


def dataset_spaces(dataset: Any) -> tuple[str, str]:
    """(observations, actions) as `space_text` says them after flattening to one array."""
    space = dataset.observation_space
    if isinstance(space, gym.spaces.Box) and len(space.shape) < 3 and space.dtype != np.uint8:
        # As the environment's own vectors come to a policy: flat, in single precision.
        return f"Box({int(np.prod(space.shape))},) float32", space_text(dataset.action_space)
    return space_text(space), space_text(dataset.action_space)


def dataset_rows(name: str, dataset: Any) -> SampleBatch:
    """All transitions, episode by episode.

    Raises:
        UserError: observations or actions that are not one array.
    """
    parts = [_episode_rows(name, episode) for episode in dataset.iterate_episodes()]
    if not parts:
        raise UserError(f"{PREFIX}{name} holds no episode", permanent=True)
    rows = SampleBatch.concat(parts)
    check_rows(f"{PREFIX}{name}", rows)
    return rows


def _episode_rows(name: str, episode: Any) -> SampleBatch:
    observations, actions = episode.observations, episode.actions
    if not isinstance(observations, np.ndarray) or not isinstance(actions, np.ndarray):
        raise UserError(
            f"{PREFIX}{name}: observations or actions are not one array each",
            hint="datasets of Box observations and of Box or Discrete actions can be read",
            permanent=True,
        )
    if observations.dtype != np.uint8:
        observations = observations.reshape(len(observations), -1).astype(np.float32)
    truncated = np.array(episode.truncations, bool)
    truncated[-1] |= not episode.terminations[-1]
    return SampleBatch(
        {
            OBSERVATIONS: observations[:-1],
            NEXT_OBSERVATIONS: observations[1:],
            ACTIONS: actions,
            REWARDS: np.asarray(episode.rewards, np.float32),
            TERMINATED: np.asarray(episode.terminations, bool),
            TRUNCATED: truncated,
        }
    )
