"""Estimated cost: price of each running pod over time."""

from __future__ import annotations

from rlcore.api.status import CostStatus
from rljob_operator import names
from rljob_operator.draft import Draft
from rljob_operator.observed import is_alive, pod_labels, pod_phase
from rljob_operator.timestamps import to_seconds


def update_cost(draft: Draft) -> None:
    """Brings status.cost up to date; nothing without prices."""
    budget = draft.job.spec.budget
    if not budget.price_per_hour:
        return
    per_hour = 0.0
    for pod in draft.observed.pods:
        if is_alive(pod) and pod_phase(pod) == "Running":
            labels = pod_labels(pod)
            group = labels.get(names.LABEL_POOL) or labels.get(names.LABEL_ROLE, "")
            per_hour += budget.price_per_hour.get(group, 0.0)
    old: CostStatus | None = draft.old.cost
    amount = (old.amount or 0.0) if old else 0.0
    since = to_seconds(old.observed_at) if old else None
    if old is not None and since is not None:
        # Both ends in whole seconds, as they are written: parts of a second would be counted twice.
        passed_s = max(0.0, (to_seconds(draft.now) or 0.0) - since)
        amount += (old.per_hour or 0.0) * passed_s / 3600
    draft.set(
        cost=CostStatus(
            amount=round(amount, 6), per_hour=round(per_hour, 6), currency=budget.currency, observed_at=draft.now
        )
    )
    if budget.maximum_cost is not None and per_hour > 0:
        draft.look_again(max(1.0, (budget.maximum_cost - amount) / per_hour * 3600))
