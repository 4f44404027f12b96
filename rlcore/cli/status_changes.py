"""What has happened to a job between two looks at it, a line each: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.cli.status_text import (
    count,
    entries,
    explanation,
    failure_line,
    mapping,
    number,
    phase_of,
    plural,
    reason_and_message,
    text,
    whole,
)

Job = Mapping[str, Any]

POOL_EVENTS = {
    "drainingSince": "evaluators are drained before pods are given back",
    "movedAt": "other pools make up for its minimum",
}


def changes(before: Job | None, after: Job) -> list[str]:
    """The transitions, in the order in which they matter; training numbers are no transitions.

    Args:
        before: None, or another object of the same name: everything is new.
    """
    if before is None or mapping(before, "metadata").get("uid") != mapping(after, "metadata").get("uid"):
        before = {}
    # The phase tells what its condition tells; so the first look is one line.
    parts = [_attempts(before, after), _failure(before, after), _phase(before, after)]
    if before:
        parts += [_conditions(before, after), _pools(before, after), _counts(before, after)]
        parts += [_checkpoint(before, after)]
    return [line for part in parts for line in part]


def progress_line(job: Job) -> str:
    """The training numbers; empty before there are any."""
    training = mapping(job, "status", "training")
    if whole(training.get("timesteps")) is None:
        return ""
    parts = [f"{count(training.get('timesteps'))} timesteps"]
    if isinstance(training.get("timestepsPerSecond"), (int, float)):
        parts.append(f"{training['timestepsPerSecond']:,.0f} timesteps/s")
    if isinstance(training.get("episodeRewardMean"), (int, float)):
        parts.append(f"reward {number(training.get('episodeRewardMean'))}")
    return ", ".join(parts)


def _phase(before: Job, after: Job) -> list[str]:
    old, new = phase_of(before), phase_of(after)
    if before and old == new:
        return []
    why = explanation(after)
    change = f"phase {old} -> {new}" if old and new else f"phase {new or 'none yet'}"
    return [f"{change} ({why})" if why else change]


def _conditions(before: Job, after: Job) -> list[str]:
    old = {entry.get("type"): entry for entry in _list(before, "conditions")}
    lines = []
    for entry in _list(after, "conditions"):
        was = old.get(entry.get("type"), {})
        if (was.get("status"), was.get("reason")) != (entry.get("status"), entry.get("reason")):
            why = reason_and_message(entry)
            lines.append(f"{text(entry.get('type'))}={text(entry.get('status'))}" + (f" {why}" if why else ""))
    return lines


def _attempts(before: Job, after: Job) -> list[str]:
    old = {entry.get("number"): entry for entry in _list(before, "attempts")}
    lines = []
    for entry in _list(after, "attempts"):
        was = old.get(entry.get("number"))
        if entry.get("endedAt") and before and not (was or {}).get("endedAt"):
            counted = "counted" if entry.get("counted") else "not counted"
            reason = text(entry.get("reason")) or "no reason given"
            lines.append(f"attempt {count(entry.get('number'))} ended: {reason}, {counted}")
        if was is None and before:
            ray_job = text(entry.get("rayJob"))
            lines.append(f"attempt {count(entry.get('number'))} began" + (f" as RayJob {ray_job}" if ray_job else ""))
    return lines


def _failure(before: Job, after: Job) -> list[str]:
    old, new = mapping(before, "status", "lastFailure"), mapping(after, "status", "lastFailure")
    if not before or not new or (old.get("time"), old.get("message")) == (new.get("time"), new.get("message")):
        return []
    message = text(new.get("message"))
    return [failure_line(new) + (f": {message}" if message else "")]


def _pools(before: Job, after: Job) -> list[str]:
    old = {pool.get("name"): pool for pool in _pool_list(before)}
    lines = []
    for pool in _pool_list(after):
        was, name = old.get(pool.get("name"), {}), text(pool.get("name"))
        if any(was.get(field) != pool.get(field) for field in ("ready", "target")):
            lines.append(f"pool {name}: {count(pool.get('ready'))} of {count(pool.get('target'))} pods ready")
        if pool.get("reason") and was.get("reason") != pool.get("reason"):
            lines.append(f"pool {name}: {reason_and_message(pool)}")
        for field, said in POOL_EVENTS.items():
            if pool.get(field) and not was.get(field):
                lines.append(f"pool {name}: {said}")
    return lines


def _counts(before: Job, after: Job) -> list[str]:
    def grown(field: str) -> int | None:
        old, new = (whole(mapping(job, "status").get(field)) or 0 for job in (before, after))
        return new if new > old else None

    preemptions, restarts = grown("preemptions"), grown("restarts")
    lines = [] if preemptions is None else [f"{plural(preemptions, 'pod')} lost to preemption so far"]
    return lines if restarts is None else [*lines, f"{plural(restarts, 'counted restart')} so far"]


def _checkpoint(before: Job, after: Job) -> list[str]:
    old, new = mapping(before, "status", "checkpoint"), mapping(after, "status", "checkpoint")
    if not new or (old.get("timesteps"), old.get("latest")) == (new.get("timesteps"), new.get("latest")):
        return []
    return [f"checkpoint at {count(new.get('timesteps'))} timesteps"]


def _list(job: Job, field: str) -> list[Mapping[str, Any]]:
    return entries(mapping(job, "status").get(field))


def _pool_list(job: Job) -> list[Mapping[str, Any]]:
    return entries(mapping(job, "status", "evaluators").get("pools"))
