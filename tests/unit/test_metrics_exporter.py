"""Prometheus metrics: parsed as Prometheus parses them, named by its conventions, never a counter that falls."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from rlcore.metrics.exporter import MAX_LEARNER_METRICS, MetricsExporter, policy_and_metric
from rlcore.metrics.result import IterationResult


def make_result(iteration: int, **changes: Any) -> IterationResult:
    values: dict[str, Any] = {
        "iteration": iteration,
        "timesteps": 100 * iteration,
        "timesteps_this_iteration": 100,
        "episodes": 5 * iteration,
        "timesteps_per_s": 1000.0,
        "sample_time_s": 0.05,
        "learn_time_s": 0.04,
        "wait_time_s": 0.01,
        "elapsed_s": 0.1 * iteration,
        "evaluators": 2,
    }
    return IterationResult(**(values | changes))


@pytest.fixture
def exporter() -> MetricsExporter:
    return MetricsExporter(job="cartpole-ppo", algorithm="PPO", environment="CartPole-v1")


def families(exporter: MetricsExporter) -> dict[str, Metric]:
    return {
        family.name: family for family in text_string_to_metric_families(generate_latest(exporter.registry).decode())
    }


def value(exporter: MetricsExporter, name: str, **labels: str) -> float | None:
    return exporter.registry.get_sample_value(name, labels)


FULL = make_result(
    3,
    episode_reward_mean=21.5,
    learner={"kl": 0.01, "learning_rate": 3e-4},
    optimizer={"late_timesteps": 40, "discarded_timesteps": 2, "policy_staleness": 1.5},
    environment_failures=1,
    checkpoint_timesteps=200,
    checkpoint_time_s=0.3,
    evaluation={"episode_reward_mean": 30.0, "episodes": 10, "timesteps": 200},
)


def test_names_units_and_help_follow_the_conventions(exporter: MetricsExporter) -> None:
    exporter.observe(FULL)
    for name, family in families(exporter).items():
        assert re.fullmatch(r"rlcore_[a-z][a-z0-9_]*", name), name
        assert family.documentation, name
        assert not re.search(r"_(ms|milliseconds|minutes|count|s)$", name), name
        if family.type == "counter":
            assert all(
                sample.name.endswith("_total") for sample in family.samples if not sample.name.endswith("_created")
            )
        else:
            assert not name.endswith("_total")


def test_openmetrics_accepts_it_too(exporter: MetricsExporter) -> None:
    exporter.observe(FULL)
    names = {family.name for family in parse_openmetrics(generate_openmetrics(exporter.registry).decode())}
    assert {"rlcore", "rlcore_timesteps", "rlcore_step_seconds"} <= names


def test_everything_that_was_promised_is_exported(exporter: MetricsExporter) -> None:
    exporter.observe(FULL)
    expected = {
        "rlcore_timesteps_total": 300,
        "rlcore_episodes_total": 15,
        "rlcore_iterations_total": 3,
        "rlcore_episode_reward_mean": 21.5,
        "rlcore_timesteps_per_second": 1000,
        "rlcore_late_timesteps_total": 40,
        "rlcore_discarded_timesteps_total": 2,
        "rlcore_environment_failures_total": 1,
        "rlcore_evaluators": 2,
        "rlcore_policy_staleness": 1.5,
        "rlcore_checkpoint_timesteps": 200,
        "rlcore_checkpoint_seconds": 0.3,
        "rlcore_evaluation_episode_reward_mean": 30.0,
    }
    assert {name: value(exporter, name) for name in expected} == expected
    assert value(exporter, "rlcore_learner_kl", policy="default") == 0.01
    info = {"job": "cartpole-ppo", "algorithm": "PPO", "environment": "CartPole-v1"}
    assert value(exporter, "rlcore_info", **info) == 1


def test_what_is_not_known_yet_is_nan_and_not_zero(exporter: MetricsExporter) -> None:
    exporter.observe(make_result(1))
    for name in ("episode_reward_mean", "checkpoint_timesteps", "policy_staleness", "checkpoint_seconds"):
        assert math.isnan(value(exporter, f"rlcore_{name}") or 0.0), name


def test_step_times_are_histograms_by_stage(exporter: MetricsExporter) -> None:
    exporter.observe(make_result(1))
    exporter.observe(make_result(2, checkpoint_time_s=2.0))
    assert value(exporter, "rlcore_step_seconds_count", stage="sample") == 2
    assert value(exporter, "rlcore_step_seconds_sum", stage="learn") == pytest.approx(0.08)
    assert value(exporter, "rlcore_step_seconds_bucket", stage="sample", le="0.05") == 2
    assert value(exporter, "rlcore_step_seconds_count", stage="checkpoint") == 1
    assert value(exporter, "rlcore_step_seconds_count", stage="evaluate") is None


def test_counters_start_at_the_totals_of_a_resumed_job(exporter: MetricsExporter) -> None:
    exporter.observe(make_result(50))
    assert value(exporter, "rlcore_timesteps_total") == 5000
    exporter.observe(make_result(51))
    assert value(exporter, "rlcore_timesteps_total") == 5100


def test_counters_never_fall_when_a_job_goes_back_to_a_checkpoint(exporter: MetricsExporter) -> None:
    seen = []
    for iteration in (9, 10, 5, 6, 7):
        exporter.observe(make_result(iteration))
        seen.append(value(exporter, "rlcore_timesteps_total"))
    assert seen == [900, 1000, 1000, 1100, 1200]


def test_learner_statistics_of_each_policy_are_one_metric_with_a_label(exporter: MetricsExporter) -> None:
    exporter.observe(make_result(1, learner={"left/kl": 0.1, "right/kl": 0.2, 'odd "name"/\n/Value Loss': 0.3}))
    assert value(exporter, "rlcore_learner_kl", policy="left") == 0.1
    assert value(exporter, "rlcore_learner_kl", policy="right") == 0.2
    [odd] = families(exporter)["rlcore_learner_value_loss"].samples
    assert odd.labels == {"policy": 'odd "name"/\n'}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("kl", ("default", "kl")),
        ("left/kl", ("left", "kl")),
        ("a/b/kl", ("a/b", "kl")),
        ("Value-Loss", ("default", "value_loss")),
        ("left/", ("default", "left_")),
    ],
)
def test_learner_keys_are_taken_apart(key: str, expected: tuple[str, str]) -> None:
    assert policy_and_metric(key) == expected


def test_a_learner_cannot_add_names_without_end(exporter: MetricsExporter) -> None:
    exporter.observe(make_result(1, learner={f"statistic_{n}": 1.0 for n in range(MAX_LEARNER_METRICS + 50)}))
    assert sum(name.startswith("rlcore_learner_") for name in families(exporter)) == MAX_LEARNER_METRICS
