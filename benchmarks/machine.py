"""One line on what was measured on: a figure without it means nothing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numpy", "torch", "gymnasium", "ray", "ale-py", "envpool", "lz4")


def describe_machine() -> dict[str, str]:
    """CPU, cores, memory, system and the versions of what does the work."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": cpu_model(),
        "cores": str(cores),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := _version(name))},
    }


def cpu_model() -> str:
    """The processor's name, as the system calls it."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        named = {key.strip(): value.strip() for key, value in fields.items()}
        family = f" (family {named['cpu family']}, model {named['model']})" if "cpu family" in named else ""
        return named.get("model name", platform.machine()) + family
    return platform.processor() or platform.machine()


def load_average() -> float:
    """Processes that wanted a core, over the last minute."""
    return round(os.getloadavg()[0], 2)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
