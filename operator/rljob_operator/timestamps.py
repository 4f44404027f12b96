"""Times as the API server writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def to_rfc3339(seconds: float) -> str:
    """Seconds since 1970 as 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_seconds(text: str | None) -> float | None:
    """The other way round; None for None and for what is no time."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
