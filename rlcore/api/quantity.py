"""Durations ("90s", "1h30m") and Kubernetes quantities ("500m", "4Gi"): pure functions, text to numbers."""

from __future__ import annotations

import re
from fractions import Fraction

DURATION_PATTERN = r"^([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?$"
QUANTITY_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,9})?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"

_DURATION = re.compile(DURATION_PATTERN)
_QUANTITY = re.compile(QUANTITY_PATTERN)
_SECONDS = (86_400, 3_600, 60, 1)
_SUFFIX = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    **{name: Fraction(1000) ** power for power, name in enumerate("kMGTP", start=1)},
    **{name: Fraction(1024) ** power for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), start=1)},
}


def parse_duration(text: str) -> int:
    """Seconds in a duration such as "90s", "5m", "2h", "1d" or "1h30m".

    Raises:
        ValueError: the text is no duration; the message says what is.
    """
    match = _DURATION.match(text)
    if match is None or not text:
        raise ValueError(f'"{text}" is not a duration: write whole numbers with d, h, m, s, such as 90s, 5m or 1h30m')
    return sum(int(part[:-1]) * unit for part, unit in zip(match.groups(), _SECONDS, strict=True) if part)


def format_duration(seconds: int) -> str:
    """The shortest duration text for a number of seconds: 5400 -> "1h30m", 0 -> "0s"."""
    parts = []
    for unit, name in zip(_SECONDS, "dhms", strict=True):
        count, seconds = divmod(seconds, unit)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"


def parse_quantity(text: str) -> Fraction:
    """The exact value of a Kubernetes quantity: "500m" -> 1/2, "4Gi" -> 4294967296.

    Raises:
        ValueError: the text is no quantity; the message says what is.
    """
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(f'"{text}" is not a quantity: write a number with an optional suffix, such as 2, 500m or 4Gi')
    suffix = match.group(2) or ""
    return Fraction(text.removesuffix(suffix)) * _SUFFIX[suffix]


def cores(text: str) -> float:
    """CPU cores in a quantity: "500m" -> 0.5."""
    return float(parse_quantity(text))


def size_bytes(text: str) -> int:
    """Whole bytes in a quantity, rounded up: "4Gi" -> 4294967296."""
    return -int(-parse_quantity(text) // 1)
