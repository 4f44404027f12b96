"""Rules of a two-player game as pure functions over many positions at once: what a search looks ahead with.

A position is a row of an array, so that cloning one is copying a row, a step gives a new row, and there is nothing to
undo. One call works on the positions of all games in parallel:

    positions = game.initial(64)                                  # [64, ...]
    while True:
        actions = choose(game.observe(positions), game.legal(positions))
        positions, over, outcome = game.play(positions, actions)  # outcome: of the player who has just acted

A user's own game is a subclass of `Game`; a manifest names it as `module:Class`, or `module:function` that returns one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from rlcore.env.base import describe_error
from rlcore.errors import EnvironmentFailure

FIRST, SECOND = 0, 1
"""The seats, as `Game.mover` tells them."""


class Played(NamedTuple):
    """What N actions lead to."""

    positions: np.ndarray  # [N, ...] new rows; those that were played from stay as they are
    over: np.ndarray  # bool [N]: the game has ended
    outcome: np.ndarray  # float32 [N], in -1..1, for the player who acted: 1 won, -1 lost, 0 a draw, or not over yet


class Symmetry(NamedTuple):
    """A reflection or rotation that changes nothing but names: which entry each one is taken from.

    `observation.reshape(-1)[symmetry.observation]` is the observation of the mirrored position, and
    `policy[symmetry.action]` are its actions' probabilities.
    """

    observation: np.ndarray  # int64 [number of entries of an observation]
    action: np.ndarray  # int64 [A]


class Game(ABC):
    """Two players, no chance, nothing hidden, and what one wins the other loses.

    Attributes:
        num_actions: A; actions are 0 .. A-1.
        observation_space: Box of one observation: float32 [D], or uint8 or float32 planes [C, H, W].
        symmetries: without the identity; training may use each game's mirror images too.
    """

    num_actions: int
    observation_space: gymnasium.spaces.Box
    symmetries: tuple[Symmetry, ...] = ()

    @abstractmethod
    def initial(self, count: int) -> np.ndarray:
        """`count` first positions, [count, ...], of any dtype but objects."""

    @abstractmethod
    def mover(self, positions: np.ndarray) -> np.ndarray:
        """Who is to move, int8 [N]: FIRST or SECOND. Seats need not alternate."""

    @abstractmethod
    def observe(self, positions: np.ndarray) -> np.ndarray:
        """Observations [N, *obs], as the player to move sees the position."""

    @abstractmethod
    def legal(self, positions: np.ndarray) -> np.ndarray:
        """bool [N, A]: the actions that may be taken; at least one while the game is not over."""

    @abstractmethod
    def play(self, positions: np.ndarray, actions: np.ndarray) -> Played:
        """Takes actions int64 [N], which are legal, in positions that are not over."""

    def text(self, position: np.ndarray) -> str:
        """One position [...] for a person, in a terminal."""
        return str(position)


def require_legal(game: Game, positions: np.ndarray, actions: np.ndarray) -> None:
    """Raises ValueError, with the position, for an action that is not legal."""
    actions = np.asarray(actions)
    inside = (actions >= 0) & (actions < game.num_actions)
    rows = np.arange(len(actions))
    allowed = inside & game.legal(positions)[rows, np.where(inside, actions, 0)]
    if not allowed.all():
        wrong = int(np.flatnonzero(~allowed)[0])
        legal = np.flatnonzero(game.legal(positions)[wrong]).tolist()
        raise ValueError(f"action {actions[wrong]} is not legal; legal: {legal} in\n{game.text(positions[wrong])}")


def require_sound(game: Any, env_id: str) -> Game:
    """Plays two games to their end and looks at all that the rules return.

    Raises:
        EnvironmentFailure: rules that raise, or that give arrays of another shape or type than `Game` promises.
    """
    where = f"environment {env_id!r}"
    if not isinstance(game, Game):
        raise not_a_game(env_id, f"a {type(game).__name__}")
    try:
        problem = _unsound(game)
    except Exception as error:
        problem = f"raised {describe_error(error)}"
    if problem is not None:
        hint = "rlcore.env.games.Game says what each method takes and returns"
        raise EnvironmentFailure(f"{where}: {problem}", hint=hint, permanent=True)
    return game


def not_a_game(env_id: str, what: str) -> EnvironmentFailure:
    """What to tell whoever names another kind of environment for an algorithm that searches."""
    return EnvironmentFailure(
        f"environment {env_id!r} is {what}, not a game: a search needs rules that it can look ahead with",
        hint="name rlcore/TicTacToe-v0, rlcore/ConnectFour-v0, or module:factory of a rlcore.env.games.Game",
        permanent=True,
    )


# Moves after which a game that is played at random is trusted without its end.
_MOVES_LOOKED_AT = 200


def _unsound(game: Game) -> str | None:
    """What is wrong with a game, None if nothing is."""
    space, count = game.observation_space, 2
    rng = np.random.default_rng(0)
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) not in (1, 3):
        return f"observation_space is {space}; it must be a Box of one dimension, or of three: planes, height, width"
    positions = game.initial(count)
    for _ in range(_MOVES_LOOKED_AT):
        legal = game.legal(positions)
        shapes = {
            "observe": (game.observe(positions), (count, *space.shape), space.dtype),
            "legal": (legal, (count, game.num_actions), np.dtype(np.bool_)),
            "mover": (game.mover(positions), (count,), None),
        }
        for name, (array, shape, dtype) in shapes.items():
            if array.shape != shape or (dtype is not None and array.dtype != dtype):
                expected = f"{'' if dtype is None else dtype}{list(shape)}"
                return f"{name} gave {array.dtype}{list(array.shape)} for {count} positions, not {expected}"
        if not legal.any(axis=1).all():
            return f"a position that is not over allows no action:\n{game.text(positions[~legal.any(axis=1)][0])}"
        actions = np.where(legal, rng.random(legal.shape), -1.0).argmax(axis=1)
        before = positions.copy()
        played = game.play(positions, actions)
        if not np.array_equal(before, positions):
            return "play changed the positions that it was given; it must return new ones"
        problem = _unsound_move(positions, played)
        if problem is not None:
            return problem
        positions = played.positions[~played.over]
        count = len(positions)
        if not count:
            return None
    return None


def _unsound_move(positions: np.ndarray, played: Played) -> str | None:
    """What is wrong with what `play` gave, None if nothing is."""
    now = played.positions
    if now.shape != positions.shape or now.dtype != positions.dtype:
        return f"play gave positions {now.dtype}{list(now.shape)} for {positions.dtype}{list(positions.shape)}"
    count = len(positions)
    for name, array in (("over", played.over), ("outcome", played.outcome)):
        if array.shape != (count,):
            return f"play gave {name} of shape {list(array.shape)} for {count} positions, not [{count}]"
    if played.over.dtype != np.bool_:
        return f"play gave over as {played.over.dtype}; it must be bool"
    if not np.isfinite(played.outcome).all() or np.abs(played.outcome).max() > 1:
        return f"play gave the outcome {played.outcome.tolist()}; it must be in -1..1"
    if played.outcome[~played.over].any():
        return (
            f"play gave the outcome {played.outcome.tolist()} where over is {played.over.tolist()}; until then it is 0"
        )
    return None
