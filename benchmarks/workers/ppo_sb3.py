"""Stable-Baselines3's PPO."""

from __future__ import annotations

import time

from benchmarks.figures import steady_rate
from benchmarks.worker import arguments, report
from benchmarks.workers.settings import SETTINGS


def main() -> None:
    """Measures timesteps a second from rollout to rollout."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    asked = arguments()
    chosen = SETTINGS[asked["settings"]]
    torch.set_num_threads(asked["threads"])
    points: list[tuple[float, float]] = []

    class Clock(BaseCallback):
        def _on_rollout_start(self) -> None:
            points.append((time.perf_counter(), self.num_timesteps))

        def _on_step(self) -> bool:
            return True

    agent = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", chosen.environments),
        n_steps=chosen.steps,
        batch_size=chosen.minibatch,
        n_epochs=chosen.epochs,
        learning_rate=lambda remaining: chosen.learning_rate * (remaining if chosen.annealed else 1.0),
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        clip_range_vf=chosen.value_clip,
        ent_coef=chosen.entropy,
        vf_coef=0.5,
        max_grad_norm=0.5,
        device="cpu",
        seed=1,
    )
    agent.learn(asked["timesteps"], callback=Clock())
    report(steady_rate(points), iterations=len(points))


if __name__ == "__main__":
    main()
