"""The operator's own metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

RECONCILE_SECONDS = Histogram(
    "rljob_operator_reconcile_seconds",
    "Time of one look at a job, or of one comparison of all, in seconds.",
    ["handler", "result"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    registry=REGISTRY,
)
RECONCILE_ERRORS = Counter(
    "rljob_operator_reconcile_errors",
    "Looks and comparisons that ended in an error and were put off.",
    ["handler", "reason"],
    registry=REGISTRY,
)
JOBS = Gauge("rljob_operator_jobs", "Jobs by phase.", ["phase"], registry=REGISTRY)
RESTARTS = Counter("rljob_operator_restarts", "Attempts that ended by failure.", ["reason"], registry=REGISTRY)
PREEMPTIONS = Counter("rljob_operator_preemptions", "Training pods lost to disruption.", registry=REGISTRY)
QUEUE_DEPTH = Gauge("rljob_operator_queue_depth", "Jobs that wait to be looked at.", registry=REGISTRY)
LEADER = Gauge("rljob_operator_leader", "1 on the replica that acts.", registry=REGISTRY)
STATUS_WRITES = Counter(
    "rljob_operator_status_writes", "Writes of a job's status; live: numbers only.", ["kind"], registry=REGISTRY
)
API_REQUESTS = Counter(
    "rljob_operator_api_requests",
    "Requests to the API server; code 0: no answer.",
    ["verb", "resource", "code"],
    registry=REGISTRY,
)
