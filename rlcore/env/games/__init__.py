"""Board games with rules that a search can look ahead with; `Game` is the interface for games of one's own."""

from rlcore.env.games.game import FIRST, SECOND, Game, Played, Symmetry
from rlcore.env.games.library import GAMES, register_games
from rlcore.env.games.single_env import GameEnv
from rlcore.env.games.vector_env import GameVectorEnv, Seats

__all__ = [
    "FIRST",
    "GAMES",
    "SECOND",
    "Game",
    "GameEnv",
    "GameVectorEnv",
    "Played",
    "Seats",
    "Symmetry",
    "register_games",
]
