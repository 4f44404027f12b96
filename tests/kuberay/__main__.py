"""The command line of the stand-in: wires its parts together and runs them until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.kuberay.api import CONFIG_MAPS, PODS, RAY_CLUSTERS, RAY_JOBS, Api, Credentials
from tests.kuberay.cluster_controller import ClusterController, Platform, RealPods, cluster_of
from tests.kuberay.dashboard import Dashboard, RayDashboard
from tests.kuberay.events import Events
from tests.kuberay.informer import Informer
from tests.kuberay.job_controller import JobController, Timing
from tests.kuberay.kubelet import Kubelet
from tests.kuberay.names import POD_SELECTOR
from tests.kuberay.scripted_jobs import ScriptedJobs, trim_config_map, trim_pod
from tests.kuberay.watchdog import watchdog

READY_FILE = "ready"
"""Made in the working directory once the stand-in follows the API server."""


class Part(Protocol):
    """Something that runs for ever."""

    async def run(self) -> None: ...


@dataclass(frozen=True)
class Settings:
    """The command line."""

    kubeconfig: Path
    mode: str
    workdir: Path
    timing: Timing
    volume_sync_s: float


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(_run(_settings()))


def _settings() -> Settings:
    parser = argparse.ArgumentParser(prog="python -m tests.kuberay", description="A stand-in for KubeRay.")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--mode", choices=("pods", "process", "node"), required=True)
    parser.add_argument("--workdir", type=Path, required=True, help="logs, volumes, and what drivers have saved")
    parser.add_argument("--poll-s", type=float, default=Timing.poll_s, help="between looks at a Ray job")
    parser.add_argument("--status-check-timeout-s", type=float, default=Timing.status_check_timeout_s)
    parser.add_argument("--volume-sync-s", type=float, default=60.0, help="the kubelet's, of ConfigMap volumes")
    given = parser.parse_args()
    return Settings(
        kubeconfig=given.kubeconfig,
        mode=given.mode,
        workdir=given.workdir.resolve(),
        timing=Timing(given.poll_s, given.status_check_timeout_s),
        volume_sync_s=given.volume_sync_s,
    )


async def _run(settings: Settings) -> None:
    settings.workdir.mkdir(parents=True, exist_ok=True)
    (settings.workdir / READY_FILE).unlink(missing_ok=True)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Api(Credentials.load(settings.kubeconfig)) as api:
        modes = {"pods": _run_pods_mode, "process": _run_process_mode, "node": _run_node_mode}
        await modes[settings.mode](api, settings, stop)


async def _run_pods_mode(api: Api, settings: Settings, stop: asyncio.Event) -> None:
    pods = Informer(api, PODS, label_selector=POD_SELECTOR, group_by=cluster_of, trim=trim_pod)
    selector = "app.kubernetes.io/managed-by=rljob-operator"
    config_maps = Informer(api, CONFIG_MAPS, label_selector=selector, trim=trim_config_map)
    scripted = ScriptedJobs(api, pods, config_maps, settings.workdir / "scripted")
    parts = _controllers(api, pods, scripted, scripted, settings.timing)
    await _run_until(stop, settings, [*parts, config_maps, scripted])


async def _run_process_mode(api: Api, settings: Settings, stop: asyncio.Event) -> None:
    pods = Informer(api, PODS, label_selector=POD_SELECTOR, group_by=cluster_of)
    async with (
        watchdog(settings.workdir / "pids"),
        RayDashboard(api) as dashboard,
        Kubelet(api, pods, settings.workdir, settings.volume_sync_s) as kubelet,
    ):
        parts = _controllers(api, pods, kubelet, dashboard, settings.timing)
        await _run_until(stop, settings, [*parts, kubelet])


async def _run_node_mode(api: Api, settings: Settings, stop: asyncio.Event) -> None:
    pods = Informer(api, PODS, label_selector=POD_SELECTOR, group_by=cluster_of)
    async with RayDashboard(api) as dashboard:
        await _run_until(stop, settings, _controllers(api, pods, RealPods(), dashboard, settings.timing))


def _controllers(api: Api, pods: Informer, platform: Platform, dashboard: Dashboard, timing: Timing) -> list[Part]:
    """What both modes have."""
    jobs, clusters, events = Informer(api, RAY_JOBS), Informer(api, RAY_CLUSTERS), Events(api, "kuberay-operator")
    cluster_controller = ClusterController(api, clusters, pods, events, platform)
    job_controller = JobController(api, jobs, clusters, events, dashboard, timing)
    return [jobs, clusters, pods, events, cluster_controller, job_controller]


async def _run_until(stop: asyncio.Event, settings: Settings, parts: Sequence[Part]) -> None:
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(part.run()) for part in parts]
        for part in parts:
            if isinstance(part, Informer):
                await part.synced.wait()
        (settings.workdir / READY_FILE).touch()
        await stop.wait()
        for task in running:
            task.cancel()


if __name__ == "__main__":
    main()
