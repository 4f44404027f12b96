"""What all tests share: a real, small, local Ray, started once and only where a test asks for it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

# Before numpy and torch are imported anywhere: two cores are shared by the test, Ray and its actors.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """A Ray of this machine with room for four one-core actors and a learner."""
    import ray

    from rlcore.driver.ray_session import quiet

    quiet()
    ray.init(
        address="local",
        num_cpus=4,
        resources={"learner": 1},
        include_dashboard=False,
        object_store_memory=256 * 1024**2,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": os.getcwd()}},
    )
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def no_handlers_left() -> Iterator[None]:
    """`rlcore run` in this process makes the root logger write to its test's stderr, which is closed after the test."""
    yield
    for handler in [h for h in logging.root.handlers if type(h) is logging.StreamHandler]:
        logging.root.removeHandler(handler)


REQUIRED = frozenset(filter(None, os.environ.get("RLCORE_TEST_REQUIRE", "").split(",")))
"""Tiers (folders of tests/) of which nothing may be left out: CI names them all."""

_outcomes: dict[str, dict[str, int]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counts what became of each tier's tests."""
    if report.when == "call" or report.skipped:
        tier = report.nodeid.split("/")[1] if report.nodeid.count("/") > 1 else "unit"
        counts = _outcomes.setdefault(tier, {})
        counts[report.outcome] = counts.get(report.outcome, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails where a required tier ran nothing, or left something out."""
    if session.exitstatus == 0 and not session.config.option.collectonly and incomplete_tiers():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what each tier did, and which required one is incomplete."""
    for tier, counts in sorted(_outcomes.items()):
        terminalreporter.write_line(f"tier {tier}: " + ", ".join(f"{n} {name}" for name, n in sorted(counts.items())))
    for tier in sorted(incomplete_tiers()):
        terminalreporter.write_line(f"tier {tier} is required (RLCORE_TEST_REQUIRE) and is not complete", red=True)


def incomplete_tiers() -> set[str]:
    """Required tiers that ran nothing or skipped something."""
    return {tier for tier in REQUIRED if not _outcomes.get(tier, {}).get("passed") or _outcomes[tier].get("skipped")}
