"""Prometheus metrics of one job, in a registry of their own; observed once an iteration, read at each scrape.

Names follow Prometheus' conventions: base units (seconds; timesteps are agent steps), `_total` for counters.
Gauges that are not known yet are NaN, never a zero that looks like a measurement.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from rlcore.metrics.result import IterationResult

STEP_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 150.0, 600.0)
SINGLE_POLICY = "default"
"""Value of the label `policy` where a job has only one."""
MAX_LEARNER_METRICS = 100
"""Names a learner can add; what a custom policy reports must not grow the scrape without end."""

_POLICY_METRIC = re.compile(r"(?:(?P<policy>.+)/)?(?P<metric>[^/]+)", re.DOTALL)


class MetricsExporter:
    """Turns results into metrics named `rlcore_*`.

    Counters count what this process saw, starting at the totals it resumed with; when totals fall (the job went back
    to a checkpoint) a counter stands still and goes on from there: it never decreases.
    """

    def __init__(self, *, job: str, algorithm: str, environment: str) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._lock = threading.Lock()
        self._seen: dict[str, float] = {}
        self._learner: dict[str, Gauge] = {}
        Info("rlcore", "What this job trains", registry=self.registry).info(
            {"job": job, "algorithm": algorithm, "environment": environment}
        )
        self._counters = {
            "timesteps": self._counter("timesteps", "Agent steps trained on"),
            "episodes": self._counter("episodes", "Episodes finished while sampling"),
            "iterations": self._counter("iterations", "Training iterations"),
            "late_timesteps": self._counter("late_timesteps", "Timesteps that came a round late and were kept"),
            "discarded_timesteps": self._counter("discarded_timesteps", "Timesteps sampled and not trained on"),
            "environment_failures": self._counter("environment_failures", "Exceptions raised by environments"),
        }
        self._gauges = {
            "episode_reward_mean": self._gauge("episode_reward_mean", "Mean reward of the last 100 episodes"),
            "episode_reward_min": self._gauge("episode_reward_min", "Lowest reward of the last 100 episodes"),
            "episode_reward_max": self._gauge("episode_reward_max", "Highest reward of the last 100 episodes"),
            "episode_length_mean": self._gauge("episode_length_timesteps", "Mean length of the last 100 episodes"),
            "timesteps_per_s": self._gauge("timesteps_per_second", "Timesteps per second of the last iteration"),
            "evaluators": self._gauge("evaluators", "Healthy evaluators"),
            "policy_staleness": self._gauge("policy_staleness", "Updates between the policy that sampled and now"),
            "evaluation_reward_mean": self._gauge(
                "evaluation_episode_reward_mean", "Mean reward of the newest evaluation of the deterministic policy"
            ),
            "checkpoint_timesteps": self._gauge("checkpoint_timesteps", "Timesteps in the newest complete checkpoint"),
            "checkpoint_s": self._gauge("checkpoint_seconds", "Time the newest checkpoint took to write"),
            "checkpoint_time_s": self._gauge(
                "checkpoint_timestamp_seconds", "When the newest checkpoint was complete, since 1970"
            ),
        }
        self._step_seconds = Histogram(
            "rlcore_step_seconds",
            "Time of one iteration by stage",
            ["stage"],
            registry=self.registry,
            buckets=STEP_BUCKETS_S,
        )

    def observe(self, result: IterationResult) -> None:
        """Take in one iteration."""
        with self._lock:
            self._count(
                {
                    "timesteps": result.timesteps,
                    "episodes": result.episodes,
                    "iterations": result.iteration,
                    "late_timesteps": result.optimizer.get("late_timesteps", 0),
                    "discarded_timesteps": result.optimizer.get("discarded_timesteps", 0),
                    "environment_failures": result.environment_failures,
                }
            )
            self._measure(result)
            self._observe_times(result)
            for key, value in result.learner.items():
                self._learner_gauge(key, value)

    def _count(self, totals: Mapping[str, float]) -> None:
        for name, total in totals.items():
            increase = total - self._seen.get(name, 0)
            self._seen[name] = total
            if increase > 0:
                self._counters[name].inc(increase)

    def _measure(self, result: IterationResult) -> None:
        values: dict[str, float | None] = {
            "episode_reward_mean": result.episode_reward_mean,
            "episode_reward_min": result.episode_reward_min,
            "episode_reward_max": result.episode_reward_max,
            "episode_length_mean": result.episode_length_mean,
            "timesteps_per_s": result.timesteps_per_s,
            "evaluators": result.evaluators,
            "policy_staleness": result.optimizer.get("policy_staleness"),
            "evaluation_reward_mean": (result.evaluation or {}).get("episode_reward_mean"),
            "checkpoint_timesteps": result.checkpoint_timesteps,
        }
        if result.checkpoint_time_s > 0:
            values |= {"checkpoint_s": result.checkpoint_time_s, "checkpoint_time_s": time.time()}
        for name, value in values.items():
            self._gauges[name].set(math.nan if value is None else value)

    def _observe_times(self, result: IterationResult) -> None:
        for stage, time_s in (
            ("sample", result.sample_time_s),
            ("learn", result.learn_time_s),
            ("wait", result.wait_time_s),
        ):
            self._step_seconds.labels(stage).observe(time_s)
        # These two are not part of every iteration; zeros would hide what one costs.
        for stage, time_s in (("checkpoint", result.checkpoint_time_s), ("evaluate", result.evaluate_time_s)):
            if time_s > 0:
                self._step_seconds.labels(stage).observe(time_s)

    def _learner_gauge(self, key: str, value: float) -> None:
        policy, metric = policy_and_metric(key)
        name = "learner_" + metric
        if name not in self._learner:
            if len(self._learner) >= MAX_LEARNER_METRICS:
                return
            self._learner[name] = self._gauge(name, f"Learner statistic {metric}, mean of the last iteration", "policy")
        self._learner[name].labels(policy).set(value)

    def _counter(self, name: str, description: str) -> Counter:
        return Counter(f"rlcore_{name}", description, registry=self.registry)

    def _gauge(self, name: str, description: str, *labels: str) -> Gauge:
        gauge = Gauge(f"rlcore_{name}", description, labels, registry=self.registry)
        if not labels:
            gauge.set(math.nan)
        return gauge


def policy_and_metric(key: str) -> tuple[str, str]:
    """Take `policy_id/kl` or `kl` apart into (policy, metric); the metric is made fit for a metric's name."""
    match = _POLICY_METRIC.fullmatch(key)
    policy, metric = (match["policy"], match["metric"]) if match else (None, key)
    return policy or SINGLE_POLICY, re.sub(r"[^a-zA-Z0-9_]", "_", metric).lower()
