"""When training is over."""

from __future__ import annotations

from rlcore.api import StopSpec

# Before so many episodes ended, a mean reward is luck and stops nothing.
FEWEST_EPISODES = 20


def stop_reason(
    stop: StopSpec, *, timesteps: int, iterations: int, episode_reward_mean: float | None, elapsed_s: float
) -> str | None:
    """Why training is complete, in one clause, or None. The goal is named before the limits.

    Args:
        stop: the manifest's conditions.
        timesteps: trained so far.
        iterations: made so far.
        episode_reward_mean: over the last episodes, None while they are too few to mean anything.
        elapsed_s: seconds spent training, over all restarts.
    """
    if (
        stop.episode_reward is not None
        and episode_reward_mean is not None
        and episode_reward_mean >= stop.episode_reward
    ):
        return f"mean episode reward {episode_reward_mean:.1f} reached the goal of {stop.episode_reward:g}"
    if stop.timesteps is not None and timesteps >= stop.timesteps:
        return f"{timesteps:,} timesteps are done, of {stop.timesteps:,}"
    if stop.iterations is not None and iterations >= stop.iterations:
        return f"{iterations:,} iterations are done, of {stop.iterations:,}"
    if stop.wall_clock_s is not None and elapsed_s >= stop.wall_clock_s:
        return f"{elapsed_s:.0f} s of training are over, of {stop.wall_clock_s:.0f} s"
    return None
