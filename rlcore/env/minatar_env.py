"""MinAtar's games under their usual Gymnasium ids, MinAtar/Breakout-v0 (6 actions) and -v1 (those the game uses).

Why not `minatar.gym`: it offers no state, and see `_load_game_class`.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")


def register_minatar() -> None:
    """Register all games, leaving ids alone that are registered already."""
    for game in GAMES:
        name = game.title().replace("_", "")
        for version, minimal in ((0, False), (1, True)):
            env_id = f"MinAtar/{name}-v{version}"
            if env_id not in gymnasium.registry:
                entry_point = "rlcore.env.minatar_env:MinAtarEnv"
                gymnasium.register(env_id, entry_point, kwargs={"game": game, "use_minimal_action_set": minimal})


class MinAtarEnv(gymnasium.Env):
    """One MinAtar game; observations are bool `[10, 10, C]`, one channel for each kind of object (Young, Tian 2019).

    Args:
        game: one of `GAMES`.
        use_minimal_action_set: only the actions that do something in this game.
        sticky_action_prob: probability that the action before is repeated.
        difficulty_ramping: the game gets faster.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium's interface)

    def __init__(
        self,
        game: str,
        *,
        use_minimal_action_set: bool = True,
        sticky_action_prob: float = 0.1,
        difficulty_ramping: bool = True,
    ) -> None:
        self.game: Any = _load_game_class()(game, sticky_action_prob, difficulty_ramping)
        self._action_set = self.game.minimal_action_set() if use_minimal_action_set else range(self.game.num_actions())
        self.action_space = spaces.Discrete(len(self._action_set))
        self.observation_space = spaces.Box(0, 1, tuple(self.game.state_shape()), np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.game.seed(seed)
            self.game.last_action = 0
        self.game.reset()
        return self.game.state(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward, terminated = self.game.act(self._action_set[action])
        return self.game.state(), float(reward), bool(terminated), False, {}

    def get_state(self) -> dict[str, Any] | None:
        """The game's variables and its random generator; None for a game that holds something unknown."""
        names = {name: value for name, value in vars(self.game.env).items() if name != "random"}
        if not all(_is_plain(value) for value in names.values()):
            return None
        rng = self.game.random.get_state(legacy=False)
        shared = self.game.env.random is self.game.random
        if not shared:  # never seeded: two generators
            return None
        return {
            "game": {name: _copy(value) for name, value in names.items()},
            "rng": rng,
            "last": self.game.last_action,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        for name, value in state["game"].items():
            setattr(self.game.env, name, _copy(value))
        self.game.random = self.game.env.random = np.random.RandomState()
        self.game.random.set_state(state["rng"])
        self.game.last_action = state["last"]


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic)


def _copy(value: Any) -> Any:
    if isinstance(value, list):
        return [_copy(item) for item in value]
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    return value.copy() if isinstance(value, np.ndarray) else value


def _load_game_class() -> Any:
    """minatar.environment.Environment, without what the module wants for drawing.

    Importing it the plain way takes a second and 50 MB for matplotlib in every evaluator; and where seaborn is missing
    it calls logging.warning, which configures the root logger.
    """
    if "minatar.environment" in sys.modules:
        return sys.modules["minatar.environment"].Environment
    root, handler, disabled = logging.getLogger(), logging.NullHandler(), logging.root.manager.disable
    hidden = [name for name in ("matplotlib", "seaborn") if name not in sys.modules]
    root.addHandler(handler)
    logging.disable(logging.WARNING)
    try:
        sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: importing it raises ImportError
        return importlib.import_module("minatar.environment").Environment
    finally:
        for name in hidden:
            del sys.modules[name]
        logging.disable(disabled)
        root.removeHandler(handler)
