"""Hyper-parameters of the PPO benchmarks, in the terms that every library has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """One set of hyper-parameters; `annealed` lowers the learning rate to 0 over the run."""

    environments: int
    steps: int
    minibatch: int
    epochs: int
    learning_rate: float
    annealed: bool
    value_clip: float | None
    entropy: float


SETTINGS = {
    "cleanrl": Settings(4, 128, 128, 4, 2.5e-4, annealed=True, value_clip=0.2, entropy=0.01),
    "sb3": Settings(1, 2048, 64, 10, 3e-4, annealed=False, value_clip=None, entropy=0.0),
}
