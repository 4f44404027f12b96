"""How many evaluators each node of a Ray cluster shall hold: pure functions over what Ray and the operator say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.api import PoolLimits, RLJobSpec, limits_of, spread
from rlcore.driver.control import Control

EVALUATOR = "evaluator"
LEARNER = "learner"
POOL_PREFIX = "pool-"


@dataclass(frozen=True)
class EvaluatorNode:
    """A living node of an evaluator pool.

    Attributes:
        node: Ray's id of it.
        pool: name of its pool, empty where it does not say.
        slots: evaluators it has room for.
        cores: CPU cores it offers to Ray.
        pod: its host name, which is the pod's name.
        address: IP address.
    """

    node: str
    pool: str
    slots: int
    cores: float
    pod: str = ""
    address: str = ""

    @property
    def cores_each(self) -> float:
        """CPU cores of one evaluator: one, or less where a pod has less."""
        return min(1.0, self.cores / self.slots)


@dataclass(frozen=True)
class LearnerNode:
    """A living node for the learner.

    Attributes:
        node: Ray's id of it.
        cores: CPU cores it offers to Ray.
        gpus: GPUs it offers to Ray.
    """

    node: str
    cores: float
    gpus: int


def evaluator_nodes(nodes: Iterable[Mapping[str, Any]]) -> list[EvaluatorNode]:
    """The evaluator nodes among `ray.nodes()`, in an order that does not change."""
    found = []
    for node in nodes:
        resources = node.get("Resources") or {}
        slots = int(resources.get(EVALUATOR, 0))
        if not node.get("Alive") or not slots:
            continue
        pool = next((name.removeprefix(POOL_PREFIX) for name in sorted(resources) if name.startswith(POOL_PREFIX)), "")
        found.append(
            EvaluatorNode(
                node=str(node["NodeID"]),
                pool=pool,
                slots=slots,
                cores=float(resources.get("CPU", slots)),
                pod=str(node.get("NodeManagerHostname", "")),
                address=str(node.get("NodeManagerAddress", "")),
            )
        )
    return sorted(found, key=lambda node: (node.pool, node.node))


def learner_nodes(nodes: Iterable[Mapping[str, Any]]) -> list[LearnerNode]:
    """The learner nodes among `ray.nodes()`."""
    alive = [(str(node["NodeID"]), node.get("Resources") or {}) for node in nodes if node.get("Alive")]
    return [LearnerNode(node, float(r.get("CPU", 1)), int(r.get("GPU", 0))) for node, r in alive if r.get(LEARNER)]


def fewest_evaluators(spec: RLJobSpec, control: Control) -> int:
    """Evaluators that the pools' minimums amount to, and at least one: what a job waits for before it starts."""
    limits = pod_limits(spec, control)
    return max(1, sum(limits[pool.name].min_replicas * pool.evaluators_per_pod for pool in spec.evaluators.pools))


def pod_limits(spec: RLJobSpec, control: Control) -> dict[str, PoolLimits]:
    """Fewest and most pods of each pool: control.json's, else the manifest's."""
    return {name: control.pools.get(name, limits) for name, limits in limits_of(spec.evaluators.pools).items()}


def most_pods(spec: RLJobSpec, control: Control) -> dict[str, int]:
    """Pods of each pool that may hold evaluators; a number of replicas is spread as the operator does it."""
    limits = pod_limits(spec, control)
    if control.replicas is None:
        return {name: limit.max_replicas for name, limit in limits.items()}
    return spread(control.replicas, spec.evaluators.pools, limits)


def wanted_evaluators(
    nodes: Sequence[EvaluatorNode], most: Mapping[str, int], holding: Mapping[str, int]
) -> dict[str, int]:
    """Node id -> evaluators it shall hold; 0 drains it.

    Whole pods are kept or drained, so that the drained ones can be given back: first those that hold fewest. A pool
    without a limit of its own (of an older manifest, or none at all) is used as it is.

    Args:
        nodes: all that are alive.
        most: pods of each pool that may hold evaluators.
        holding: node id -> evaluators there now.
    """
    wanted = {}
    for pool in {node.pool for node in nodes}:
        members = [node for node in nodes if node.pool == pool]
        members.sort(key=lambda node: (-holding.get(node.node, 0), node.node))
        kept = most.get(pool, len(members))
        wanted.update({node.node: node.slots if rank < kept else 0 for rank, node in enumerate(members)})
    return {node.node: wanted[node.node] for node in nodes}
