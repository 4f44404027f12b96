"""A parameter server in pieces: each shard holds a slice of every policy's parameters and of Adam's moments.

Source: RLlib: Abstractions for Distributed Reinforcement Learning (arXiv 1712.09381), figure 4, and Li et al. 2014
(OSDI), "Scaling distributed machine learning with the parameter server".
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rlcore.evaluation.evaluator_set import lost_errors
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.evaluation.sample_info import SampleInfo
from rlcore.policy.adam import FlatAdam
from rlcore.policy.policy_graph import Stats
from rlcore.sample_batch import MultiAgentBatch

CALL_DEADLINE_S = 60.0

Slices = dict[str, np.ndarray]
"""Policy id -> float32, this shard's part of [P]."""


class ParameterShard:
    """One shard; a plain object, or the same as an actor.

    Args:
        state: as `get_state` gives it; "adam" may be None for a new one.
        epsilon: Adam's.
        max_staleness: updates that a gradient may be behind.
    """

    def __init__(self, state: Mapping[str, Any], epsilon: float, max_staleness: int) -> None:
        self.version = int(state["version"])
        self.max_staleness = max_staleness
        self._vectors = {p: torch.from_numpy(np.array(w, np.float32)) for p, w in state["weights"].items()}
        self._gradients = {p: torch.zeros_like(vector) for p, vector in self._vectors.items()}
        self._adams = {
            p: FlatAdam(vector, self._gradients[p], learning_rate=0.0, epsilon=epsilon)
            for p, vector in self._vectors.items()
        }
        for policy_id, adam in (state["adam"] or {}).items():
            self._adams[policy_id].set_state(adam)

    def pull(self) -> tuple[Slices, int]:
        """The slices and their version."""
        return {p: vector.numpy().copy() for p, vector in self._vectors.items()}, self.version

    def pull_version(self) -> int:
        """How many updates were made."""
        return self.version

    def push(self, gradients: Slices, learning_rates: Mapping[str, float], version: int) -> bool:
        """One step of Adam; whether it was made: a gradient of too old a version is dropped."""
        if self.version - version > self.max_staleness:
            return False
        for policy_id, gradient in gradients.items():
            self._gradients[policy_id].copy_(torch.from_numpy(np.array(gradient)))
            self._adams[policy_id].learning_rate = learning_rates[policy_id]
            self._adams[policy_id].step()
        self.version += 1
        return True

    def get_state(self) -> dict[str, Any]:
        """Slices, moments and version."""
        adam = {policy_id: adam.get_state() for policy_id, adam in self._adams.items()}
        return {"weights": self.pull()[0], "adam": adam, "version": self.version}


@dataclass(frozen=True)
class Pushed:
    """What became of one gradient.

    Attributes:
        stats: policy id -> statistics of the loss.
        timesteps: agent steps behind it.
        accepted: every shard took it.
        staleness: updates that were made between its pull and its push.
        shard_lost: a shard did not answer.
    """

    stats: dict[str, Stats] = field(default_factory=dict)
    timesteps: int = 0
    accepted: bool = False
    staleness: int = 0
    shard_lost: bool = False


class ShardWorker:
    """An evaluator's side: pull, compute, push.

    Args:
        shards: objects or actor handles.
    """

    def __init__(self, shards: Sequence[Any]) -> None:
        self._shards = list(shards)

    def __call__(self, evaluator: PolicyEvaluator) -> tuple[Pushed, SampleInfo]:
        started = time.perf_counter()
        try:
            parts = call_all(self._shards, "pull")
        except lost_shard_errors():
            return self._nothing(evaluator, started)
        version = min(part[1] for part in parts)
        weights = {p: np.concatenate([part[0][p] for part in parts]) for p in parts[0][0]}
        evaluator.set_weights(weights, version)
        batch = evaluator.sample()
        gradients, stats = evaluator.compute_gradients(batch)
        rates = {}
        for policy_id, gradient in gradients.items():
            policy = evaluator.policies[policy_id]
            norm = float(np.linalg.norm(gradient))
            gradient *= min(1.0, policy.config.max_gradient_norm / max(norm, 1e-12))
            rates[policy_id] = policy.adam.learning_rate
            stats[policy_id] |= {"gradient_norm": norm, "learning_rate": rates[policy_id]}
        pieces = [
            {p: gradient[a:b] for p, gradient in gradients.items() for a, b in [spans[p]]}
            for spans in spans_of({p: len(w) for p, w in weights.items()}, len(self._shards))
        ]
        try:
            pushes = [(piece, rates, part[1]) for piece, part in zip(pieces, parts, strict=True)]
            taken = call_all(self._shards, "push", pushes)
            newest = call_all(self._shards[:1], "pull_version")[0]
        except lost_shard_errors():
            return self._nothing(evaluator, started)
        info = evaluator.info_of(batch, 0, started)
        # This gradient's own step is not what it was late by.
        staleness = max(0, newest - version - all(taken))
        return Pushed(stats, batch.agent_steps, all(taken), staleness), info

    @staticmethod
    def _nothing(evaluator: PolicyEvaluator, started: float) -> tuple[Pushed, SampleInfo]:
        return Pushed(shard_lost=True), evaluator.info_of(MultiAgentBatch({}, 0), 0, started)


def spans_of(sizes: Mapping[str, int], shards: int) -> list[dict[str, tuple[int, int]]]:
    """For each shard policy id -> (begin, end) of its slice; the slices are nearly equal."""
    edges = {p: np.linspace(0, size, shards + 1).astype(int).tolist() for p, size in sizes.items()}
    return [{p: (at[i], at[i + 1]) for p, at in edges.items()} for i in range(shards)]


def call_all(shards: Sequence[Any], method: str, arguments: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
    """`method` of all shards at once, their answers in order.

    Raises:
        one of `lost_shard_errors()`: an actor is gone, or does not answer in time.
    """
    each = arguments or [()] * len(shards)
    if all(isinstance(shard, ParameterShard) for shard in shards):
        return [getattr(shard, method)(*args) for shard, args in zip(shards, each, strict=True)]
    import ray

    calls = [getattr(shard, method).remote(*args) for shard, args in zip(shards, each, strict=True)]
    return ray.get(calls, timeout=CALL_DEADLINE_S)


def lost_shard_errors() -> tuple[type[Exception], ...]:
    """What `call_all` raises where an actor is gone."""
    from ray.exceptions import GetTimeoutError, ObjectLostError

    return (*lost_errors(), ObjectLostError, GetTimeoutError)
