"""The error that lists everything wrong with a manifest, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlcore.errors import ManifestError

MAX_SHOWN = 20
"""Problems shown in one message; the rest is counted, so that the first ones stay on the screen."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: where, as the manifest spells it ("spec.evaluators.pools[1].name"); empty for the document as a whole.
        message: what, and what is allowed.
        line: line of the manifest, counted from 1, where it is known.
    """

    path: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return where + (f"{self.path}: {self.message}" if self.path else self.message)


class InvalidManifestError(ManifestError):
    """A manifest with all its problems.

    Args:
        source: name of the file, or "<stdin>".
        problems: at least one, in the order of the lines.
    """

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = [f"{source} is not a valid RLJob: {count}", *(f"  {problem}" for problem in problems[:MAX_SHOWN])]
        if len(problems) > MAX_SHOWN:
            lines.append(f"  and {len(problems) - MAX_SHOWN} more")
        super().__init__("\n".join(lines))
        self.source = source
        self.problems = tuple(problems)
