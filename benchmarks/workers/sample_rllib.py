"""RLlib's environment runner as a plain object, with its own network and connectors."""

from __future__ import annotations

from typing import Any

from benchmarks.worker import arguments, rate, report


def main() -> None:
    """Measures environment steps a second."""
    import torch
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    asked = arguments()
    torch.set_num_threads(asked["threads"])
    model = DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)
    config: Any = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=asked["envs"], rollout_fragment_length=128)
        .training(train_batch_size_per_learner=asked["envs"] * 128)
        .rl_module(model_config=model)
    )
    runner = SingleAgentEnvRunner(config=config)
    steps = asked["envs"] * 16
    figure, details = rate(lambda: sum(len(e) for e in runner.sample(num_timesteps=steps)), asked["seconds"])
    report(figure, **details)


if __name__ == "__main__":
    main()
