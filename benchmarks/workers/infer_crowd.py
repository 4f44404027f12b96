"""Sixteen slots that act with parameters of their own: batched, mapped, or one after the other."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import numpy as np
import torch

from benchmarks.worker import arguments, rate, report
from rlcore.api import ModelSpec
from rlcore.api.algorithms.evolution import ESConfig
from rlcore.policy.crowd import InTurnCrowd
from rlcore.policy.evolution import ESPolicyGraph

SLOTS = 16
SPACES = {
    "mlp": gym.spaces.Box(-1, 1, (8,), np.float32),
    "cnn": gym.spaces.Box(0, 1, (4, 10, 10), np.float32),
}


def main() -> None:
    """Measures actions a second."""
    asked = arguments()
    torch.set_num_threads(1)
    policy = ESPolicyGraph(SPACES[asked["network"]], gym.spaces.Discrete(4), ESConfig(), ModelSpec(), seed=0)
    rng = np.random.default_rng(1)
    observations = rng.normal(size=(SLOTS, *policy.observation_space.shape)).astype(np.float32)
    parameters = policy.flat.vector.numel()
    vectors = rng.normal(0, 0.1, (SLOTS, parameters)).astype(np.float32)
    act = _acting(asked["what"], policy, vectors)
    figure, details = rate(lambda: sum(len(act(observations)) for _ in range(16)), asked["seconds"])
    report(figure, **details, parameters=parameters)


def _acting(what: str, policy: ESPolicyGraph, vectors: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    if what == "mapped":
        return _mapped(policy, vectors)
    if what == "shared":
        module = torch.inference_mode()(policy.model.forward)
        return lambda observations: module(torch.from_numpy(observations)).numpy()
    crowd = policy.spread(SLOTS) if what == "ours" else InTurnCrowd(SLOTS, policy.model, policy.flat)
    for slot, vector in enumerate(vectors):
        crowd.place(slot, vector)
    return crowd


def _mapped(policy: ESPolicyGraph, vectors: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    together = torch.from_numpy(vectors)
    parameters = {
        name: together[:, offset : offset + shape.numel()].view(SLOTS, *shape)
        for name, (offset, shape) in policy.flat.offsets.items()
    }
    mapped = torch.func.vmap(lambda own, x: torch.func.functional_call(policy.model, own, x[None])[0])
    return torch.inference_mode()(lambda observations: mapped(parameters, torch.from_numpy(observations)).numpy())


if __name__ == "__main__":
    main()
