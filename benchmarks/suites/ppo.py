"""PPO end to end, against the libraries that people train CartPole with."""

from __future__ import annotations

from benchmarks.model import Benchmark, Kind, Row, Target


def _row(
    key: str,
    label: str,
    kind: Kind,
    worker: str,
    timesteps: int,
    *,
    peer: str | None = None,
    evaluators: int = 0,
    settings: str = "cleanrl",
    against: str = "ours",
) -> Row:
    arguments = {"timesteps": timesteps, "evaluators": evaluators, "settings": settings}
    return Row(key, label, kind, worker, arguments, {"timesteps": 8192}, peer, cores=2, against=against)


def _limit(key: str, environments: int, *, against: str) -> Row:
    arguments = {"id": "CartPole-v1", "envs": environments, "seconds": 3}
    label = f"vector environment alone, {environments} environment{'s' if environments > 1 else ''}, random actions"
    return Row(key, label, "limit", "step_env", arguments, {"seconds": 1}, cores=2, against=against)


PPO_CARTPOLE = Benchmark(
    name="ppo-cartpole",
    title="PPO on CartPole-v1, end to end",
    unit="timesteps/s",
    conditions="CleanRL's hyper-parameters for all: 4 environments x 128 steps, 4 minibatches of 128, 4 epochs, "
    "learning rate 2.5e-4 annealed to 0 (RLlib, Sample Factory: constant), gamma 0.99, lambda 0.95, clip 0.2 also for "
    "values, entropy 0.01, value loss 0.5, gradient norm 0.5, separate 64x64 tanh networks. Both cores, one thread a "
    "process. Imports, start-up and the first tenth of the iterations are left out for all; checkpoints, metrics and "
    "logs are as each library writes them by default. rlcore in the driver's process is a manifest with "
    "`minReplicas: 0`, run without Ray; with 2 Ray evaluators each has 2 environments. CleanRL's file runs unmodified "
    "on the old gym it was written for. Sample Factory runs its synchronous mode with one rollout worker process and "
    "clips ratios to [1/1.2, 1.2]. The rows named so compare at Stable-Baselines3's own defaults instead: 1 "
    "environment x 2048 steps, minibatches of 64, 10 epochs, learning rate 3e-4, no value clipping, no entropy bonus. "
    "The limits neither act nor learn.",
    rows=(
        _row("ours", "in the driver's process", "ours", "ppo_rlcore", 100_000),
        _row("ours-ray", "2 Ray evaluators", "ours", "ppo_rlcore", 100_000, evaluators=2),
        _row("cleanrl", "CleanRL 1.2.0 ppo.py", "peer", "ppo_cleanrl", 51_200, peer="cleanrl"),
        _row("sf", "Sample Factory 2.1.1", "peer", "ppo_sample_factory", 25_600, peer="sample-factory"),
        _row("sb3", "Stable-Baselines3 2.9.2", "peer", "ppo_sb3", 25_600, peer="stable-baselines3"),
        _row("rllib", "RLlib 2.60.0", "peer", "ppo_rllib", 25_600, peer="rllib"),
        _row("ours-sb3", "SB3's defaults, in the driver's process", "ours", "ppo_rlcore", 100_000, settings="sb3"),
        _row(
            "sb3-defaults",
            "SB3's defaults, Stable-Baselines3 2.9.2",
            "peer",
            "ppo_sb3",
            24_576,
            peer="stable-baselines3",
            settings="sb3",
            against="ours-sb3",
        ),
        _limit("env", 4, against="ours"),
        _limit("env-sb3", 1, against="ours-sb3"),
    ),
    targets=(
        Target("ours", 2, of="cleanrl"),
        Target("ours", 2, of="sf"),
        Target("ours", 5, of="sb3"),
        Target("ours", 6, of="rllib"),
        Target("ours-sb3", 5, of="sb3-defaults"),
    ),
)
