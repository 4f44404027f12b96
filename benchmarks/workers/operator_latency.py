"""Creates RLJobs one by one, and measures how long it takes until each has its RayJob."""

from __future__ import annotations

import asyncio
import time
from statistics import median, quantiles

from benchmarks.worker import arguments, report
from benchmarks.workers.control_plane import Seen, api_of, cluster_for, operator_in, rl_job, watching
from tests.kube.cluster import Cluster
from tests.kuberay.api import RAY_JOBS, RL_JOBS

WARM_UP = 2
DEADLINE_S = 60.0


def main() -> None:
    """Milliseconds from before the request that creates an RLJob until a watch tells of its RayJob: the median."""
    jobs, pause_s = int(arguments()["jobs"]), float(arguments()["pause_s"])
    with cluster_for(jobs) as cluster, operator_in(cluster):
        latencies_ms = asyncio.run(one_by_one(cluster, jobs, pause_s))
    ordered = quantiles(latencies_ms, n=20, method="inclusive")
    report(median(latencies_ms), p95=ordered[-1], lowest=min(latencies_ms), highest=max(latencies_ms))


async def one_by_one(cluster: Cluster, jobs: int, pause_s: float) -> list[float]:
    """Nobody acts on the RayJobs: the operator has nothing else to do when the next job comes."""
    latencies = []
    async with api_of(cluster) as api:
        created = Seen(RAY_JOBS, bool)
        async with watching(api, created):
            for number in range(WARM_UP + jobs):
                await asyncio.sleep(pause_s)
                started = time.perf_counter()
                await api.create(RL_JOBS, rl_job(f"job-{number}"))
                latencies.append((await created.wait_for(number + 1, time.monotonic() + DEADLINE_S) - started) * 1000)
    return latencies[WARM_UP:]


if __name__ == "__main__":
    main()
