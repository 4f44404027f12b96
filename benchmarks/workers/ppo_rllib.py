"""RLlib's PPO with CleanRL's hyper-parameters, sampling and learning in the driver's process."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.figures import steady_rate
from benchmarks.worker import arguments, report


def main() -> None:
    """Measures environment steps a second from `train()` to `train()`."""
    import ray
    import torch
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    asked = arguments()
    torch.set_num_threads(asked["threads"])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    model = DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)
    config: Any = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4, rollout_fragment_length=128)
        .learners(num_learners=0)
        .rl_module(model_config=model)
        .training(
            train_batch_size_per_learner=512,
            minibatch_size=128,
            num_epochs=4,
            lr=2.5e-4,
            gamma=0.99,
            lambda_=0.95,
            clip_param=0.2,
            vf_clip_param=0.2,
            use_kl_loss=False,
            entropy_coeff=0.01,
            vf_loss_coeff=0.5,
            grad_clip=0.5,
            grad_clip_by="global_norm",
        )
    )
    algorithm = config.build_algo()
    points: list[tuple[float, float]] = []
    while not points or points[-1][1] < asked["timesteps"]:
        result = algorithm.train()
        points.append((time.perf_counter(), result["env_runners"]["num_env_steps_sampled_lifetime"]))
    report(steady_rate(points), iterations=len(points))
    ray.shutdown()


if __name__ == "__main__":
    main()
