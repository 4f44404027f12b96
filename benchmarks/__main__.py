"""Runs benchmarks and records them: `python -m benchmarks [NAME ...] [--repeats N] [--quick]`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.process import ROOT
from benchmarks.runner import Record, run_benchmark
from benchmarks.suites import BENCHMARKS
from benchmarks.table import document

RESULTS = ROOT / "benchmarks" / "results"
DOCUMENT = ROOT / "docs" / "benchmarks.md"


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 1 if a row of ours could not be measured."""
    options = _options(argv)
    failed = False
    for name in options.names or list(BENCHMARKS):
        benchmark = BENCHMARKS[name]
        rounds = options.repeats or (1 if options.quick else benchmark.fewest_rounds)
        record = run_benchmark(benchmark, rounds, quick=options.quick, say=_say)
        for target in record["targets"]:
            _say(f"  {'?' if target['met'] is None else 'met' if target['met'] else 'MISSED'}: {target['text']}")
        failed |= any(row["kind"] == "ours" and row["median"] is None for row in record["rows"])
        if not options.quick:
            (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
            DOCUMENT.write_text(document(DOCUMENT.read_text(), recorded()))
            _say(f"  recorded in {DOCUMENT.relative_to(ROOT)}")
    return int(failed)


def recorded() -> list[Record]:
    """All records there are, in the order of the benchmarks."""
    paths: list[Path] = [RESULTS / f"{name}.json" for name in BENCHMARKS]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all if none is given")
    parser.add_argument("--repeats", type=int, help="rounds; 3 if not given (5 for command-line), and then recorded")
    parser.add_argument("--quick", action="store_true", help="short runs, to see that everything works: not recorded")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if options.repeats is not None and options.repeats < (1 if options.quick else 3):
        parser.error("a recorded median needs --repeats 3 or more")
    return options


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
