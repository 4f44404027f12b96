"""Sample Factory's PPO (it calls it APPO), in its synchronous mode with one rollout worker process."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.figures import steady_rate
from benchmarks.worker import arguments, report

SETTINGS = """
--algo=APPO --env=cartpole --device=cpu --seed=1 --experiment=benchmark --train_dir=sample-factory
--restart_behavior=overwrite --set_workers_cpu_affinity=False
--serial_mode=False --async_rl=False --num_workers=1 --num_envs_per_worker=4 --worker_num_splits=1
--rollout=128 --recurrence=1 --batch_size=128 --num_batches_per_epoch=4 --num_epochs=4
--learning_rate=0.00025 --adam_eps=1e-5 --gamma=0.99 --gae_lambda=0.95 --ppo_clip_ratio=0.2 --ppo_clip_value=0.2
--exploration_loss_coeff=0.01 --value_loss_coeff=0.5 --max_grad_norm=0.5 --kl_loss_coeff=0.0 --with_vtrace=False
--use_rnn=False --nonlinearity=tanh --encoder_mlp_layers 64 64 --actor_critic_share_weights=False
--normalize_input=False --normalize_returns=False
"""


def make_cartpole(full_env_name: str, cfg: Any = None, env_config: Any = None, render_mode: str | None = None) -> Any:
    """One environment, as Sample Factory asks for it."""
    import gymnasium

    return gymnasium.make("CartPole-v1")


def main() -> None:
    """Measures environment steps a second between training steps."""
    from sample_factory.algo.runners.runner import AlgoObserver
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import make_runner

    points: list[tuple[float, float]] = []

    class Clock(AlgoObserver):
        def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
            points.append((time.perf_counter(), sum(runner.env_steps.values())))

    register_env("cartpole", make_cartpole)
    settings = [*SETTINGS.split(), f"--train_for_env_steps={arguments()['timesteps']}"]
    parser, _ = parse_sf_args(settings)
    _, runner = make_runner(parse_full_cfg(parser, settings))
    runner.register_observer(Clock())
    runner.init()
    runner.run()
    report(steady_rate(points), iterations=len(points))


if __name__ == "__main__":
    main()
