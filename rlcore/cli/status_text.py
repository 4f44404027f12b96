"""Reading an RLJob as plain data, and its values as words: no clock, no terminal.

A status comes from an operator that may be newer or older than this program: what is missing, or of another kind than
expected, reads as absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rlcore.cli.status_blocks import Tone
from rlcore.metrics.eta import duration

PHASE_TONES: Mapping[str, Tone] = {
    "Running": "good",
    "Succeeded": "good",
    "Failed": "bad",
    "Pending": "warn",
    "Provisioning": "warn",
    "Recovering": "warn",
    "Suspended": "info",
    "Unknown": "warn",
}
FINISHED = ("Succeeded", "Failed")

# Escape sequences and control characters: a log, or a message that quotes one, must not steer the reader's terminal.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def mapping(value: object, *path: str) -> Mapping[str, Any]:
    """The mapping at a path, empty where there is none."""
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def entries(value: object) -> list[Mapping[str, Any]]:
    """The mappings of a list, empty where it is none."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def text(value: object) -> str:
    """A text without control characters, on one line; empty for anything else."""
    return " ".join(line.strip() for line in log_lines(value)).strip()


def log_lines(value: object) -> list[str]:
    """The lines of a text without control characters; none for anything else."""
    if not isinstance(value, str):
        return []
    return [_CONTROL.sub("", _ESCAPES.sub("", line)).expandtabs() for line in value.splitlines()]


def whole(value: object) -> int | None:
    """A whole number, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count(value: object) -> str:
    """A count with thousands marked; - where it is not known."""
    number = whole(value)
    return "-" if number is None else f"{number:,}"


def number(value: object) -> str:
    """One decimal, or three digits where that would hide a small number; - where it is not known."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "-"
    return f"{value:,.1f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def plural(amount: int, noun: str) -> str:
    """1 preemption, 2 preemptions."""
    return f"{amount:,} {noun}{'s' * (amount != 1)}"


def moment(value: object) -> datetime | None:
    """A time of the API, or None."""
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else None


def since(value: object, now: datetime) -> str:
    """How long ago a time of the API was: 3 min 20 s; empty where it is not known."""
    then = moment(value)
    return "" if then is None else duration(max(0.0, (now - then).total_seconds()))


def ago(value: object, now: datetime) -> str:
    """3 min 20 s ago; empty where it is not known."""
    age = since(value, now)
    return f"{age} ago" if age else ""


def phase_of(job: Mapping[str, Any]) -> str:
    """status.phase, or empty."""
    return text(mapping(job, "status").get("phase"))


def is_finished(job: Mapping[str, Any]) -> bool:
    """Succeeded or Failed, and not judged for an older spec than the present one."""
    return phase_of(job) in FINISHED and not is_behind(job)


def is_behind(job: Mapping[str, Any]) -> bool:
    """The operator has not yet acted on the newest spec."""
    observed = whole(mapping(job, "status").get("observedGeneration"))
    generation = whole(mapping(job, "metadata").get("generation"))
    return observed is not None and generation is not None and observed < generation


def condition(job: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """A condition by type, empty where there is none."""
    conditions = entries(mapping(job, "status").get("conditions"))
    return next((entry for entry in conditions if entry.get("type") == kind), {})


def reason_and_message(entry: Mapping[str, Any]) -> str:
    """Reason: message, or what there is of them."""
    return ": ".join(filter(None, (text(entry.get("reason")), text(entry.get("message")))))


def explanation(job: Mapping[str, Any]) -> str:
    """The condition that says why the job is in its phase, as reason and message."""
    phase = phase_of(job)
    wanted = {
        "Succeeded": [("Complete", "True")],
        "Failed": [("Failed", "True")],
        "Suspended": [("Suspended", "True")],
        "Recovering": [("Training", "False"), ("Provisioned", "False")],
        "Unknown": [("Training", "Unknown"), ("Provisioned", "Unknown")],
    }.get(phase, [("Valid", "False"), ("Provisioned", "False"), ("Training", "False")])
    for kind, status in wanted:
        entry = condition(job, kind)
        if entry.get("status") == status and reason_and_message(entry):
            return reason_and_message(entry)
    return ""


def failure_line(failure: Mapping[str, Any]) -> str:
    """OutOfMemory, counted, on pod p of node n, exit code 137."""
    kind = text(failure.get("class")) or "failure"
    pod, node = text(failure.get("pod")), text(failure.get("node"))
    parts = [kind, "counted" if failure.get("counted") else "not counted"]
    if pod:
        parts.append(f"on pod {pod}" + (f" of node {node}" if node else ""))
    code = whole(failure.get("exitCode"))
    if code is not None:
        parts.append(f"exit code {code}")
    return ", ".join(parts)


def stop_words(job: Mapping[str, Any]) -> str:
    """The stop conditions in words."""
    stop = mapping(job, "spec", "stop")
    found = [
        f"{count(stop.get('timesteps'))} timesteps" if whole(stop.get("timesteps")) is not None else "",
        f"{count(stop.get('iterations'))} iterations" if whole(stop.get("iterations")) is not None else "",
        f"reward {stop['episodeReward']:g}" if isinstance(stop.get("episodeReward"), (int, float)) else "",
        text(stop.get("wallClock")),
    ]
    return " or ".join(filter(None, found))
