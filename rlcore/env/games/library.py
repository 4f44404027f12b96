"""The games that come with the package, under Gymnasium ids, and how any game is found by its id."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from rlcore.env.games.single_env import GameEnv

GAMES = {
    "rlcore/TicTacToe-v0": "rlcore.env.games.tic_tac_toe:TicTacToe",
    "rlcore/ConnectFour-v0": "rlcore.env.games.connect_four:ConnectFour",
}
"""Gymnasium id -> module:Class of the rules; environment.kwargs are the class's."""


def register_games() -> None:
    """Registers all games with Gymnasium, leaving ids alone that are registered already."""
    for env_id, rules in GAMES.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, "rlcore.env.games.library:make_game_env", kwargs={"rules": rules})


def make_game_env(rules: str, render_mode: str | None = None, **kwargs: Any) -> GameEnv:
    """What `gymnasium.make("rlcore/TicTacToe-v0")` gives: one seat against a random player."""
    from rlcore.env.games.single_env import GameEnv

    return GameEnv(make_rules(rules, kwargs), render_mode)


def make_rules(rules: str, kwargs: dict[str, Any]) -> Any:
    """An instance of "module:Class"."""
    module, _, name = rules.partition(":")
    return getattr(importlib.import_module(module), name)(**kwargs)
