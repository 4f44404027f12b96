"""Creates at once the very RayJobs that the operator makes of many RLJobs, with their ConfigMaps and claims, but
without it: what API server, scheduler, nodes and KubeRay need for themselves.
"""

from __future__ import annotations

import asyncio
import json
import time

from benchmarks.worker import arguments, report
from benchmarks.workers.control_plane import (
    DEADLINE_S,
    KUBERAY_POLL_S,
    NAMESPACE,
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
from tests.kuberay.api import CLAIMS, CONFIG_MAPS, RAY_JOBS, RL_JOBS, Api, Resource
from tests.kuberay.standin import KubeRayStandIn

PATTERN = "pattern-of-all"
MADE_BY_THE_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences")


def main() -> None:
    """Seconds until all RayJobs run."""
    jobs = int(arguments()["jobs"])
    with cluster_for(jobs) as cluster:
        with operator_in(cluster):
            patterns = asyncio.run(made_by_the_operator(cluster))
        with KubeRayStandIn(cluster, "pods", poll_s=KUBERAY_POLL_S):
            api_server = cluster.control_plane.api_server.pid
            before = Usage.of(api_server)
            times = asyncio.run(create_all(cluster, patterns, jobs))
            cpu_s = Usage.of(api_server).cpu_s - before.cpu_s
    report(times["running_s"], jobs=jobs, **times, api_server_cpu_s_per_job=cpu_s / jobs)


async def made_by_the_operator(cluster: Cluster) -> list[tuple[Resource, str]]:
    """What it makes of one RLJob, as JSON that names PATTERN wherever a job's name belongs; it is gone afterwards."""
    async with api_of(cluster) as api:
        created = Seen(RAY_JOBS, bool)
        async with watching(api, created):
            job = await api.create(RL_JOBS, rl_job(PATTERN))
            await created.wait_for(1, time.monotonic() + DEADLINE_S)
        names = {RAY_JOBS: f"{PATTERN}-1", CONFIG_MAPS: f"{PATTERN}-run", CLAIMS: f"{PATTERN}-checkpoints"}
        found = [(resource, await api.get(resource, NAMESPACE, name)) for resource, name in names.items()]
        await api.delete(RL_JOBS, NAMESPACE, PATTERN)
    return [(resource, json.dumps(_pattern(item, job))) for resource, item in reversed(found)]


def _pattern(item: Manifest, job: Manifest) -> Manifest:
    metadata = {key: value for key, value in item["metadata"].items() if key not in MADE_BY_THE_SERVER}
    # The stand-in's driver reads its script here where no RLJob owns the RayJob.
    metadata["annotations"] = job["metadata"]["annotations"]
    rest = {key: value for key, value in item.items() if key not in ("metadata", "status")}
    rest.get("spec", {}).pop("volumeName", None)  # of the claim: each job has a volume of its own
    return {**rest, "metadata": metadata}


async def create_all(cluster: Cluster, patterns: list[tuple[Resource, str]], jobs: int) -> dict[str, float]:
    """Seconds until all are created, and until all run."""
    async with api_of(cluster) as api:
        running = Seen(RAY_JOBS, lambda job: job.get("status", {}).get("jobDeploymentStatus") == "Running")
        async with watching(api, running):
            started = time.perf_counter()
            await all_at_once(_create(api, patterns, f"job-{number}") for number in range(jobs))
            created_s = time.perf_counter() - started
            running_s = await running.wait_for(jobs, time.monotonic() + DEADLINE_S) - started
    return {"created_s": created_s, "running_s": running_s}


async def _create(api: Api, patterns: list[tuple[Resource, str]], name: str) -> None:
    for resource, pattern in patterns:
        await api.create(resource, json.loads(pattern.replace(PATTERN, name)))


if __name__ == "__main__":
    main()
