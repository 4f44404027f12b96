"""The learner: owns the policies that learn, one tower a device, and does all SGD passes where the batch is.

It is a plain object in the driver's process on one machine, and the same class as a Ray actor on the GPU pod of a
cluster (`RemoteLearner`).

    learner.load(batches)                 # each device holds its share, moved there once
    stats = learner.sgd(num_epochs=10, minibatch_size=128)
    weights = learner.get_weights()
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlcore.compression import PackedBatch, unpack
from rlcore.errors import NonFiniteError
from rlcore.evaluation.sample_info import Gradients
from rlcore.optimizers.batch_buffer import BatchBuffer
from rlcore.policy.policy_graph import Stats
from rlcore.policy.torch_policy_graph import TIME_MAJOR, Loaded, TorchPolicyGraph
from rlcore.sample_batch import OBSERVATIONS, MultiAgentBatch


@dataclass
class LearnerReport:
    """What an update did.

    Attributes:
        stats: policy id -> means over all minibatches.
        timesteps: agent steps trained on.
        load_time_s: seconds to join the batch and move it to the devices.
        sgd_time_s: seconds of SGD passes.
        priorities: policy id -> float32 [B], of the rows of a batch that was trained on as a whole, for prioritised
            replay.
        version: of the policies after it.
    """

    stats: dict[str, Stats]
    timesteps: int
    load_time_s: float
    sgd_time_s: float
    priorities: dict[str, np.ndarray] = field(default_factory=dict)
    version: int = 0


class Update(NamedTuple):
    """A finished update, and the policies' weights after it (or a Ray reference to them) where they were asked for."""

    report: LearnerReport
    weights: Any


@dataclass
class _Tower:
    """A policy on one device, and its share of the batch."""

    policy: TorchPolicyGraph
    loaded: Loaded
    size: int


