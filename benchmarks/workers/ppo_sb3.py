"""Stable-Baselines3's PPO with CleanRL's hyper-parameters."""

from __future__ import annotations

import time

from benchmarks.figures import steady_rate
from benchmarks.worker import arguments, report


def main() -> None:
    """Measures timesteps a second from rollout to rollout."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    asked = arguments()
    torch.set_num_threads(asked["threads"])
    points: list[tuple[float, float]] = []

    class Clock(BaseCallback):
        def _on_rollout_start(self) -> None:
            points.append((time.perf_counter(), self.num_timesteps))

        def _on_step(self) -> bool:
            return True

    agent = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", 4),
        n_steps=128,
        batch_size=128,
        n_epochs=4,
        learning_rate=lambda remaining: 2.5e-4 * remaining,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        clip_range_vf=0.2,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=0.5,
        device="cpu",
        seed=1,
    )
    agent.learn(asked["timesteps"], callback=Clock())
    report(steady_rate(points), iterations=len(points))


if __name__ == "__main__":
    main()
