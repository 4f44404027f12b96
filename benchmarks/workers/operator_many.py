"""Creates many RLJobs at once, waits until all train, then watches them train for a while."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from typing import Any

from benchmarks.worker import arguments, report
from benchmarks.workers.control_plane import (
    AT_ONCE,
    DEADLINE_S,
    KUBERAY_POLL_S,
    Manifest,
    Seen,
    Usage,
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
        figures = asyncio.run(measure(cluster, operator, proxy, jobs, watch_s))
    report(figures["running_s"], **figures)


async def measure(
    cluster: Cluster, operator: OperatorProcess, proxy: FaultProxy | None, jobs: int, watch_s: float
) -> dict[str, Any]:
    """All figures of one run."""
    async with api_of(cluster) as api:
        seen = {
            "created_s": Seen(RAY_JOBS, bool),
            "provisioned_s": Seen(RL_JOBS, _is_provisioned),
            "running_s": Seen(RL_JOBS, lambda job: job.get("status", {}).get("phase") == "Running"),
        }
        before = Usage.of(operator.pid)
        if proxy:
            proxy.counts.clear()
        async with watching(api, *seen.values()):
            started = time.perf_counter()
            slots = asyncio.Semaphore(AT_ONCE)

            async def create(number: int) -> None:
                async with slots:
                    await api.create(RL_JOBS, rl_job(f"job-{number}"))

            await asyncio.gather(*(create(number) for number in range(jobs)))
            applied_s = time.perf_counter() - started
            times = {name: await one.wait_for(jobs, DEADLINE_S) - started for name, one in seen.items()}
        up = Usage.of(operator.pid)
        figures = {
            "jobs": jobs,
            "applied_s": applied_s,
            **times,
            "cpu_s_per_job": (up.cpu_s - before.cpu_s) / jobs,
            "rss_before_mib": before.rss_mib,
        }
        if proxy:
            counts = dict(proxy.counts)
            figures["requests_per_job"] = sum(counts.values()) / jobs
            figures["requests"] = {" ".join(info): count for info, count in sorted(counts.items())}
            proxy.counts.clear()
        await asyncio.sleep(watch_s)
        after = Usage.of(operator.pid)
        figures |= {
            "rss_mib": after.rss_mib,
            "peak_mib": after.peak_mib,
            "idle_cores": (after.cpu_s - up.cpu_s) / watch_s,
            "errors": _errors(operator),
        }
        if not proxy:
            figures["new_mib"] = started_anew(operator, jobs).peak_mib
        if proxy:
            figures["status_writes_per_minute"] = proxy.counts[STATUS] / jobs / watch_s * 60
            figures["idle_requests"] = {" ".join(info): count for info, count in sorted(proxy.counts.items())}
    return figures


def started_anew(operator: OperatorProcess, jobs: int) -> Usage:
    """What an operator needs to take in all that is there."""
    operator.stop()
    operator.start()
    eventually(lambda: operator.metric("rljob_operator_jobs", phase="Running") == jobs, 60, what="all jobs known")
    time.sleep(SETTLED_S)
    return Usage.of(operator.pid)


def _is_provisioned(job: Manifest) -> bool:
    conditions = job.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Provisioned" and condition["status"] == "True" for condition in conditions)


def _errors(operator: OperatorProcess) -> dict[str, float]:
    """Looks that were put off by an error, by reason.

    Raises:
        SystemExit: there were others than conflicts.
    """
    name = "rljob_operator_reconcile_errors_total"
    errors = {}
    for line in operator.get("metrics").splitlines():
        if line.startswith(name):
            labels, _, value = line.removeprefix(name).rpartition(" ")
            errors[labels] = float(value)
    others = {labels: value for labels, value in errors.items() if 'reason="Conflict"' not in labels}
    if others:
        raise SystemExit(f"the operator had errors: {others}\n{operator.tail(10)}")
    return errors


if __name__ == "__main__":
    main()
