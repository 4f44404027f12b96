"""What a RayJob needs of Ray's dashboard, and the dashboard of a real Ray, over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Protocol, Self

import aiohttp
import yaml

from tests.kuberay.api import SECRETS, Api
from tests.kuberay.names import Object, key_of
from tests.kuberay.objects import auth_secret_name, has_tokens, head_ports

_TIMEOUT = aiohttp.ClientTimeout(total=5)


class DashboardError(Exception):
    """No answer, or not the one that was hoped for."""


class Dashboard(Protocol):
    """Ray's job API of the head of a RayCluster. All methods raise DashboardError."""

    async def info(self, cluster: Object, job_id: str) -> Object | None:
        """status, message, start_time and end_time of a job; None for a job that this head does not know."""

    async def submit(self, cluster: Object, job: Object, job_id: str) -> None:
        """Starts the entrypoint of a RayJob."""

    async def stop(self, cluster: Object, job_id: str) -> None:
        """Asks a job to end; does not wait for it."""


def submission(job: Mapping[str, Any], job_id: str) -> Object:
    """The request that starts a RayJob's entrypoint."""
    spec = job["spec"]
    body: Object = {"entrypoint": spec["entrypoint"], "submission_id": job_id}
    if spec.get("runtimeEnvYAML"):
        body["runtime_env"] = yaml.safe_load(spec["runtimeEnvYAML"])
    if spec.get("metadata"):
        body["metadata"] = spec["metadata"]
    for field, name in (("entrypointNumCpus", "entrypoint_num_cpus"), ("entrypointNumGpus", "entrypoint_num_gpus")):
        if spec.get(field):
            body[name] = spec[field]
    if spec.get("entrypointResources"):
        body["entrypoint_resources"] = yaml.safe_load(spec["entrypointResources"])
    return body


class RayDashboard:
    """Dashboards at the heads' own addresses, with the cluster's token where it has one."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._session: aiohttp.ClientSession | None = None
        self._tokens: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=_TIMEOUT)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def info(self, cluster: Object, job_id: str) -> Object | None:
        return await self._call(cluster, "GET", job_id)

    async def submit(self, cluster: Object, job: Object, job_id: str) -> None:
        await self._call(cluster, "POST", "", submission(job, job_id))

    async def stop(self, cluster: Object, job_id: str) -> None:
        await self._call(cluster, "POST", f"{job_id}/stop")

    async def _call(self, cluster: Object, verb: str, path: str, body: Object | None = None) -> Object | None:
        assert self._session is not None
        head = ((cluster.get("status") or {}).get("head") or {}).get("podIP")
        if not head:
            raise DashboardError("the head has no address")
        url = f"http://{head}:{head_ports(cluster['spec'])['dashboard']}/api/jobs/{path}"
        try:
            headers = await self._headers(cluster)
            async with self._session.request(verb, url, json=body, headers=headers) as answer:
                if answer.status == 404 and verb == "GET":
                    return None
                if answer.status >= 400:
                    raise DashboardError(f"{verb} {url}: {answer.status} {await answer.text()}")
                return await answer.json()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise DashboardError(f"{verb} {url}: {error or type(error).__name__}") from error

    async def _headers(self, cluster: Object) -> dict[str, str]:
        if not has_tokens(cluster["spec"]):
            return {}
        uid = cluster["metadata"]["uid"]
        if uid not in self._tokens:
            namespace, name = key_of(cluster)
            secret = await self._api.get(SECRETS, namespace, auth_secret_name(name))
            self._tokens[uid] = base64.b64decode(secret["data"]["auth_token"]).decode()
        return {"Authorization": f"Bearer {self._tokens[uid]}"}
