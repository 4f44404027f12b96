"""What `rlcore status` shows: one job's page, and the table of several. Pure functions of RLJobs and the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rlcore.cli.status_blocks import Block, Cell, Grid, Lines, Row, Rows, Tone, row
from rlcore.cli.status_text import (
    FINISHED,
    PHASE_TONES,
    ago,
    count,
    entries,
    explanation,
    failure_line,
    is_behind,
    log_lines,
    mapping,
    moment,
    number,
    phase_of,
    plural,
    reason_and_message,
    since,
    stop_words,
    text,
    whole,
)
from rlcore.metrics.eta import duration

Job = Mapping[str, Any]

UNSEEN_AFTER_S = 30.0
"""An operator that runs has acted on a job by then."""
STALE_AFTER_S = 60.0
"""The operator asks the driver every few seconds; older numbers are worth a word."""
LOG_LINES = 20
TABLE_HEAD = (
    "NAME",
    "ALGORITHM",
    "ENVIRONMENT",
    "PHASE",
    "REWARD",
    "TIMESTEPS",
    "STEPS/S",
    "READY",
    "RESTARTS",
    "AGE",
)
WANTED = ("Valid", "Provisioned", "Training")
"""Conditions whose False is worth a look while a job runs; that of the others is how things should be."""


def job_page(job: Job, now: datetime, *, log_lines_shown: int = LOG_LINES) -> list[Block]:
    """All there is to say of one job, what matters most first."""
    blocks: list[Block | None] = [
        Rows(tuple(_head(job, now) + _training(job, now))),
        _pods(job, now),
        Rows(tuple(_upkeep(job, now))),
        _conditions(job, now),
        _attempts(job, now),
        _losses(job, now),
        _log_tail(job, log_lines_shown),
    ]
    return [block for block in blocks if block is not None and (not isinstance(block, Rows) or block.rows)]


def job_table(jobs: Sequence[Job], now: datetime, *, all_namespaces: bool) -> list[Block]:
    """One line a job, sorted by namespace and name."""
    ordered = sorted(jobs, key=lambda job: (text(_meta(job).get("namespace")), text(_meta(job).get("name"))))
    lines = []
    for job in ordered:
        spec, training = mapping(job, "spec"), mapping(job, "status", "training")
        phase = phase_of(job)
        cells = [
            Cell(text(_meta(job).get("name")), "bold"),
            Cell(text(spec.get("algorithm")) or "-"),
            Cell(text(mapping(spec, "environment").get("id")) or "-"),
            Cell(phase or "-", PHASE_TONES.get(phase, "")),
            Cell(number(training.get("episodeRewardMean"))),
            Cell(count(training.get("timesteps"))),
            Cell(_rate(training.get("timestepsPerSecond")) or "-"),
            Cell(_ready(mapping(job, "status", "evaluators"))),
            Cell(count(mapping(job, "status").get("restarts"))),
            Cell(since(_meta(job).get("creationTimestamp"), now) or "-"),
        ]
        lines.append(tuple([Cell(text(_meta(job).get("namespace"))), *cells] if all_namespaces else cells))
    return [Grid(("NAMESPACE", *TABLE_HEAD) if all_namespaces else TABLE_HEAD, tuple(lines))]


def _head(job: Job, now: datetime) -> list[Row]:
    meta, spec, status = _meta(job), mapping(job, "spec"), mapping(job, "status")
    name = f"{text(meta.get('namespace'))}/{text(meta.get('name'))}"
    age = since(meta.get("creationTimestamp"), now)
    rows = [row("job", Cell(name, "bold"), Cell(f"made {age} ago" if age else "", "dim")), _phase(job, now)]
    why = explanation(job)
    if why:
        rows.append(row("", Cell(why, PHASE_TONES.get(phase_of(job), ""))))
    if is_behind(job):
        rows.append(row("", Cell("the operator has not acted on the newest change of the spec yet", "warn")))
    if _annotation(job, "rlcore.io/paused") == "true":
        rows.append(row("", Cell("the annotation rlcore.io/paused keeps the operator from acting on this job", "warn")))
    optimizer = text(spec.get("optimizer"))
    environment = text(mapping(spec, "environment").get("id"))
    rows.append(row("algorithm", f"{text(spec.get('algorithm'))}{f', {optimizer}' if optimizer else ''}"))
    rows.append(row("environment", environment))
    rows.append(row("until", stop_words(job)))
    attempt = whole(status.get("attempt"))
    if attempt is not None:
        parts = [f"RayJob {text(status.get('rayJob'))}" if status.get("rayJob") else ""]
        parts.append(f"RayCluster {text(status.get('rayCluster'))}" if status.get("rayCluster") else "")
        rows.append(row("attempt", f"{attempt}", Cell(", ".join(filter(None, parts)), "dim")))
    if status.get("dashboardURL"):
        rows.append(row("dashboard", text(status.get("dashboardURL"))))
    return [entry for entry in rows if entry.cells]


def _phase(job: Job, now: datetime) -> Row:
    phase, status, meta = phase_of(job), mapping(job, "status"), _meta(job)
    if meta.get("deletionTimestamp"):
        return row("phase", Cell(phase or "-", PHASE_TONES.get(phase, "")), Cell("being deleted", "warn"))
    if not phase:
        made = moment(meta.get("creationTimestamp"))
        late = made is not None and (now - made).total_seconds() > UNSEEN_AFTER_S
        say = "no operator has acted on it; is rljob-operator running?" if late else "waiting for the operator"
        return row("phase", Cell("none yet", "warn"), Cell(say, "warn" if late else "dim"))
    started, finished = moment(status.get("startedAt")), moment(status.get("finishedAt"))
    took = ""
    if started is not None:
        end = finished if finished is not None and phase in FINISHED else now
        spent = duration(max(0.0, (end - started).total_seconds()))
        took = f"after {spent}, {ago(status.get('finishedAt'), now)}" if end is finished else f"started {spent} ago"
    return row("phase", Cell(phase, PHASE_TONES.get(phase, "")), Cell(took, "dim"))


def _training(job: Job, now: datetime) -> list[Row]:
    training = mapping(job, "status", "training")
    timesteps = whole(training.get("timesteps"))
    if timesteps is None:
        return []
    running = phase_of(job) == "Running"
    goal = whole(mapping(job, "spec", "stop").get("timesteps"))
    rate = training.get("timestepsPerSecond")
    part = f"{min(100, 100 * timesteps // goal)} % of {goal:,}" if goal else ""
    left = ""
    if running and goal and isinstance(rate, (int, float)) and rate > 0 and timesteps < goal:
        left = f"{duration((goal - timesteps) / rate)} to go at this rate"
    rows = [
        row("timesteps", Cell(f"{timesteps:,}", "bold"), part),
        row("throughput", f"{_rate(rate)} timesteps/s" if _rate(rate) else "", Cell(left, "dim")),
        row("reward", *_reward(job, training)),
    ]
    counts = [("iteration", training.get("iteration")), ("episodes", training.get("episodes"))]
    known = [f"{label} {count(value)}" for label, value in counts if whole(value) is not None]
    rows.append(row("progress", ", ".join(known)))
    rows.append(row("bottleneck", text(training.get("bottleneck"))))
    observed = moment(training.get("observedAt"))
    if running and observed is not None and (now - observed).total_seconds() > STALE_AFTER_S:
        rows.append(row("", Cell(f"these numbers are {since(training.get('observedAt'), now)} old", "warn")))
    return [entry for entry in rows if entry.cells]


def _reward(job: Job, training: Mapping[str, Any]) -> list[Cell]:
    goal = mapping(job, "spec", "stop").get("episodeReward")
    mean, evaluation = training.get("episodeRewardMean"), training.get("evaluationRewardMean")
    if not isinstance(mean, (int, float)):
        return [Cell("no episode finished yet", "dim")]
    cells = [Cell(f"{number(mean)} mean of recent episodes", "bold")]
    if isinstance(evaluation, (int, float)):
        cells.append(Cell(f"{number(evaluation)} in the last evaluation"))
    return [*cells, Cell(f"goal {goal:g}")] if isinstance(goal, (int, float)) else cells


def _pods(job: Job, now: datetime) -> Grid | None:
    """Evaluator pools in the order of the manifest, then the learner."""
    evaluators, learners = mapping(job, "status", "evaluators"), mapping(job, "status", "learners")
    lines = [_pool_line(text(pool.get("name")), pool, now) for pool in entries(evaluators.get("pools"))]
    if not lines and whole(evaluators.get("target")) is not None:
        lines = [_pool_line("evaluators", evaluators, now)]
    if whole(learners.get("target")):
        lines.append(_pool_line("learner", learners, now))
    return Grid(("PODS", "TARGET", "THERE", "READY", "REMARKS"), tuple(lines), prose=True) if lines else None


def _pool_line(name: str, pool: Mapping[str, Any], now: datetime) -> tuple[Cell, ...]:
    ready, target = whole(pool.get("ready")), whole(pool.get("target"))
    draining, moved = since(pool.get("drainingSince"), now), since(pool.get("movedAt"), now)
    remarks = [
        reason_and_message(pool),
        f"drained for {draining} before pods are given back" if draining else "",
        f"other pools have made up for its minimum for {moved}" if moved else "",
    ]
    tone: Tone = "" if ready is None or target is None else "good" if ready >= target else "warn"
    return (
        Cell(name),
        Cell(count(pool.get("target"))),
        Cell(count(pool.get("replicas"))),
        Cell(count(pool.get("ready")), tone),
        Cell("; ".join(filter(None, remarks)), "warn"),
    )


def _upkeep(job: Job, now: datetime) -> list[Row]:
    """Checkpoint, failures, cost."""
    status = mapping(job, "status")
    checkpoint, failure = mapping(status, "checkpoint"), mapping(status, "lastFailure")
    rows = []
    if whole(checkpoint.get("timesteps")) is not None or checkpoint.get("latest"):
        at = f"at {count(checkpoint.get('timesteps'))} timesteps" if checkpoint.get("timesteps") is not None else ""
        when = Cell(ago(checkpoint.get("time"), now), "bold")
        rows.append(row("checkpoint", when, at, Cell(text(checkpoint.get("latest")), "dim")))
    elif phase_of(job) in ("Running", "Recovering"):
        rows.append(row("checkpoint", Cell("none yet", "warn")))
    restarts, preemptions = whole(status.get("restarts")), whole(status.get("preemptions"))
    if restarts is not None or preemptions is not None:
        most = whole(mapping(job, "spec", "restartPolicy").get("maxRestarts"))
        limit = f" of {most} allowed" if most is not None else ""
        rows.append(
            row("restarts", f"{restarts or 0:,}{limit}", f"{plural(preemptions or 0, 'pod')} lost to preemption")
        )
    rows.append(_cost(job))
    if failure:
        rows.append(row("last failure", Cell(failure_line(failure), "bad"), Cell(ago(failure.get("time"), now), "dim")))
        rows.append(row("", text(failure.get("message"))))
    return [entry for entry in rows if entry.cells]


def _cost(job: Job) -> Row:
    cost, budget = mapping(job, "status", "cost"), mapping(job, "spec", "budget")
    unit = f" {text(cost.get('currency'))}".rstrip()
    amount, hourly, most = cost.get("amount"), cost.get("perHour"), budget.get("maximumCost")
    if not isinstance(amount, (int, float)):
        return row("cost")
    return row(
        "cost",
        f"{amount:,.2f}{unit} so far, estimated",
        f"{hourly:,.2f}{unit} an hour" if isinstance(hourly, (int, float)) else "",
        f"limit {most:,.2f}{unit}" if isinstance(most, (int, float)) else "",
    )


def _conditions(job: Job, now: datetime) -> Grid | None:
    conditions = entries(mapping(job, "status").get("conditions"))
    lines = tuple(
        (
            Cell(text(entry.get("type"))),
            Cell(text(entry.get("status")), _condition_tone(entry, phase_of(job))),
            Cell(text(entry.get("reason"))),
            Cell(since(entry.get("lastTransitionTime"), now)),
            Cell(text(entry.get("message"))),
        )
        for entry in conditions
    )
    return Grid(("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"), lines, prose=True) if lines else None


def _condition_tone(entry: Mapping[str, Any], phase: str) -> Tone:
    kind, status = entry.get("type"), entry.get("status")
    if status == "True":
        return "bad" if kind == "Failed" else "info" if kind in ("Suspended", "Paused") else "good"
    if status == "Unknown":
        return "warn"
    return "warn" if kind in WANTED and phase not in (*FINISHED, "Suspended") else "dim"


def _attempts(job: Job, now: datetime) -> Grid | None:
    """Worth a table from the second one on."""
    attempts = entries(mapping(job, "status").get("attempts"))
    if len(attempts) < 2:
        return None
    lines = tuple(
        (
            Cell(count(entry.get("number"))),
            Cell(ago(entry.get("startedAt"), now) or "-"),
            Cell(ago(entry.get("endedAt"), now) or "-"),
            Cell(text(entry.get("reason")) or "-"),
            Cell(("yes" if entry.get("counted") else "no") if entry.get("endedAt") else "-"),
            Cell(count(entry.get("timesteps"))),
        )
        for entry in attempts
    )
    return Grid(("ATTEMPT", "STARTED", "ENDED", "BECAUSE", "COUNTED", "CHECKPOINT"), lines)


def _losses(job: Job, now: datetime) -> Grid | None:
    losses = entries(mapping(job, "status").get("losses"))[-5:]
    lines = tuple(
        (
            Cell(text(loss.get("pod")) or "-"),
            Cell(text(loss.get("role")) or "-"),
            Cell(text(loss.get("class")) or "-"),
            Cell(ago(loss.get("time"), now) or "-"),
        )
        for loss in losses
    )
    return Grid(("LOST POD", "ROLE", "BECAUSE", "WHEN"), lines) if lines else None


def _log_tail(job: Job, shown: int) -> Lines | None:
    lines = log_lines(mapping(job, "status", "lastFailure").get("logTail"))
    return Lines("last log lines before the failure", tuple(lines[-shown:])) if lines else None


def _meta(job: Job) -> Mapping[str, Any]:
    return mapping(job, "metadata")


def _annotation(job: Job, name: str) -> str:
    return text(mapping(_meta(job), "annotations").get(name))


def _rate(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, (int, float)) and not isinstance(value, bool) else ""


def _ready(evaluators: Mapping[str, Any]) -> str:
    ready, target = whole(evaluators.get("ready")), whole(evaluators.get("target"))
    return "-" if ready is None and target is None else f"{ready or 0:,}/{target if target is not None else '?'}"
