"""The loop that most people write first: eager torch, one vector environment, storage allocated once."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributions import Categorical

from benchmarks.worker import arguments, rate, report
from benchmarks.workers.vector_envs import vector_env

STEPS = 128


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    """64x64, tanh."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def main() -> None:
    """Measures transitions a second; autoreset steps are not counted."""
    asked = arguments()
    torch.set_num_threads(asked["threads"])
    count = asked["envs"]
    env = vector_env(asked["id"], count, "native")
    inputs = env.single_observation_space.shape[0]
    policy, value = mlp(inputs, int(env.single_action_space.n)), mlp(inputs, 1)
    observations = torch.zeros(STEPS, count, inputs)
    actions = torch.zeros(STEPS, count, dtype=torch.int64)
    logps, values, rewards, dones = (torch.zeros(STEPS, count) for _ in range(4))
    current = torch.as_tensor(env.reset(seed=1)[0])
    done = torch.zeros(count, dtype=torch.bool)

    def fragment() -> int:
        nonlocal current, done
        transitions = 0
        for t in range(STEPS):
            transitions += count - int(done.sum())
            distribution = Categorical(logits=policy(current))
            action = distribution.sample()
            observations[t], actions[t], dones[t] = current, action, done
            logps[t], values[t] = distribution.log_prob(action), value(current).squeeze(-1)
            observation, reward, terminated, truncated, _ = env.step(action.numpy())
            rewards[t] = torch.as_tensor(reward)
            current, done = torch.as_tensor(observation), torch.as_tensor(terminated | truncated)
        return transitions

    with torch.inference_mode():
        figure, details = rate(fragment, asked["seconds"])
    report(figure, **details)


if __name__ == "__main__":
    main()
