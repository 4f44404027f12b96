"""What a benchmark is, and what a run of it leaves: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["ours", "peer", "limit"]


@dataclass(frozen=True)
class Row:
    """One line of a benchmark: something that is run once a round, in a process of its own.

    Attributes:
        key: name within the benchmark.
        label: what a reader sees.
        kind: ours, somebody else's, or a limit that nobody can pass.
        worker: module under benchmarks.workers.
        arguments: for the worker, JSON.
        quick_arguments: what `--quick` puts in their place.
        peer: file under peers/ whose environment the worker runs in; None for ours.
        cores: CPU cores that the process may use.
        threads: OpenMP and BLAS threads of one process.
        against: key of the row that is divided by this one; empty: none is.
        unit: of this row's figure, where it is not the benchmark's.
    """

    key: str
    label: str
    kind: Kind
    worker: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    quick_arguments: Mapping[str, Any] = field(default_factory=dict)
    peer: str | None = None
    cores: int = 1
    threads: int = 1
    against: str = "ours"
    unit: str = ""


@dataclass(frozen=True)
class Beside:
    """Another figure of a row's own runs: one of its worker's details.

    Attributes:
        key: name within the benchmark.
        label: what a reader sees.
        of: key of the row.
        detail: name of the figure among the details.
        unit: of the figure, where it is not the benchmark's.
    """

    key: str
    label: str
    of: str
    detail: str
    unit: str = ""


@dataclass(frozen=True)
class OneAfterTheOther:
    """A computed limit: the rate of doing several rows' work in turn, 1 / sum(1 / rate)."""

    key: str
    label: str
    parts: tuple[str, ...]
    against: str = "ours"


@dataclass(frozen=True)
class Target:
    """What a row should reach.

    Attributes:
        row: key of the row.
        bound: the number to reach, in the row's unit; with `of`, a ratio.
        of: key of the row that `row` is divided by.
        at_most: the bound is an upper one.
    """

    row: str
    bound: float
    of: str | None = None
    at_most: bool = False


@dataclass(frozen=True)
class Benchmark:
    """Rows that are run in turn, round after round.

    Attributes:
        name: on the command line, and of the file with its results.
        title: heading in the documentation.
        unit: of every row's figure; empty where each has its own.
        conditions: sentences on what is the same for all rows, and what is not.
        rows: in the order of a round.
        beside: what the same runs also measure; shown below their rows.
        computed: limits that follow from other rows.
        targets: what is to be reached.
        fewest_rounds: rounds that a recorded run has at least.
    """

    name: str
    title: str
    unit: str
    conditions: str
    rows: tuple[Row, ...]
    beside: tuple[Beside, ...] = ()
    computed: tuple[OneAfterTheOther, ...] = ()
    targets: tuple[Target, ...] = ()
    fewest_rounds: int = 3
