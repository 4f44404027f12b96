"""`rlcore eval`: let a checkpoint's policy act without exploring, and report its reward."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("eval")
@click.argument("run_directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--episodes", type=click.IntRange(1), default=20, show_default=True, help="How many episodes to play.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the environments.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True)
def evaluate(run_directory: Path, episodes: int, seed: int, output: str) -> None:
    """Play episodes with the deterministic policy of the newest checkpoint in RUN_DIRECTORY (runs/NAME)."""
    from rlcore.driver.play import play_checkpoint
    from rlcore.metrics.result import rates_text

    result = play_checkpoint(run_directory, episodes=episodes, seed=seed)
    if output == "json":
        click.echo(json.dumps(result.to_dict()))
        return
    values = result.to_dict()
    click.echo(
        f"{values['episodes']} episodes at {values['timesteps']:,} timesteps of training: mean reward "
        f"{values['episode_reward_mean']:.1f} (min {values['episode_reward_min']:.1f}, "
        f"max {values['episode_reward_max']:.1f}), mean length {values['episode_length_mean']:.0f} timesteps"
    )
    if rates := rates_text(values):
        click.echo(f"against a random player: {rates}")
