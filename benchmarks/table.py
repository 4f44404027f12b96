"""From records to the tables in docs/benchmarks.md: pure functions over text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.figures import in_words

BEGIN = "<!-- results: written by `python -m benchmarks`, do not edit -->"
END = "<!-- end of results -->"
KINDS = {"ours": "**rlcore**", "peer": "peer", "limit": "limit"}

Record = dict[str, Any]


def section(record: Record) -> str:
    """One benchmark's heading, conditions, table and targets."""
    lines = [f"### {record['title']}", "", record["conditions"], "", *_table(record), ""]
    lines += [f"- {_verdict(target, target.get('unit') or record['unit'])}" for target in record["targets"]]
    before, after = record["load_average"]
    took = f"Recorded {record['date']}; load average {before:g} before and {after:g} after."
    return "\n".join([*lines, "", took])


def document(text: str, records: Sequence[Record]) -> str:
    """`text` with everything between its two markers replaced by the records.

    Raises:
        ValueError: a marker is missing, or they are the wrong way round.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no place for results: the text needs the lines {BEGIN!r} and {END!r}, in this order")
    parts = [BEGIN, *_machines(records), *(section(record) for record in records), END]
    return head + "\n\n".join(parts) + tail


def _machines(records: Sequence[Record]) -> list[str]:
    """One line for each machine and set of versions; usually one."""
    seen = {}
    for record in records:
        line = ", ".join(f"{name} {value}" for name, value in record["machine"].items())
        seen.setdefault(line, []).append(record["benchmark"])
    if len(seen) == 1:
        return [f"Measured on: {next(iter(seen))}."]
    return [f"Measured on, for {', '.join(names)}: {line}." for line, names in seen.items()]


def _table(record: Record) -> list[str]:
    median = f"median, {record['unit']}" if record["unit"] else "median"
    lines = [
        f"| | | {median} | lowest to highest | cores x threads | core share | rlcore / this |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in record["rows"]:
        present = [value for value in row["values"] if value is not None]
        where = f"{row['cores']} x {row['threads']}" if "cores" in row else ""
        if present:
            spread = f"{in_words(min(present))} to {in_words(max(present))}"
            cells = [
                in_words(row["median"], row.get("unit", "")),
                spread,
                where,
                _core_share(row),
                _times(row["ratio"]),
            ]
        else:
            cells = [f"not measured: {_cell(row.get('error') or 'a part failed')}", "", where, "", ""]
        lines.append(f"| {KINDS[row['kind']]} | {row['label']} | " + " | ".join(cells) + " |")
    return lines


def _verdict(target: Record, unit: str) -> str:
    if target["met"] is None:
        return f"{target['text']}: not measured"
    value = _times(target["value"]) if target["ratio"] else in_words(target["value"], unit)
    return f"{target['text']}: {value}, {'met' if target['met'] else 'missed'}"


def _core_share(row: Record) -> str:
    """The smallest share of the measured time that the process had its core; "" for several processes."""
    shares = [details["cpu_share"] for details in row.get("details", []) if "cpu_share" in details]
    return f"{min(shares):.0%}" if shares else ""


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")[:200]
