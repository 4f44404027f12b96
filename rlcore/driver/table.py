"""A game at the table: a person, or a random player, against the policy of a checkpoint, move by move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rlcore.driver.play import open_player
from rlcore.env.games import FIRST, GameVectorEnv
from rlcore.errors import UnsupportedError
from rlcore.policy.alpha_zero import AlphaZeroPolicyGraph, most_visited
from rlcore.policy.tree_search import Found

Choose = Callable[[GameVectorEnv], int]
"""The other player: a game that waits for its move -> one of the legal actions."""


def play_game(path: Path, choose: Choose | None, *, first: bool, seed: int, show: Callable[[str], None]) -> float:
    """One game with the policy of a run's newest checkpoint.

    Args:
        path: run directory.
        choose: the other player; None: a random one.
        first: whether the policy makes the first move.
        seed: of the random player.
        show: told of each position and move.

    Returns:
        The outcome for the policy: 1 won, 0 drawn, -1 lost.

    Raises:
        UserError: no usable checkpoint, or one of an algorithm that plays no games.
    """
    player = open_player(path, seed=seed, environments=1)
    try:
        games = player.evaluator.world.env
        policy = next(iter(player.evaluator.policies.values()))
        if not isinstance(games, GameVectorEnv) or not isinstance(policy, AlphaZeroPolicyGraph):
            raise UnsupportedError(
                f"{path}: {player.job.spec.algorithm} on {player.job.spec.environment.id} is no game to watch",
                hint="rlcore eval plays the episodes of any algorithm",
            )
        # A game of its own: the random player answers nowhere but here.
        table = GameVectorEnv(games.game, 1, seats="both")
        table.reset(seed)
        policy.enter(table)
        rng = np.random.default_rng(seed)
        while not table.done[0]:
            own = (table.game.mover(table.positions)[0] == FIRST) == first
            show(f"\n{table.game.text(table.positions[0])}")
            if own:
                found = policy.look_ahead(table.positions)
                action = int(most_visited(found)[0])
                show(f"policy plays {action}  {_opinion(found)}")
            elif choose is not None:
                action = choose(table)
            else:
                action = int(rng.choice(np.flatnonzero(table.game.legal(table.positions)[0])))
                show(f"random player plays {action}")
            outcome = float(table.step(np.array([action])).rewards[0])
        show(f"\n{table.game.text(table.positions[0])}")
    finally:
        player.evaluator.close()
    return outcome if first else -outcome


def _opinion(found: Found) -> str:
    """What the search thinks of the position, and the moves that it looked at most."""
    most = np.argsort(-found.visits[0], kind="stable")[:3]
    shares = found.visits[0] / found.visits[0].sum()
    moves = ", ".join(f"{action}: {shares[action]:.0%}" for action in most.tolist() if shares[action] > 0)
    return f"(value {found.values[0]:+.2f}; visits {moves})"
