"""DQN's convolutions with a policy and a value head alone, plain eager torch."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.worker import arguments, rate, report


def main() -> None:
    """Measures observations (four 84x84 frames) a second."""
    asked = arguments()
    torch.set_num_threads(asked["threads"])
    body = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
    )  # fmt: skip
    policy, value = nn.Linear(512, asked["outputs"]), nn.Linear(512, 1)
    frames = torch.randint(0, 256, (asked["envs"], 4, 84, 84), dtype=torch.uint8)

    def infer() -> int:
        hidden = body(frames.float() * (1 / 255))
        policy(hidden), value(hidden)
        return len(hidden)

    with torch.inference_mode():
        figure, details = rate(infer, asked["seconds"])
    report(figure, **details)


if __name__ == "__main__":
    main()
