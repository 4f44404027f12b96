"""metrics.jsonl: one JSON object a line, one line an iteration. A torn last line (a crash, a full disk) is expected."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

METRICS_FILE = "metrics.jsonl"


def read_results(path: Path) -> Iterator[dict[str, Any]]:
    """Each line that is a whole JSON object, in order; lines that are not are passed over."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            result = _parse(line)
            if result is not None:
                yield result


def keep_until(path: Path, iteration: int) -> None:
    """Drop the lines beyond `iteration`, and torn ones: a resumed run will write those iterations again.

    Readers see the old file or the new one, also after a crash. Nothing happens where there is no file.
    """
    if not path.exists():
        return
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            for result in read_results(path):
                if isinstance(result.get("iteration"), int) and result["iteration"] <= iteration:
                    file.write(to_line(result))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def to_line(result: dict[str, Any]) -> str:
    return json.dumps(result, allow_nan=False, separators=(", ", ": ")) + "\n"


def _parse(line: str) -> dict[str, Any] | None:
    if not line.endswith("\n"):
        return None
    try:
        result = json.loads(line, parse_constant=lambda name: None)  # another writer may have written NaN
    except ValueError:
        return None
    return result if isinstance(result, dict) else None
