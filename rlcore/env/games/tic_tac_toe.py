"""Tic-tac-toe on bit boards: nine fields in three numbers."""

from __future__ import annotations

import itertools

import gymnasium
import numpy as np

from rlcore.env.games.game import Game, Played, Symmetry

OWN, OTHER, PLIES = 0, 1, 2
"""Columns of a position, uint16 [N, 3]: the stones of the player to move, the opponent's, and moves made."""

_FIELDS = np.arange(9, dtype=np.uint16)
_ROWS = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]
_LINES = np.array([sum(1 << field for field in row) for row in _ROWS], np.uint16)
_FULL = (1 << 9) - 1


class TicTacToe(Game):
    """Three in a row on 3x3 fields; action i is field i, row by row. Observations are two planes: own, other."""

    num_actions = 9
    observation_space = gymnasium.spaces.Box(0, 1, (2, 3, 3), np.uint8)

    def __init__(self) -> None:
        self.symmetries = _symmetries()

    def initial(self, count: int) -> np.ndarray:
        return np.zeros((count, 3), np.uint16)

    def mover(self, positions: np.ndarray) -> np.ndarray:
        return (positions[:, PLIES] & 1).astype(np.int8)

    def observe(self, positions: np.ndarray) -> np.ndarray:
        bits = (positions[:, :PLIES, None] >> _FIELDS) & 1
        return bits.astype(np.uint8).reshape(len(positions), 2, 3, 3)

    def legal(self, positions: np.ndarray) -> np.ndarray:
        taken = positions[:, OWN] | positions[:, OTHER]
        legal: np.ndarray = (taken[:, None] >> _FIELDS) & 1 == 0
        return legal

    def play(self, positions: np.ndarray, actions: np.ndarray) -> Played:
        own = positions[:, OWN] | np.left_shift(np.uint16(1), actions.astype(np.uint16))
        won = ((own[:, None] & _LINES) == _LINES).any(axis=1)
        after = np.stack([positions[:, OTHER], own, positions[:, PLIES] + np.uint16(1)], axis=1)
        full = (own | positions[:, OTHER]) == _FULL
        return Played(after, won | full, won.astype(np.float32))

    def text(self, position: np.ndarray) -> str:
        own, other, plies = position.tolist()
        crosses, noughts = (own, other) if plies % 2 == 0 else (other, own)
        fields = ["X" if crosses >> i & 1 else "O" if noughts >> i & 1 else str(i) for i in range(9)]
        return "\n".join(" ".join(fields[row : row + 3]) for row in (0, 3, 6))


def _symmetries() -> tuple[Symmetry, ...]:
    """The seven turned and mirrored boards."""
    fields = np.arange(9).reshape(3, 3)
    boards = [np.rot90(mirrored, turns) for mirrored, turns in itertools.product((fields, fields.T), range(4))]
    found = []
    for board in boards[1:]:
        action = board.reshape(-1).astype(np.int64)
        found.append(Symmetry(np.concatenate([action, action + 9]), action))
    return tuple(found)
