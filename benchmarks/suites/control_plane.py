"""The operator: how soon it acts, how much it bears, and what it costs."""

from __future__ import annotations

from benchmarks.model import Benchmark, Beside, Row, Target

JOBS = 300
_JOBS, _FEW = {"jobs": JOBS}, {"jobs": 20}

OPERATOR = Benchmark(
    name="operator",
    title=f"The operator and {JOBS} RLJobs",
    unit="",
    conditions="A real control plane on this machine's two cores: etcd, API server, controller manager, scheduler, and "
    "nodes played by kwok; KubeRay's stand-in makes pods and scripted drivers. The operator runs with the chart's own "
    "settings under its own ServiceAccount. A job has a head, a learner and one evaluator, and a claim of its own. "
    "Apply to RayJob: from before the request that creates an RLJob until a watch of ours tells of its RayJob, one job "
    "after another on an operator that is idle otherwise, without KubeRay. At once: all RLJobs are created by 16 "
    "requests at a time, and the clock begins with the first; the limit row creates the very same RayJobs, ConfigMaps "
    "and claims so, without RLJobs and operator: most of the time is what all the others on the two cores need for "
    "themselves. Memory is resident memory. Requests are counted by a proxy between operator and API server in runs of "
    "their own, from the first RLJob until the last one is Running, watches, lists and the operator's Lease included; "
    "the results' JSON has them by verb and resource. While they train means the half minute after that, or the minute "
    "for the status writes.",
    rows=(
        Row(
            "latency",
            "apply to RayJob, median",
            "ours",
            "operator_latency",
            {"jobs": 30, "pause_s": 0.5},
            {"jobs": 5},
            cores=2,
            unit="ms",
        ),
        Row(
            "many",
            f"{JOBS} at once: all Running",
            "ours",
            "operator_many",
            {**_JOBS, "watch_s": 30, "counted": False},
            {**_FEW, "watch_s": 5},
            cores=2,
            unit="s",
        ),
        Row(
            "alone",
            f"{JOBS} RayJobs at once, without the operator: all Running",
            "limit",
            "ray_jobs_alone",
            _JOBS,
            _FEW,
            cores=2,
            against="many",
            unit="s",
        ),
        Row(
            "counted",
            "60 at once, behind the counting proxy: all Running",
            "ours",
            "operator_many",
            {"jobs": 60, "watch_s": 60, "counted": True},
            {**_FEW, "watch_s": 5},
            cores=2,
            unit="s",
        ),
    ),
    beside=(
        Beside("p95", "apply to RayJob, 95th percentile", "latency", "p95", "ms"),
        Beside("created", f"{JOBS} at once: all RayJobs created", "many", "created_s", "s"),
        Beside("provisioned", f"{JOBS} at once: all Provisioned", "many", "provisioned_s", "s"),
        Beside("memory-none", "memory without a job", "many", "rss_before_mib", "MiB"),
        Beside("memory", f"memory with {JOBS} jobs, peak", "many", "peak_mib", "MiB"),
        Beside("memory-new", f"memory when started with {JOBS} jobs there, peak", "many", "new_mib", "MiB"),
        Beside("cpu", "CPU time a job, until all are Running", "many", "cpu_s_per_job", "s"),
        Beside("cpu-server", "API server's CPU time a job", "many", "api_server_cpu_s_per_job", "s"),
        Beside("cpu-training", f"CPU in use while {JOBS} jobs train", "many", "training_cores", "cores"),
        Beside("cpu-alone", "API server's CPU time a RayJob", "alone", "api_server_cpu_s_per_job", "s"),
        Beside("requests", "requests a job, until all are Running", "counted", "requests_per_job"),
        Beside("writes", "status writes a job and minute while it trains", "counted", "status_writes_per_minute"),
    ),
    targets=(
        Target("latency", 300, at_most=True),
        Target("provisioned", 60, at_most=True),
        Target("memory", 250, at_most=True),
        Target("memory-new", 250, at_most=True),
        Target("writes", 1, at_most=True),
    ),
)
