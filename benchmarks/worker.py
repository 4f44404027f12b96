"""The side of a measurement that runs in a process of its own. Standard library only: it runs in every environment.

A worker takes its arguments as one JSON object and prints one line that begins with RESULT.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

RESULT = "RESULT "


def arguments() -> dict[str, Any]:
    """What the runner asked for."""
    return dict(json.loads(sys.argv[1]))


def report(value: float, **details: Any) -> None:
    """Hands the figure back; details are kept beside it."""
    print(RESULT + json.dumps({"value": value, "details": details}), flush=True)


def rate(work: Callable[[], float], seconds: float) -> tuple[float, dict[str, float]]:
    """Units of work per second of calling `work`, which returns the units that it did.

    A tenth of the time goes by before the clock starts. Returns the rate, and as details the share of the time that
    this process had a core: less than 1 means that others took it.
    """
    _work_for(work, seconds / 10)
    cpu_started = time.process_time()
    units, elapsed = _work_for(work, seconds)
    return units / elapsed, {"cpu_share": (time.process_time() - cpu_started) / elapsed}


def _work_for(work: Callable[[], float], seconds: float) -> tuple[float, float]:
    started = time.perf_counter()
    units = 0.0
    while (elapsed := time.perf_counter() - started) < seconds or not units:
        units += work()
    return units, elapsed
