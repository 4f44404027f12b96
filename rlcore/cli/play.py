"""`rlcore play`: sit down at the board with what AlphaZero has learned, or watch it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

if TYPE_CHECKING:
    from rlcore.env.games import GameVectorEnv


@click.command()
@click.argument("run_directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--watch", is_flag=True, help="Watch it play against a random player.")
@click.option("--first", is_flag=True, help="The policy makes the first move; else you, or the random player.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random player.")
def play(run_directory: Path, watch: bool, first: bool, seed: int) -> None:
    """Play a board game against the policy of the newest checkpoint in RUN_DIRECTORY (runs/NAME)."""
    from rlcore.driver.table import play_game

    outcome = play_game(run_directory, None if watch else _ask, first=first, seed=seed, show=click.echo)
    words = {1: "the policy wins", 0: "a draw", -1: "the policy loses"}
    click.echo(words[int(np.sign(outcome))])


def _ask(table: GameVectorEnv) -> int:
    """A legal action that a person types in."""
    legal = np.flatnonzero(table.game.legal(table.positions)[0]).tolist()
    while True:
        action: int = click.prompt("your move", type=int)
        if action in legal:
            return action
        click.echo(f"{action} is not legal; legal: {', '.join(map(str, legal))}")
