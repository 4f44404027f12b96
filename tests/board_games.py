"""Games of tests' own: one that keeps to the interface, and some that do not."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from rlcore.env.games import Game, Played

STONES, MOVER = 0, 1


class Nim(Game):
    """One heap; each move takes one to three stones, and who takes the last one wins.

    Args:
        stones: at first.
        again: who takes a single stone moves again, so that seats do not alternate.
    """

    num_actions = 3

    def __init__(self, stones: int = 7, *, again: bool = False) -> None:
        self.stones, self.again = stones, again
        self.observation_space = gym.spaces.Box(0, 1, (stones + 1,), np.float32)

    def initial(self, count: int) -> np.ndarray:
        return np.tile(np.array([self.stones, 0]), (count, 1))

    def mover(self, positions: np.ndarray) -> np.ndarray:
        return positions[:, MOVER].astype(np.int8)

    def observe(self, positions: np.ndarray) -> np.ndarray:
        return np.eye(self.stones + 1, dtype=np.float32)[positions[:, STONES]]

    def legal(self, positions: np.ndarray) -> np.ndarray:
        legal: np.ndarray = np.arange(1, 4) <= positions[:, STONES, None]
        return legal

    def play(self, positions: np.ndarray, actions: np.ndarray) -> Played:
        left = positions[:, STONES] - actions - 1
        keeps = self.again & (actions == 0)
        after = np.stack([left, np.where(keeps, positions[:, MOVER], 1 - positions[:, MOVER])], axis=1)
        return Played(after, left == 0, (left == 0).astype(np.float32))


class InPlaceNim(Nim):
    """Plays in the array that it is given."""

    def play(self, positions: np.ndarray, actions: np.ndarray) -> Played:
        played = super().play(positions, actions)
        positions[:] = played.positions
        return played


class NumberedNim(Nim):
    """Says what is legal in numbers."""

    def legal(self, positions: np.ndarray) -> np.ndarray:
        return super().legal(positions).astype(np.int64)


class RaisingNim(Nim):
    """Cannot observe."""

    def observe(self, positions: np.ndarray) -> np.ndarray:
        raise RuntimeError("the board fell off the table")


class StuckNim(Nim):
    """Allows nothing in a game that is not over."""

    def legal(self, positions: np.ndarray) -> np.ndarray:
        return super().legal(positions) & (positions[:, STONES, None] > 3)


class ImpatientNim(Nim):
    """Pays a point for every move, and not for the game."""

    def play(self, positions: np.ndarray, actions: np.ndarray) -> Played:
        return super().play(positions, actions)._replace(outcome=np.ones(len(positions), np.float32))


class LoneNim(Nim):
    """Says for one position alone whether the game is over."""

    def play(self, positions: np.ndarray, actions: np.ndarray) -> Played:
        played = super().play(positions, actions)
        return played._replace(over=played.over[:1])


class TrapdoorNim(Nim):
    """Breaks when somebody takes three stones at once, which whoever always takes one never sees."""

    def play(self, positions: np.ndarray, actions: np.ndarray) -> Played:
        if (actions == 2).any():
            raise RuntimeError("the board fell off the table")
        return super().play(positions, actions)
