"""Whom a run tells how it goes: a person, the metrics endpoint, the status page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rlcore.metrics.exporter import MetricsExporter
from rlcore.metrics.result import IterationResult
from rlcore.metrics.server import MetricsServer
from rlcore.metrics.status import StatusBoard


class Display(Protocol):
    """Shows a person how it goes."""

    def message(self, text: str) -> None:
        """One line."""

    def start(self) -> None:
        """Training begins."""

    def update(self, result: IterationResult) -> None:
        """An iteration is over."""

    def stop(self) -> None:
        """Training is over."""


@dataclass(frozen=True)
class Outputs:
    """Whom a run tells how it goes."""

    display: Display
    board: StatusBoard
    exporter: MetricsExporter
    server: MetricsServer
