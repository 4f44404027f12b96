"""Runs a benchmark's rows in turn (A B C A B C ...) and puts what came out into a plain record."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.figures import in_words, middle, one_after_the_other, ratio
from benchmarks.installation import InstallationError, peer_python
from benchmarks.machine import describe_machine, load_average
from benchmarks.model import Benchmark, Row, Target
from benchmarks.process import WorkerError, run_worker

Say = Callable[[str], None]
Record = dict[str, Any]


def run_benchmark(benchmark: Benchmark, rounds: int, *, quick: bool, say: Say) -> Record:
    """Runs every row `rounds` times and returns the record: JSON, see `docs/benchmarks.md`."""
    say(f"{benchmark.title} ({benchmark.unit or 'several units'}, {rounds} rounds)")
    load_before = load_average()
    measured = {row.key: _empty(row) for row in benchmark.rows}
    pythons = {row.key: _python(row, measured[row.key], say) for row in benchmark.rows}
    started = time.monotonic()
    for number in range(1, rounds + 1):
        for row in benchmark.rows:
            record = measured[row.key]
            _measure(row, pythons[row.key], record, quick=quick)
            last = record["values"][-1]
            told = in_words(last, row.unit or benchmark.unit) if last is not None else f"failed: {record['error']}"
            say(f"  round {number}/{rounds}  {time.monotonic() - started:5.0f} s  {row.label}: {told}")
    return {
        "benchmark": benchmark.name,
        "title": benchmark.title,
        "unit": benchmark.unit,
        "conditions": benchmark.conditions,
        "quick": quick,
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine(),
        "load_average": [load_before, load_average()],
        **summarize(benchmark, measured),
    }


def summarize(benchmark: Benchmark, measured: dict[str, Record]) -> Record:
    """Adds computed limits, medians, ratios and the verdict on each target to the measured rows."""
    rows = _with_figures_beside(benchmark, measured)
    for limit in benchmark.computed:
        values = one_after_the_other([rows[part]["values"] for part in limit.parts])
        rows[limit.key] = {"label": limit.label, "kind": "limit", "values": values, "against": limit.against}
    for key, row in rows.items():
        row["median"] = middle(row["values"])
        compared = row["kind"] != "ours" and row["against"]
        row["ratio"] = ratio(rows[row["against"]]["values"], row["values"]) if compared else None
        row["key"] = key
    verdicts = [judge(target, rows, benchmark.unit) for target in benchmark.targets]
    return {"rows": list(rows.values()), "targets": verdicts}


def _with_figures_beside(benchmark: Benchmark, measured: dict[str, Record]) -> dict[str, Record]:
    """Copies of the rows, each followed by those that its details make."""
    rows = {}
    for key, row in measured.items():
        rows[key] = dict(row)
        for beside in benchmark.beside:
            if beside.of == key:
                # A round that failed has no details.
                details = iter(row["details"])
                values = [next(details).get(beside.detail) if value is not None else None for value in row["values"]]
                made = {"label": beside.label, "unit": beside.unit, "values": values, "details": []}
                rows[beside.key] = {**row, **made}
    return rows


def judge(target: Target, rows: dict[str, Record], unit: str) -> Record:
    """Whether a target is met: its sentence, the figure, and true, false, or None where nothing was measured."""
    row = rows[target.row]
    unit = row.get("unit") or unit
    value = row["median"] if target.of is None else ratio(row["values"], rows[target.of]["values"])
    side = "at most" if target.at_most else "at least"
    if target.of is None:
        text = f"{row['label']}: {side} {in_words(target.bound, unit)}"
    else:
        text = f"{row['label']}: {side} {target.bound:g} times {rows[target.of]['label']}"
    met = None if value is None else (value <= target.bound if target.at_most else value >= target.bound)
    return {"text": text, "value": value, "met": met, "ratio": target.of is not None, "unit": unit}


def _empty(row: Row) -> Record:
    return {
        "label": row.label,
        "kind": row.kind,
        "cores": row.cores,
        "threads": row.threads,
        "against": row.against,
        "unit": row.unit,
        "values": [],
        "details": [],
        "error": None,
    }


def _python(row: Row, record: Record, say: Say) -> Path | None:
    """The interpreter that runs a row; None where its peer cannot be installed, which the record then says."""
    if row.peer is None:
        return Path(sys.executable)
    try:
        return peer_python(row.peer)
    except InstallationError as error:
        record["error"] = f"cannot be installed: {error}"
        say(f"  {row.label} {record['error']}")
        return None


def _measure(row: Row, python: Path | None, record: Record, *, quick: bool) -> None:
    """Adds one round's figure to a record; None, and the reason, where there is none."""
    if python is None:
        record["values"].append(None)
        return
    try:
        value, details = run_worker(row, python, quick=quick)
    except WorkerError as error:
        record["error"] = str(error)
        record["values"].append(None)
        return
    record["values"].append(value)
    record["details"].append(details)
