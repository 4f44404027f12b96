"""A vector environment alone, stepped with random actions that were drawn beforehand."""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks.worker import arguments, rate, report
from benchmarks.workers.vector_envs import vector_env

ACTIONS = 64


def main() -> None:
    """Measures transitions a second; autoreset steps are not counted."""
    asked = arguments()
    count = asked["envs"]
    env = vector_env(asked["id"], count, asked.get("vectorization", "native"))
    space = getattr(env, "single_action_space", env.action_space)
    space.seed(1)
    actions = itertools.cycle([np.stack([space.sample() for _ in range(count)]) for _ in range(ACTIONS)])
    env.reset()
    done = np.zeros(count, bool)

    def steps() -> int:
        nonlocal done
        transitions = 0
        for _ in range(16):
            transitions += count - int(np.count_nonzero(done))
            _, _, terminated, truncated, _ = env.step(next(actions))
            done = terminated | truncated
        return transitions

    figure, details = rate(steps, asked["seconds"])
    report(figure, **details)


if __name__ == "__main__":
    main()
