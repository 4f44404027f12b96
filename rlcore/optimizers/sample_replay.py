"""Whole samples kept to be trained on again, beside new ones (Espeholt et al. 2018, section 5.2.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlcore.compression import unpack
from rlcore.sample_batch import MultiAgentBatch, SampleBatch


class SampleReplay:
    """The newest samples in a ring, as batches or as references to them.

    Args:
        slots: how many are kept.
        proportion: old samples for each new one.
        seed: of the choice.
    """

    def __init__(self, slots: int, proportion: float, seed: int) -> None:
        self._slots, self._proportion = slots, proportion
        self._rng = np.random.default_rng([seed, 3])
        self._kept: list[Any] = []
        self._next = 0
        self._owed = 0.0

    def __len__(self) -> int:
        return len(self._kept)

    def mix(self, batches: Sequence[Any]) -> list[Any]:
        """New batches, and old ones behind them; the new ones are kept."""
        mixed = list(batches)
        if not self._slots:
            return mixed
        if self._kept:
            self._owed += self._proportion * len(batches)
            while self._owed >= 1.0:
                mixed.append(self._kept[int(self._rng.integers(len(self._kept)))])
                self._owed -= 1.0
        for batch in batches:
            if len(self._kept) < self._slots:
                self._kept.append(batch)
            else:
                self._kept[self._next] = batch
            self._next = (self._next + 1) % self._slots
        return mixed

    def get_state(self, fetch: Callable[[Sequence[Any]], list[Any]]) -> dict[str, Any]:
        """Everything, the samples included; `fetch` gets what references stand for, and leaves lost ones out."""
        return {
            "samples": [_to_tree(unpack(batch)) for batch in fetch(self._kept)],
            "next": self._next,
            "owed": self._owed,
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self._kept = [_from_tree(tree) for tree in state["samples"]][: self._slots]
        self._next = state["next"] % max(1, self._slots) if len(self._kept) == self._slots else len(self._kept)
        self._owed = state["owed"]
        self._rng.bit_generator.state = state["rng"]


def _to_tree(batch: MultiAgentBatch) -> dict[str, Any]:
    policies = {
        policy_id: {"columns": dict(part), "version": part.policy_version, "time_major": part.time_major}
        for policy_id, part in batch.policy_batches.items()
    }
    return {"policies": policies, "count": batch.count}


def _from_tree(tree: dict[str, Any]) -> MultiAgentBatch:
    batches = {
        policy_id: SampleBatch(part["columns"], policy_version=part["version"], time_major=part["time_major"])
        for policy_id, part in tree["policies"].items()
    }
    return MultiAgentBatch(batches, tree["count"])
