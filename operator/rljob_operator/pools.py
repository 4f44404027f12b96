"""Sizes of the groups of a RayCluster: what is wanted, and the patch that makes it so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from rlcore.api import EvaluatorPool, RLJobSpec, fill_order, spread
from rljob_operator.names import LEARNER


@dataclass(frozen=True)
class GroupSize:
    """Pods of one worker group: `replicas` to begin with, kept between the two bounds by the autoscaler, if any."""

    replicas: int
    minimum: int
    maximum: int

    @classmethod
    def fixed(cls, count: int) -> GroupSize:
        """Exactly so many."""
        return cls(count, count, count)


def is_autoscaled(spec: RLJobSpec, *, enabled: bool, queued: bool) -> bool:
    """Whether Ray's autoscaler runs in the head: only where there is something to choose.

    Kueue admits whole RayJobs of a known size and refuses autoscaled ones.
    """
    ranges = any(pool.min_replicas < pool.max_replicas for pool in spec.evaluators.pools)
    return enabled and not queued and spec.evaluators.replicas is None and ranges


def group_sizes(
    spec: RLJobSpec, *, autoscaled: bool, unavailable: Mapping[str, int] | None = None
) -> dict[str, GroupSize]:
    """Size of every worker group by its name, in the RayCluster's order: pools as in the manifest, then the learner.

    Args:
        spec: of the job.
        autoscaled: whether an autoscaler moves pools between their bounds.
        unavailable: preemptible pools that get no more nodes at present, and how many pods of each have one: the rest
            of their minimum moves to on-demand pools.
    """
    pools = spec.evaluators.pools
    if spec.evaluators.replicas is not None:
        counts = spread(spec.evaluators.replicas, pools)
        sizes = {name: GroupSize.fixed(count) for name, count in counts.items()}
    elif autoscaled:
        sizes = {pool.name: GroupSize(pool.min_replicas, pool.min_replicas, pool.max_replicas) for pool in pools}
    else:
        sizes = {pool.name: GroupSize.fixed(pool.min_replicas) for pool in pools}
        if not any(size.replicas for size in sizes.values()):
            sizes[fill_order(pools)[0].name] = GroupSize.fixed(1)  # nobody would sample
    sizes = move_minimums(sizes, pools, unavailable or {})
    return {**sizes, LEARNER: GroupSize.fixed(spec.learner.replicas)}


def move_minimums(
    sizes: Mapping[str, GroupSize], pools: Sequence[EvaluatorPool], unavailable: Mapping[str, int]
) -> dict[str, GroupSize]:
    """Sizes in which pools keep what has nodes, and on-demand pools make up for the rest, to their maximum."""
    result = dict(sizes)
    missing = 0
    for pool in pools:
        if pool.preemptible and pool.name in unavailable:
            size = result[pool.name]
            kept = min(size.minimum, unavailable[pool.name])
            missing += size.minimum - kept
            result[pool.name] = GroupSize(kept, kept, size.maximum)
    for pool in pools:
        if pool.preemptible:
            continue
        size = result[pool.name]
        more = min(missing, max(0, max(pool.max_replicas, size.maximum) - size.minimum))
        minimum = size.minimum + more
        result[pool.name] = GroupSize(max(size.replicas, minimum), minimum, max(size.maximum, minimum))
        missing -= more
    return result


def pods_to_lose(group: Mapping[str, Any], size: GroupSize, *, autoscaled: bool) -> int:
    """Pods that a group has beyond what it may have."""
    allowed = size.maximum if autoscaled else size.replicas
    return max(0, int(group.get("replicas") or 0) - allowed)


def resize_patch(
    groups: Sequence[Mapping[str, Any]],
    sizes: Mapping[str, GroupSize],
    *,
    autoscaled: bool,
    held: Set[str] = frozenset(),
    victims: Mapping[str, Sequence[str]] | None = None,
    given_up: Set[str] = frozenset(),
) -> list[dict[str, Any]]:
    """JSON patch of a RayCluster's workerGroupSpecs towards `sizes`; empty where all is as wanted.

    Every group that is changed is tested by name first: the list is also written by the autoscaler and by queues, and
    an index alone could hit another group. With an autoscaler `replicas` is its own, unless it lies out of bounds.

    Args:
        groups: workerGroupSpecs as they are.
        sizes: by group name.
        autoscaled: whether Ray's autoscaler runs.
        held: groups to leave as they are for now.
        victims: group -> pods that shall go, which KubeRay would else choose itself; an empty list clears what was
            named before.
        given_up: groups whose victims are not replaced, though the autoscaler has not asked for fewer.
    """
    patch: list[dict[str, Any]] = []
    for index, group in enumerate(groups):
        name = str(group.get("groupName"))
        size = sizes.get(name)
        if size is None or name in held:
            continue
        wanted: dict[str, Any] = {"minReplicas": size.minimum, "maxReplicas": size.maximum}
        replicas = int(group.get("replicas") or 0)
        if not autoscaled:
            wanted["replicas"] = size.replicas
        elif name in given_up and victims:
            wanted["replicas"] = max(size.minimum, replicas - len(victims.get(name, ())))
        elif not size.minimum <= replicas <= size.maximum:
            wanted["replicas"] = min(max(replicas, size.minimum), size.maximum)
        if victims is not None and name in victims:
            wanted["scaleStrategy"] = {"workersToDelete": list(victims[name])}
        path = f"/spec/workerGroupSpecs/{index}"
        changes = [
            {"op": "add", "path": f"{path}/{field}", "value": value}
            for field, value in wanted.items()
            if group.get(field) != value
        ]
        if changes:
            patch += [{"op": "test", "path": f"{path}/groupName", "value": name}, *changes]
    return patch
