"""Sampling: environments stepped by a policy, against the environments and the network alone."""

from __future__ import annotations

from typing import Any

from benchmarks.model import Benchmark, Kind, OneAfterTheOther, Row, Target

TIMESTEPS_PER_S = "timesteps/s"


def _row(key: str, label: str, kind: Kind, worker: str, *, peer: str | None = None, against: str = "ours",
         **arguments: Any) -> Row:  # fmt: skip
    return Row(key, label, kind, worker, {"seconds": 5, **arguments}, {"seconds": 1}, peer, against=against)


_CARTPOLE = {"id": "CartPole-v1"}
SAMPLING_CARTPOLE = Benchmark(
    name="sampling-cartpole",
    title="Sampling CartPole-v1 with a policy",
    unit=TIMESTEPS_PER_S,
    conditions="64 environments, a 64x64 tanh network, fragments of 128 steps, one core and one thread each. rlcore is "
    "`PolicyEvaluator.sample()` of a plain object: actions, log-probabilities, values, advantages, episode returns. "
    "The torch loop samples actions with log-probabilities and values into preallocated tensors, without advantages, "
    "on the same Gymnasium vector environment. A timestep is one step of one environment.",
    rows=(
        _row("ours", "PolicyEvaluator", "ours", "sample_rlcore", environment=_CARTPOLE, envs=64),
        _row("torch", "plain eager torch loop", "peer", "sample_torch_loop", id="CartPole-v1", envs=64),
        _row("rllib", "RLlib 2.60.0 SingleAgentEnvRunner", "peer", "sample_rllib", peer="rllib", envs=64),
        _row("env", "vector environment alone, random actions", "limit", "step_env", id="CartPole-v1", envs=64),
        _row("numpy", "network alone, numpy", "limit", "infer_numpy", envs=64, inputs=4, outputs=2),
    ),
    computed=(OneAfterTheOther("both", "environment and numpy network, one after the other", ("env", "numpy")),),
    targets=(Target("ours", 100_000),),
)

_PENDULUM = {"id": "Pendulum-v1"}
SAMPLING_PENDULUM = Benchmark(
    name="sampling-pendulum",
    title="Sampling Pendulum-v1 with a policy",
    unit=TIMESTEPS_PER_S,
    conditions="64 environments, a 64x64 tanh network with continuous actions, fragments of 128 steps, one core and "
    "one thread each. The limits step with random actions drawn beforehand and use no network.",
    rows=(
        _row(
            "ours-sync",
            "PolicyEvaluator, vectorization: sync",
            "ours",
            "sample_rlcore",
            environment={**_PENDULUM, "vectorization": "sync"},
            envs=64,
        ),
        _row(
            "sync",
            "gymnasium SyncVectorEnv alone",
            "limit",
            "step_env",
            against="ours-sync",
            id="Pendulum-v1",
            envs=64,
            vectorization="sync",
        ),
        _row(
            "ours-envpool",
            "PolicyEvaluator, vectorization: envpool",
            "ours",
            "sample_rlcore",
            environment={**_PENDULUM, "vectorization": "envpool"},
            envs=64,
        ),
        _row(
            "envpool",
            "envpool alone",
            "limit",
            "step_env",
            against="ours-envpool",
            id="Pendulum-v1",
            envs=64,
            vectorization="envpool",
        ),
    ),
    targets=(Target("ours-sync", 0.75, of="sync"), Target("ours-envpool", 60_000)),
)

_PONG = {"id": "ALE/Pong-v5", "wrappers": "atari"}
SAMPLING_PONG = Benchmark(
    name="sampling-pong",
    title="Sampling Pong with a convolutional policy",
    unit=TIMESTEPS_PER_S,
    conditions="16 environments, four 84x84 frames, frame skip 4 (one timestep is four frames), DQN's convolutions and "
    "512 hidden units, fragments of 32 steps, one core and one thread each. The environment is ale-py's C++ vector "
    "environment with the same preprocessing; the network alone is the same architecture in plain eager torch, in "
    "inference mode, from 8-bit frames to logits and value.",
    rows=(
        _row("ours", "PolicyEvaluator", "ours", "sample_rlcore", environment=_PONG, envs=16, fragment=32),
        _row(
            "env",
            "vector environment alone, random actions",
            "limit",
            "step_env",
            id="pong",
            envs=16,
            vectorization="atari",
        ),
        _row("network", "network alone, torch", "limit", "infer_convolutions", envs=16, outputs=6),
    ),
    computed=(OneAfterTheOther("both", "environment and network, one after the other", ("env", "network")),),
    targets=(Target("ours", 0.85, of="both"),),
)
