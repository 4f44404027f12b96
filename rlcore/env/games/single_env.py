"""One game as a gymnasium.Env, for `gymnasium.make` and for vectorisation in a loop or in processes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlcore.env.games.game import Game
from rlcore.env.games.vector_env import GameVectorEnv
from rlcore.env.masks import MASK_KEY


class GameEnv(gymnasium.Env):
    """One seat of a game against a random player; `info["action_mask"]` says what is legal. See GameVectorEnv.

    Args:
        game: the rules.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (gymnasium's interface)

    def __init__(self, game: Game, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self._games = GameVectorEnv(game, 1, seats="one")
        self.observation_space = game.observation_space
        self.action_space = spaces.Discrete(game.num_actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        observations, mask = self._games.reset(seed)
        assert mask is not None
        return observations[0], {MASK_KEY: mask[0].astype(np.int8)}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._games.done[0]:
            raise ValueError("the game is over: reset() begins another one")
        step = self._games.step(np.array([action]))
        assert step.action_mask is not None
        info = {MASK_KEY: step.action_mask[0].astype(np.int8)}
        return step.observations[0], float(step.rewards[0]), bool(step.terminated[0]), False, info

    def render(self) -> str:
        return self._games.game.text(self._games.positions[0])

    def get_state(self) -> dict[str, Any]:
        """Where the game is."""
        return self._games.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self._games.set_state(state)
