"""Fewer pods: the driver is told first, drains evaluators, and only then their pods are named and go.

The driver reads the smaller pools from its ConfigMap and reports, pod by pod, how many evaluators it still uses there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rljob_operator import names
from rljob_operator.draft import Draft
from rljob_operator.observed import is_alive
from rljob_operator.pools import GroupSize, pods_to_lose
from rljob_operator.spot import pool_statuses, unplaced
from rljob_operator.timestamps import to_seconds


@dataclass
class Drain:
    """What follows for each pool.

    Attributes:
        held: groups whose pods are not drained yet.
        victims: group -> pods that shall go; an empty list where those named before are gone.
        since: pool -> since when it is drained, RFC 3339.
    """

    held: set[str] = field(default_factory=set)
    victims: dict[str, list[str]] = field(default_factory=dict)
    since: dict[str, str | None] = field(default_factory=dict)


def judge_drain(
    draft: Draft, groups: Sequence[Mapping[str, Any]], sizes: Mapping[str, GroupSize], *, autoscaled: bool
) -> Drain:
    """Which groups may shrink now, and by which pods."""
    before = {pool.name: pool.draining_since for pool in pool_statuses(draft)}
    drain = Drain(since=dict.fromkeys(before))
    alive = {pod["metadata"]["name"] for pod in draft.observed.pods if is_alive(pod)}
    for group in groups:
        name = str(group.get("groupName"))
        size = sizes.get(name)
        if size is None or name == names.LEARNER:
            continue
        excess = pods_to_lose(group, size, autoscaled=autoscaled)
        if not excess:
            named = (group.get("scaleStrategy") or {}).get("workersToDelete") or []
            # With the autoscaler the list is its own.
            if named and not autoscaled and not alive & set(named):
                drain.victims[name] = []
            continue
        # Pods that no node took have nothing to be drained of.
        drained = [*unplaced(draft, name), *(pod for pod in drained_pods(draft, name) if pod in alive)]
        since = before.get(name) or draft.now
        waited_s = draft.now_s - (to_seconds(since) or draft.now_s)
        if _driver_drains(draft) and len(drained) < excess and waited_s < draft.times.drain_s:
            drain.held.add(name)
            drain.since[name] = since
            draft.look_again(1.0)
        elif not autoscaled:
            drain.victims[name] = drained[:excess]
    return drain


def drained_pods(draft: Draft, pool: str) -> list[str]:
    """Pods of a pool on which the driver has no evaluator any more."""
    report = draft.observed.report
    pods = (report.values.get("evaluator_pods") if report else None) or []
    return [str(pod.get("pod")) for pod in pods if pod.get("pool") == pool and not pod.get("evaluators")]


def _driver_drains(draft: Draft) -> bool:
    report = draft.observed.report
    return report is not None and report.phase in ("Running", "Recovering") and report.final is None
