"""Connect four on bit boards.

A column is `rows` bits and an empty one above them, which keeps lines from wrapping around and tells when it is full:
field (row, column), counted from the bottom left, is bit `column * (rows + 1) + row`. On such a board all lines in one
direction are found by shifting it over itself (Tromp, "The Fhourstones benchmark").
"""

from __future__ import annotations

import gymnasium
import numpy as np

from rlcore.env.games.game import Game, Played, Symmetry
from rlcore.errors import EnvironmentFailure

OWN, OTHER, PLIES = 0, 1, 2
"""Columns of a position, uint64 [N, 3]: the stones of the player to move, the opponent's, and moves made."""

LENGTH = 4


class ConnectFour(Game):
    """Four in a line; action i drops a stone into column i. Observations are two planes: own, other, top row first.

    Args:
        rows: height of the board.
        columns: its width.

    Raises:
        EnvironmentFailure: a board on which no line fits, or of more than 64 bits.
    """

    def __init__(self, rows: int = 6, columns: int = 7) -> None:
        height = rows + 1
        if min(rows, columns) < 1 or max(rows, columns) < LENGTH or height * columns > 64:
            raise EnvironmentFailure(
                f"environment.kwargs: no connect four is played on {rows} rows and {columns} columns",
                hint="one of them must be 4 or more, and (rows + 1) * columns at most 64",
                permanent=True,
            )
        self.rows, self.num_actions = rows, columns
        self.observation_space = gymnasium.spaces.Box(0, 1, (2, rows, columns), np.uint8)
        self._bottom = np.array([1 << (column * height) for column in range(columns)], np.uint64)
        self._column = self._bottom * np.uint64((1 << rows) - 1)
        self._top = self._bottom << np.uint64(rows - 1)
        self._full = np.bitwise_or.reduce(self._column)
        self._shifts = [np.uint64(shift) for shift in (1, height, height - 1, height + 1)]
        # Top row first, as people and images have it.
        bits = [column * height + row for row in reversed(range(rows)) for column in range(columns)]
        self._bits = np.array(bits, np.uint64)
        mirrored = np.arange(2 * rows * columns).reshape(2, rows, columns)[:, :, ::-1].reshape(-1)
        self.symmetries = (Symmetry(mirrored, np.arange(columns)[::-1].copy()),)

    def initial(self, count: int) -> np.ndarray:
        return np.zeros((count, 3), np.uint64)

    def mover(self, positions: np.ndarray) -> np.ndarray:
        return (positions[:, PLIES] & np.uint64(1)).astype(np.int8)

    def observe(self, positions: np.ndarray) -> np.ndarray:
        bits = (positions[:, :PLIES, None] >> self._bits) & np.uint64(1)
        return bits.astype(np.uint8).reshape(len(positions), 2, self.rows, self.num_actions)

    def legal(self, positions: np.ndarray) -> np.ndarray:
        taken = positions[:, OWN] | positions[:, OTHER]
        legal: np.ndarray = taken[:, None] & self._top == 0
        return legal

    def play(self, positions: np.ndarray, actions: np.ndarray) -> Played:
        taken = positions[:, OWN] | positions[:, OTHER]
        # Adding the column's lowest bit carries past all of its stones.
        own = positions[:, OWN] | ((taken + self._bottom[actions]) & self._column[actions])
        won = self._has_line(own)
        full = (own | positions[:, OTHER]) == self._full
        after = np.stack([positions[:, OTHER], own, positions[:, PLIES] + np.uint64(1)], axis=1)
        return Played(after, won | full, won.astype(np.float32))

    def text(self, position: np.ndarray) -> str:
        own, other, plies = position.tolist()
        crosses, noughts = (own, other) if plies % 2 == 0 else (other, own)
        signs = ["X" if crosses >> bit & 1 else "O" if noughts >> bit & 1 else "." for bit in self._bits.tolist()]
        width = self.num_actions
        lines = [" ".join(signs[begin : begin + width]) for begin in range(0, len(signs), width)]
        return "\n".join([*lines, " ".join(str(column) for column in range(width))])

    def _has_line(self, stones: np.ndarray) -> np.ndarray:
        found = np.zeros(len(stones), np.bool_)
        for shift in self._shifts:
            pairs = stones & (stones >> shift)
            found |= (pairs & (pairs >> (np.uint64(2) * shift))) != 0
        return found
