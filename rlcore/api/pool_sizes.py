"""Pods over evaluator pools: the one rule by which the operator makes them and the driver counts on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlcore.api.evaluators import EvaluatorPool


@dataclass(frozen=True)
class PoolLimits:
    """Fewest and most pods of one evaluator pool."""

    min_replicas: int
    max_replicas: int


def limits_of(pools: Sequence[EvaluatorPool]) -> dict[str, PoolLimits]:
    """The manifest's, by name."""
    return {pool.name: PoolLimits(pool.min_replicas, pool.max_replicas) for pool in pools}


def fill_order(pools: Sequence[EvaluatorPool]) -> list[EvaluatorPool]:
    """Preemptible pools first: they are cheap."""
    return sorted(pools, key=lambda pool: not pool.preemptible)


def spread(
    replicas: int, pools: Sequence[EvaluatorPool], limits: Mapping[str, PoolLimits] | None = None
) -> dict[str, int]:
    """A number of pods over the pools: minimums are kept, preemptible pools filled first.

    What goes beyond every pool's maximum is put onto the first of them: a person who asks for a number gets it.

    Args:
        replicas: pods in all.
        pools: of the manifest.
        limits: by name, None: the manifest's.
    """
    limits = limits or limits_of(pools)
    counts = {pool.name: limits[pool.name].min_replicas for pool in pools}
    left = max(0, replicas - sum(counts.values()))
    order = fill_order(pools)
    for pool in order:
        more = max(0, min(left, limits[pool.name].max_replicas - counts[pool.name]))
        counts[pool.name] += more
        left -= more
    counts[order[0].name] += left
    return counts
