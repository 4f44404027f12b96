"""Aggregation actors: join samples into train batches beside the evaluators, so that the learner fetches one object.

Beyond a number of evaluators one actor's network is too little: leaves join the samples of up to so many evaluators
each, and a root joins what they made. Batches travel as references from actor to actor, never through the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlcore.compression import unpack
from rlcore.sample_batch import MultiAgentBatch

EVALUATORS_PER_AGGREGATOR = 64


def aggregators_needed(configured: int, evaluators: int, each: int = EVALUATORS_PER_AGGREGATOR) -> int:
    """Leaves of the tree: as configured, at least one for `each` evaluators where there are more; 0 for none."""
    return max(configured, -(-evaluators // each) if evaluators > each else 0)


class Aggregator:
    """Joins batches; it has no state, so one that was lost is simply started again."""

    def join(self, *batches: Any) -> MultiAgentBatch:
        """The batches in the given order as one."""
        return MultiAgentBatch.concat([unpack(batch) for batch in batches])


class AggregationTree:
    """Leaves, and a root above them where there is more than one.

    Args:
        leaves: how many.
    """

    def __init__(self, leaves: int) -> None:
        import ray

        # Ray starts a lost one again, and repeats what it was doing.
        make = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Aggregator)
        self.leaves = leaves
        self._leaves = [make.remote() for _ in range(leaves)]
        self._root = make.remote() if leaves > 1 else None

    def join(self, references: Sequence[Any]) -> Any:
        """A reference to the batches joined in the given order."""
        share = -(-len(references) // self.leaves)
        parts = [references[i : i + share] for i in range(0, len(references), share)]
        joined = [leaf.join.remote(*part) for leaf, part in zip(self._leaves, parts, strict=False)]
        return joined[0] if self._root is None else self._root.join.remote(*joined)

    def stop(self) -> None:
        """Ends the actors."""
        import ray

        for actor in [*self._leaves, *([self._root] if self._root else [])]:
            ray.kill(actor)
