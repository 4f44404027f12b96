"""Creates many RLJobs at once, waits until all train, then watches them train for a while."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from typing import Any

from benchmarks.worker import arguments, report
from benchmarks.workers.control_plane import (
    DEADLINE_S,
    KUBERAY_POLL_S,
    Manifest,
    Seen,
    Usage,
    all_at_once,
    api_of,
    cluster_for,
    operator_in,
    rl_job,
    watching,
)
from tests.kube.cluster import Cluster
from tests.kube.operator_process import OperatorProcess
from tests.kube.proxy import FaultProxy
from tests.kube.wait import eventually
from tests.kuberay.api import RAY_JOBS, RL_JOBS
from tests.kuberay.standin import KubeRayStandIn

SETTLED_S = 10.0
STATUS = ("patch", "rljobs/status")

Figures = dict[str, Any]


def main() -> None:
    """Seconds until all are Running; refuses where the operator had errors other than conflicts.

    `counted` puts a proxy between operator and API server, which counts their requests.
    """
    wanted = arguments()
    jobs, watch_s = int(wanted["jobs"]), float(wanted["watch_s"])
    with (
        cluster_for(jobs) as cluster,
        FaultProxy(cluster) if wanted["counted"] else nullcontext() as proxy,
        KubeRayStandIn(cluster, "pods", poll_s=KUBERAY_POLL_S),
        operator_in(cluster, proxy) as operator,
    ):
        figures = up_to_running(cluster, operator, jobs)
        if proxy:
            figures |= {"requests_per_job": proxy.counts.total() / jobs, "requests": take_counts(proxy)}
        figures |= while_they_train(operator, watch_s)
        if proxy:
            figures["status_writes_per_minute"] = proxy.counts[STATUS] / jobs / watch_s * 60
            figures["requests_in_training"] = take_counts(proxy)
        figures["errors"] = errors(operator)
        figures["new_mib"] = started_anew(operator, jobs).peak_mib
    report(figures["running_s"], **figures)


def up_to_running(cluster: Cluster, operator: OperatorProcess, jobs: int) -> Figures:
    """Times from the first request on, and what operator and API server used until all jobs are Running."""
    pids = {"cpu_s_per_job": operator.pid, "api_server_cpu_s_per_job": cluster.control_plane.api_server.pid}
    before = {name: Usage.of(pid) for name, pid in pids.items()}
    times = asyncio.run(create_all(cluster, jobs))
    used = {name: (Usage.of(pid).cpu_s - before[name].cpu_s) / jobs for name, pid in pids.items()}
    return {"jobs": jobs, **times, **used, "rss_before_mib": before["cpu_s_per_job"].rss_mib}


async def create_all(cluster: Cluster, jobs: int) -> Figures:
    """Seconds until something was true of all jobs."""
    seen = {
        "created_s": Seen(RAY_JOBS, bool),
        "provisioned_s": Seen(RL_JOBS, is_provisioned),
        "running_s": Seen(RL_JOBS, lambda job: job.get("status", {}).get("phase") == "Running"),
    }
    async with api_of(cluster) as api, watching(api, *seen.values()):
        started = time.perf_counter()
        await all_at_once(api.create(RL_JOBS, rl_job(f"job-{number}")) for number in range(jobs))
        applied_s = time.perf_counter() - started
        deadline = time.monotonic() + DEADLINE_S
        times = {name: await one.wait_for(jobs, deadline) - started for name, one in seen.items()}
    return {"applied_s": applied_s, **times}


def is_provisioned(job: Manifest) -> bool:
    """Whether its condition says so."""
    conditions = job.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Provisioned" and condition["status"] == "True" for condition in conditions)


def while_they_train(operator: OperatorProcess, watch_s: float) -> Figures:
    """What the operator uses when nothing but training happens."""
    before = Usage.of(operator.pid)
    time.sleep(watch_s)
    after = Usage.of(operator.pid)
    cores = (after.cpu_s - before.cpu_s) / watch_s
    return {"training_cores": cores, "rss_mib": after.rss_mib, "peak_mib": after.peak_mib}


def started_anew(operator: OperatorProcess, jobs: int) -> Usage:
    """What an operator needs to take in all that is there."""
    operator.stop()
    operator.start()
    eventually(lambda: operator.metric("rljob_operator_jobs", phase="Running") == jobs, 60, what="all jobs known")
    time.sleep(SETTLED_S)
    return Usage.of(operator.pid)


def take_counts(proxy: FaultProxy) -> dict[str, int]:
    """Requests by verb and resource since the last time."""
    counts = {" ".join(info): count for info, count in sorted(proxy.counts.items())}
    proxy.counts.clear()
    return counts


def errors(operator: OperatorProcess) -> dict[str, float]:
    """Looks that were put off by an error, by reason.

    Raises:
        SystemExit: there were others than conflicts.
    """
    name = "rljob_operator_reconcile_errors_total"
    lines = [line.removeprefix(name) for line in operator.get("metrics").splitlines() if line.startswith(name)]
    found = {labels: float(value) for labels, _, value in (line.rpartition(" ") for line in lines)}
    if set(found) - {'{reason="Conflict"}'}:
        raise SystemExit(f"the operator had errors: {found}\n{operator.tail(10)}")
    return found


if __name__ == "__main__":
    main()
