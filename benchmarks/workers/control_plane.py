"""A control plane with room for many small RLJobs, and what is measured of the operator in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from tests.kube.cluster import Cluster
from tests.kube.nodes import node_manifest
from tests.kube.operator_process import CHART, OperatorProcess, install_chart
from tests.kube.proxy import FaultProxy
from tests.kube.wait import eventually
from tests.kuberay.api import Api, ApiError, Credentials, Resource

NAMESPACE = "many"
PODS_OF_A_JOB = 3
PODS_OF_A_NODE = 100
KUBERAY_POLL_S = 3.0
"""KubeRay's own time between two looks at a Ray job."""

AT_ONCE = 16
"""Requests of whoever creates many jobs at once."""

DEADLINE_S = 400.0

Manifest = dict[str, Any]


@contextmanager
def cluster_for(jobs: int) -> Iterator[Cluster]:
    """A cluster with nodes for so many jobs, and the operator's chart: rights, settings and CRD."""
    with Cluster() as cluster:
        nodes = [node_manifest("on-demand-cpu", f"more-{i}") for i in range(jobs * PODS_OF_A_JOB // PODS_OF_A_NODE + 1)]
        cluster.apply(*nodes)
        cluster.create_namespace(NAMESPACE)
        install_chart(cluster)
        yield cluster


@contextmanager
def operator_in(cluster: Cluster, proxy: FaultProxy | None = None) -> Iterator[OperatorProcess]:
    """The operator with the chart's own settings, at work when this begins."""
    times = yaml.safe_load((CHART / "values.yaml").read_text())["settings"]["times"]
    with OperatorProcess(cluster, {"times": times}, server=proxy.url if proxy else None) as operator:
        eventually(lambda: operator.metric("rljob_operator_leader") == 1, 60, what="the operator leading")
        yield operator


def rl_job(name: str) -> Manifest:
    """One evaluator, a learner, and a driver that trains for longer than anybody measures."""
    tiny = {"cpu": "100m", "memory": "64Mi"}
    script = {"timestepsPerS": 1000, "checkpointEveryS": 30}
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": {"standin.rlcore.io/script": json.dumps(script)},
        },
        "spec": {
            "algorithm": "PPO",
            "environment": {"id": "CartPole-v1"},
            "stop": {"timesteps": 1_000_000_000},
            "head": {"resources": tiny},
            "learner": {"resources": tiny},
            "evaluators": {"pools": [{"name": "evaluators", "minReplicas": 1, "maxReplicas": 1, "resources": tiny}]},
        },
    }


@contextlib.asynccontextmanager
async def api_of(cluster: Cluster) -> AsyncIterator[Api]:
    """A client of the API server as administrator."""
    async with Api(Credentials.load(cluster.kubeconfig)) as api:
        yield api


@dataclass
class Seen:
    """When something first became true of each object of a kind, as a watch told."""

    resource: Resource
    is_true: Callable[[Manifest], object]
    at_s: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def look(self, item: Manifest) -> None:
        name = item["metadata"]["name"]
        if name not in self.at_s and self.is_true(item):
            self.at_s[name] = time.perf_counter()
            self.changed.set()

    async def wait_for(self, count: int, deadline: float) -> float:
        """When it was true of `count` objects. Raises TimeoutError at `deadline` by the monotonic clock."""
        while len(self.at_s) < count:
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), deadline - time.monotonic())
            except TimeoutError:
                raise TimeoutError(f"only {len(self.at_s)} of {count} {self.resource.plural} in time") from None
        return max(self.at_s.values())


@contextlib.asynccontextmanager
async def watching(api: Api, *seen: Seen) -> AsyncIterator[None]:
    """One watch for each kind of objects, until the end of the block."""

    async def follow(resource: Resource, version: str) -> None:
        while True:
            async for event in api.watch(resource, version):
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] in ("ADDED", "MODIFIED"):
                    for one in seen:
                        if one.resource is resource:
                            one.look(event["object"])

    resources = {one.resource for one in seen}
    versions = [(resource, await _version(api, resource)) for resource in resources]
    tasks = [asyncio.create_task(follow(*since)) for since in versions]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for failed in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(failed, Exception):
                raise failed


async def _version(api: Api, resource: Resource) -> str:
    """Of the objects as they are now; a CRD that is new refuses lists for a moment."""
    while True:
        try:
            return str((await api.list(resource))["metadata"]["resourceVersion"])
        except ApiError as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS:
                raise
            await asyncio.sleep(0.1)


async def all_at_once(requests: Iterable[Awaitable[object]]) -> None:
    """Awaits all of them, AT_ONCE at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def send(request: Awaitable[object]) -> None:
        async with slots:
            await request

    await asyncio.gather(*map(send, requests))


@dataclass(frozen=True)
class Usage:
    """What a process has used so far."""

    cpu_s: float
    rss_mib: float
    peak_mib: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Of a process by its id; Linux only."""
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        kib = {line.partition(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Vm")}
        seconds = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
        return cls(seconds, kib["VmRSS"] / 1024, kib["VmHWM"] / 1024)
