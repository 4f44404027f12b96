"""What an evaluator does for ES and ARS: it tries random directions, forwards and backwards, for whole episodes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.evaluation.sample_info import SampleInfo
from rlcore.evaluation.whole_episodes import play_whole_episodes
from rlcore.policy.noise_table import direction, draw_indices, make_noise
from rlcore.sample_batch import RETURNS, MultiAgentBatch, SampleBatch

NOISE_INDICES = "noise_indices"


@dataclass(frozen=True)
class SharedNoise:
    """The noise table where processes of a node have one copy: in the object store, or in this very process.

    Attributes:
        size: numbers in it.
        reference: Ray's reference to it, None without Ray.
    """

    size: int
    reference: Any = None

    @classmethod
    def of(cls, size: int, *, remote: bool) -> SharedNoise:
        """Makes the table, and with `remote` puts it into the object store, once."""
        if not remote:
            return cls(size)
        import ray

        return cls(size, ray.put(make_noise(size)))

    def array(self) -> np.ndarray:
        """float32 [size], read-only; behind a reference a view of the object store's memory."""
        if self.reference is None:
            return make_noise(self.size)
        import ray

        noise: np.ndarray = ray.get(self.reference)
        return noise


class PerturbedEpisodes:
    """An evaluator's work: one row a direction with its index and the two returns. Directions themselves never travel.

    Args:
        noise: the table.
        directions: to be tried in one call.
        noise_std: length of the step in each.
    """

    def __init__(self, noise: SharedNoise, directions: int, noise_std: float) -> None:
        self.noise, self.directions, self.noise_std = noise, directions, noise_std
        self._array: np.ndarray | None = None

    def __call__(self, evaluator: PolicyEvaluator) -> tuple[MultiAgentBatch, SampleInfo]:
        started = time.perf_counter()
        (policy_id,) = evaluator.trained
        policy = evaluator.policies[policy_id]
        centre = policy.get_weights()
        if self._array is None:
            self._array = self.noise.array()
        noise = self._array
        indices = draw_indices(policy.rng, self.directions, len(noise), len(centre))

        def vector(number: int) -> np.ndarray:
            sign = np.float32(self.noise_std if number % 2 == 0 else -self.noise_std)
            return centre + sign * direction(noise, int(indices[number // 2]), len(centre))

        returns, timesteps = play_whole_episodes(evaluator, policy_id, vector, 2 * self.directions)
        columns = {NOISE_INDICES: indices, RETURNS: returns.reshape(-1, 2)}
        rows = SampleBatch(columns, policy_version=policy.version)
        batch = MultiAgentBatch({policy_id: rows}, timesteps)
        return batch, evaluator.info_of(batch, batch.size_bytes, started)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_array": None}  # the table is fetched where it is used


def give_work(evaluator: PolicyEvaluator, work: Any) -> None:
    """Sets what `PolicyEvaluator.work_with_info` does; `work` is called with the evaluator."""
    evaluator.worker = work
