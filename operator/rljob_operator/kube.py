"""The API server, as plain JSON objects: few verbs, bounded in time and rate, every request counted."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import client, config

from rljob_operator.metrics import API_REQUESTS
from rljob_operator.names import FIELD_MANAGER

REQUEST_TIMEOUT_S = 15.0
CONNECTIONS = 300
"""More than workers can be: the Lease must not wait for them."""

IN_POD = "KUBERNETES_SERVICE_HOST"
"""Set in every pod."""

RATE_PER_S, BURST = 200.0, 400.0

JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PAGE, METADATA_PAGE = 50, 500
"""Objects listed at a time."""


class ApiError(Exception):
    """The API server refused a request, or could not be reached.

    Attributes:
        code: HTTP status, 0 where there was no answer.
        reason: Kubernetes' word for it, such as AlreadyExists.
        message: what it said.
        retry_after_s: how long it asked to wait, None: it did not.
    """

    def __init__(self, code: int, reason: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{code} {reason}: {message}" if code else f"no answer: {message}")
        self.code, self.reason, self.message, self.retry_after_s = code, reason, message, retry_after_s


class Kube:
    """A connection to the API server. Paths name resources: ("apis/ray.io/v1", "rayjobs", namespace, name)."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self.may_write: Callable[[], bool] = lambda: True
        """Whether this replica leads; nothing but Leases is written where it does not."""
        self._tokens, self._filled_s = BURST, time.monotonic()
        self._bucket = asyncio.Lock()

    @classmethod
    async def connect(cls) -> Kube:
        """In a pod by its ServiceAccount, elsewhere by KUBECONFIG.

        Raises:
            ConfigException: there is neither.
        """
        if IN_POD in os.environ and "KUBECONFIG" not in os.environ:
            config.load_incluster_config()
        else:
            await config.load_config()
        settings = client.Configuration.get_default_copy()
        settings.connection_pool_maxsize = CONNECTIONS
        # Looked up here once: aiohttp would do it in a thread of its own before every request.
        settings.proxy = settings.proxy or _proxy_of(settings.host)
        settings.client_session_kwargs = {"trust_env": False}
        return cls(client.ApiClient(settings))

    async def close(self) -> None:
        """Closes all connections."""
        await self._api.close()

    async def get(self, group: str, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """One object, None where there is none."""
        try:
            return await self._request("GET", _path(group, resource, namespace, name), resource)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def pages(
        self, group: str, resource: str, namespace: str, selector: str, *, metadata_alone: bool = False
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """All objects that a label selector takes, some at a time: a thousand whole pods need much memory.

        An empty namespace means all of them, an empty selector all objects. There are none of a kind that is not
        served.
        """
        following = ""
        while True:
            query = [
                ("labelSelector", selector),
                ("limit", str(METADATA_PAGE if metadata_alone else PAGE)),
                ("continue", following),
            ]
            path = _path(group, resource, namespace)
            accept = METADATA_LIST if metadata_alone else "application/json"
            try:
                page = await self._request("GET", path, resource, query=[q for q in query if q[1]], accept=accept)
            except ApiError as error:
                if error.code == 404:
                    return
                raise
            yield page.get("items") or []
            following = str((page.get("metadata") or {}).get("continue") or "")
            if not following:
                return

    async def read(self, path: str) -> dict[str, Any]:
        """What is served at a path; empty where nothing is."""
        try:
            return await self._request("GET", f"/{path}", "discovery")
        except ApiError as error:
            if error.code == 404:
                return {}
            raise

    async def create(
        self, group: str, resource: str, manifest: Mapping[str, Any], *, on_trial: bool = False
    ) -> dict[str, Any]:
        """Creates an object, or only finds out whether it could be; unknown fields are an error, not dropped."""
        query = [("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict")]
        if on_trial:
            query.append(("dryRun", "All"))
        path = _path(group, resource, manifest["metadata"]["namespace"])
        return await self._request("POST", path, resource, body=manifest, query=query)

    async def apply(self, group: str, resource: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply of what is ours alone."""
        metadata = manifest["metadata"]
        path = _path(group, resource, metadata["namespace"], metadata["name"])
        query = [("fieldManager", FIELD_MANAGER), ("force", "true"), ("fieldValidation", "Strict")]
        return await self._request("PATCH", path, resource, body=manifest, query=query, content_type=APPLY_PATCH)

    async def patch(
        self,
        group: str,
        resource: str,
        namespace: str,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        subresource: str = "",
    ) -> dict[str, Any]:
        """Merge patch of a mapping, JSON patch of a list."""
        kind = MERGE_PATCH if isinstance(patch, Mapping) else JSON_PATCH
        path = _path(group, resource, namespace, name, subresource)
        query = [("fieldManager", FIELD_MANAGER)]
        return await self._request("PATCH", path, resource, body=patch, query=query, content_type=kind)

    async def replace(self, group: str, resource: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Replaces an object of the same resourceVersion."""
        metadata = manifest["metadata"]
        path = _path(group, resource, metadata["namespace"], metadata["name"])
        return await self._request("PUT", path, resource, body=manifest)

    async def delete(
        self, group: str, resource: str, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None
    ) -> None:
        """Deletes this very object, and in the background what it owns; no error where it is gone already."""
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        try:
            await self._request("DELETE", _path(group, resource, namespace, name), resource, body=options)
        except ApiError as error:
            # 409: another object has the name by now.
            if error.code not in (404, 409):
                raise

    async def _request(
        self,
        method: str,
        path: str,
        resource: str,
        *,
        body: Any = None,
        query: Sequence[tuple[str, str]] = (),
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> dict[str, Any]:
        await self._take_token()
        if method != "GET" and resource != "leases" and not self.may_write():
            raise ApiError(0, "NotLeading", f"{method} {path}: the lease is not held any more")
        headers = {"Accept": accept, "Content-Type": content_type}
        code = 0
        try:
            request = await self._api.param_serialize(
                method, path, query_params=list(query), header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            answer = await self._api.call_api(*request, _request_timeout=REQUEST_TIMEOUT_S)
            data = await answer.read()
            code = int(answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "Unreachable", f"{method} {path}: {error or type(error).__name__}") from error
        finally:
            API_REQUESTS.labels(verb=method.lower(), resource=resource, code=str(code)).inc()
        content = _json(data)
        if code >= 400:
            wait = answer.headers.get("Retry-After")
            raise ApiError(
                code,
                str(content.get("reason") or ""),
                str(content.get("message") or data[:500].decode(errors="replace")),
                float(wait) if wait and wait.isdigit() else None,
            )
        return content

    async def _take_token(self) -> None:
        """A token bucket: a flood of events never becomes a flood of requests."""
        async with self._bucket:
            now = time.monotonic()
            self._tokens = min(BURST, self._tokens + (now - self._filled_s) * RATE_PER_S)
            self._filled_s = now
            if self._tokens < 1.0:
                await asyncio.sleep((1.0 - self._tokens) / RATE_PER_S)
                self._tokens, self._filled_s = 1.0, time.monotonic()
            self._tokens -= 1.0


def _proxy_of(server: str) -> str | None:
    """The proxy that the environment names for an address: HTTPS_PROXY, unless NO_PROXY takes it out."""
    url = urlsplit(server)
    return None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)


def _json(data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _path(group: str, resource: str, namespace: str, name: str = "", subresource: str = "") -> str:
    place = ["namespaces", namespace] if namespace else []
    parts = [group, *place, resource, name, subresource]
    return "/" + "/".join(part for part in parts if part)
