"""`rlcore record`: write down what a checkpoint's policy does, for algorithms that learn from records."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run_directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--timesteps", type=click.IntRange(1), required=True, help="How many timesteps to record.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of records.")
@click.option("--append", is_flag=True, help="Add to the records that are there.")
@click.option("--deterministic", is_flag=True, help="The likeliest actions; else they are drawn as in training.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of environments and actions.")
def record(run_directory: Path, timesteps: int, out: Path, append: bool, deterministic: bool, seed: int) -> None:
    """Record what the policy of the newest checkpoint in RUN_DIRECTORY (runs/NAME) does.

    BC and MARWIL learn from such a folder: name it in spec.config.input.
    """
    from rlcore.driver.play import record_checkpoint

    info = record_checkpoint(
        run_directory, out, timesteps=timesteps, seed=seed, explore=not deterministic, append=append
    )
    reward = "no episode ended" if info.episode_reward_mean is None else f"mean reward {info.episode_reward_mean:.1f}"
    click.echo(f"{out} holds {info.timesteps:,} timesteps, {info.episodes:,} episodes, {reward}")