class Learner:
    """Trains policies on batches.

    Args:
        policies: policy id -> graph, on the first device; these objects are trained in place.
        devices: one tower each, such as ["cuda:0", "cuda:1"] or ["cpu"].
        seed: of the order of minibatches.
    """

    def __init__(self, policies: dict[str, TorchPolicyGraph], *, devices: Sequence[str] = ("cpu",), seed: int) -> None:
        self.policies = policies
        self.version = 0
        self._rng = np.random.default_rng([seed, 2])
        self._towers = {
            policy_id: [policy, *(policy.replicate(device) for device in devices[1:])]
            for policy_id, policy in policies.items()
        }
        pinned = any(device.startswith("cuda") for device in devices)
        self._buffers = {policy_id: BatchBuffer(pinned=pinned) for policy_id in policies}
        self._loaded: dict[str, list[_Tower]] = {}
        self._batch_stats: dict[str, Stats] = {}
        self._timesteps = 0
        self._load_time_s = 0.0
        self._finished: list[Update] = []

    def load(self, batches: Sequence[MultiAgentBatch | PackedBatch]) -> None:
        """Joins batches in the given order and moves each device's share to it, once."""
        started = time.perf_counter()
        unpacked = [unpack(batch) for batch in batches]
        self._loaded.clear()
        self._timesteps = 0
        for policy_id, policy in self.policies.items():
            parts = [b.policy_batches[policy_id] for b in unpacked if policy_id in b.policy_batches]
            parts = [part for part in parts if part.count]
            if not parts:
                continue
            batch = self._buffers[policy_id].fill(parts)
            self._timesteps += batch.count
            batch, self._batch_stats[policy_id] = policy.prepare(batch)
            # A batch smaller than the number of devices leaves the last ones without work.
            towers = self._towers[policy_id][: batch.size]
            shares = batch.split(len(towers))
            self._loaded[policy_id] = [
                _Tower(tower, tower.load(share), share.size) for tower, share in zip(towers, shares, strict=True)
            ]
        self._load_time_s = time.perf_counter() - started

    def sgd(self, *, num_epochs: int, minibatch_size: int) -> LearnerReport:
        """All passes over the loaded batch; `minibatch_size` in timesteps, over all towers.

        Raises:
            NonFiniteError: the loss or a gradient became NaN or infinite.
        """
        started = time.perf_counter()
        stats = {}
        for policy_id, towers in self._loaded.items():
            # What overflows is found in the statistics, and said once instead of in warnings.
            with np.errstate(over="ignore", invalid="ignore"):
                stats[policy_id] = self._passes(policy_id, towers, num_epochs, minibatch_size)
            self.policies[policy_id].after_update(stats[policy_id])
        self._count_update()
        elapsed_s = time.perf_counter() - started
        return LearnerReport(stats, self._timesteps, self._load_time_s, elapsed_s, self._priorities(), self.version)

    def update(
        self, batches: Sequence[MultiAgentBatch | PackedBatch], *, num_epochs: int, minibatch_size: int
    ) -> LearnerReport:
        """`load` and `sgd` in one call."""
        self.load(batches)
        return self.sgd(num_epochs=num_epochs, minibatch_size=minibatch_size)

    def submit(
        self,
        batches: Sequence[MultiAgentBatch | PackedBatch],
        *,
        num_epochs: int,
        minibatch_size: int,
        timesteps: int,
        want_weights: bool,
    ) -> None:
        """An update that is not waited for; here it is made at once. `timesteps`: see `set_timesteps`."""
        self.set_timesteps(timesteps)
        report = self.update(batches, num_epochs=num_epochs, minibatch_size=minibatch_size)
        self._finished.append(Update(report, self.get_weights() if want_weights else None))

    def finished(self, *, wait: bool) -> list[Update]:
        """Submitted updates that are done, in their order; `wait` for one at least."""
        done, self._finished = self._finished, []
        return done

    @property
    def updates_in_flight(self) -> int:
        """Submitted updates that `finished` has not given yet."""
        return len(self._finished)

    def apply_gradients(self, gradients: Gradients, timesteps: int) -> Update:
        """One optimizer step with gradients that were computed elsewhere; `timesteps`: see `set_timesteps`.

        Raises:
            NonFiniteError: a gradient is NaN or infinite.
        """
        started = time.perf_counter()
        self.set_timesteps(timesteps)
        stats = {policy_id: dict(found) for policy_id, found in gradients.stats.items()}
        for policy_id, gradient in gradients.gradients.items():
            policy = self.policies[policy_id]
            stats[policy_id]["gradient_norm"] = float(np.linalg.norm(gradient))
            stats[policy_id]["learning_rate"] = policy.learning_rate(policy.timesteps)
            self._check_finite(policy_id, stats[policy_id])
            policy.apply_gradients(gradient)
            policy.after_update(stats[policy_id])
            self._publish(self._towers[policy_id])
        self._count_update()
        report = LearnerReport(stats, gradients.timesteps, 0.0, time.perf_counter() - started, version=self.version)
        return Update(report, self.get_weights())

    def _count_update(self) -> None:
        self.version += 1
        for policy in self.policies.values():
            policy.version = self.version

    def _passes(self, policy_id: str, towers: list[_Tower], num_epochs: int, minibatch_size: int) -> Stats:
        policy = self.policies[policy_id]
        size = min(tower.size for tower in towers)
        unit = self._timesteps_per_entry(towers[0])
        # The nearest number: rows in which environments reset are missing from a batch, and no gradient step is for it.
        minibatches = min(size, max(1, round(size * len(towers) * unit / minibatch_size)))
        total: Any = 0.0
        norms: Any = 0.0
        epochs = 0
        for _ in range(num_epochs):
            epoch_total: Any = 0.0
            for indices in self._orders(towers, minibatches):
                epoch_total = epoch_total + self._average_gradient(towers, indices)
                norms = norms + policy.apply_own_gradient()
                self._publish(self._towers[policy_id])
            total = total + epoch_total
            epochs += 1
            if policy.stops_early(epoch_total / minibatches):
                break
        count = epochs * minibatches
        stats = policy.named_stats(total / count)
        stats |= self._batch_stats[policy_id]
        stats["gradient_norm"] = float(norms) / count
        stats["learning_rate"] = policy.learning_rate(policy.timesteps)
        stats["epochs"] = epochs
        stats_and_weights = {**stats, "weights": float(policy.flat.vector.sum())}
        self._check_finite(policy_id, stats_and_weights)
        return stats

    def _orders(self, towers: list[_Tower], minibatches: int) -> Iterator[tuple[Any, ...]]:
        """For each minibatch the entries of every tower's share; a batch that is one minibatch stays in its order."""
        if minibatches == 1:
            yield (slice(None),) * len(towers)
            return
        yield from zip(*(np.array_split(self._rng.permutation(t.size), minibatches) for t in towers), strict=True)

    def _priorities(self) -> dict[str, np.ndarray]:
        found = {}
        for policy_id, towers in self._loaded.items():
            parts = [tower.policy.priorities for tower in towers if tower.policy.priorities is not None]
            if len(parts) == len(towers):
                found[policy_id] = np.concatenate(parts)
        return found

    @staticmethod
    def _average_gradient(towers: list[_Tower], indices: tuple[Any, ...]) -> np.ndarray | Tensor:
        """The mean of the towers' gradients, in the first tower; the mean of their statistics."""
        stats = [t.policy.minibatch_gradient(t.loaded, i) for t, i in zip(towers, indices, strict=True)]
        if len(towers) == 1:
            return stats[0]
        gradient = towers[0].policy.flat.gradient
        for tower in towers[1:]:
            gradient += tower.policy.flat.gradient.to(gradient.device)
        gradient /= len(towers)
        return sum(stats[1:], start=stats[0]) / len(towers)

    @staticmethod
    def _publish(towers: list[TorchPolicyGraph]) -> None:
        for tower in towers[1:]:
            with torch.no_grad():
                tower.flat.vector.copy_(towers[0].flat.vector)

    @staticmethod
    def _timesteps_per_entry(tower: _Tower) -> int:
        return len(tower.loaded[OBSERVATIONS]) if tower.loaded[TIME_MAJOR] else 1

    def _check_finite(self, policy_id: str, stats: Stats) -> None:
        wrong = [name for name, value in stats.items() if not np.isfinite(value)]
        if wrong:
            raise NonFiniteError(
                f"training policy {policy_id} gave values that are not finite: {', '.join(wrong)}",
                hint="lower learningRate or rewardScale, or look at the observations' range; "
                "the last good checkpoint is kept",
            )

    def set_timesteps(self, timesteps: int) -> None:
        """Tells the policies how far training is, for their schedules."""
        for policy in self.policies.values():
            policy.on_global_timesteps(timesteps)

    def get_weights(self) -> dict[str, np.ndarray]:
        """Policy id -> a copy of the parameters, float32 [P]."""
        return {policy_id: policy.get_weights() for policy_id, policy in self.policies.items()}

    def get_version(self) -> int:
        """How many updates were made."""
        return self.version

    def get_state(self) -> dict[str, Any]:
        """Everything needed to go on exactly: arrays and JSON."""
        return {
            "version": self.version,
            "rng": self._rng.bit_generator.state,
            "policies": {policy_id: policy.get_state() for policy_id, policy in self.policies.items()},
        }

    def take_policies(self, states: Mapping[str, Mapping[str, Any]], version: int) -> None:
        """Policies as others trained them: policy id -> its state, or the parts of it that changed."""
        self.version = version
        for policy_id, state in states.items():
            policy = self.policies[policy_id]
            policy.set_state({**policy.get_state(), **state, "version": version})
            self._publish(self._towers[policy_id])

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self.version = state["version"]
        self._rng.bit_generator.state = state["rng"]
        for policy_id, policy in self.policies.items():
            policy.set_state(state["policies"][policy_id])
            self._publish(self._towers[policy_id])
