"""Sizes of a job's groups at present: what the manifest wants, as far as there are nodes."""

from __future__ import annotations

from collections.abc import Mapping

from rljob_operator.draft import Draft
from rljob_operator.pools import GroupSize, group_sizes, is_autoscaled
from rljob_operator.provision import is_queued


def runs_autoscaler(draft: Draft) -> bool:
    """Whether Ray's autoscaler runs in the head: settled when the RayJob was made."""
    observed = draft.observed
    for found in (observed.ray_cluster, observed.ray_job):
        if found is not None:
            spec = found.get("spec") or {}
            return bool((spec.get("rayClusterSpec") or spec).get("enableInTreeAutoscaling"))
    return is_autoscaled(draft.job.spec, enabled=draft.settings.autoscaler.enabled, queued=is_queued(draft.job))


def wanted_sizes(draft: Draft, unavailable: Mapping[str, int]) -> dict[str, GroupSize]:
    """Size of every group by its name.

    Args:
        draft: of the decision.
        unavailable: preemptible pools that get no more nodes, and how many pods of each have one.
    """
    return group_sizes(draft.job.spec, autoscaled=runs_autoscaler(draft), unavailable=unavailable)
