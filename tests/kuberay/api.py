"""A client of the API server that speaks plain JSON: 300 jobs' objects as typed models would cost too much here."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

from tests.kuberay.names import Object

_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=5)
_WATCH_S = 300
_MERGE_PATCH = "application/merge-patch+json"


class ApiError(Exception):
    """The API server said no."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Resource:
    """A kind of objects, and where the API server keeps them."""

    api_version: str
    kind: str
    plural: str

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        root = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        parts = [root, *(("namespaces", namespace) if namespace else ()), self.plural, name, subresource]
        return "/".join(part for part in parts if part)


RAY_JOBS = Resource("ray.io/v1", "RayJob", "rayjobs")
RAY_CLUSTERS = Resource("ray.io/v1", "RayCluster", "rayclusters")
RL_JOBS = Resource("rlcore.io/v1alpha1", "RLJob", "rljobs")
PODS = Resource("v1", "Pod", "pods")
SERVICES = Resource("v1", "Service", "services")
SECRETS = Resource("v1", "Secret", "secrets")
CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")
CLAIMS = Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
SERVICE_ACCOUNTS = Resource("v1", "ServiceAccount", "serviceaccounts")
EVENTS = Resource("v1", "Event", "events")
NODES = Resource("v1", "Node", "nodes")
ROLES = Resource("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
LEASES = Resource("coordination.k8s.io/v1", "Lease", "leases")


@dataclass(frozen=True)
class Credentials:
    """What a kubeconfig says of its current context; certificates are files."""

    server: str
    authority: str | None
    certificate: str | None
    key: str | None
    token: str | None

    @classmethod
    def load(cls, kubeconfig: Path) -> Self:
        document = yaml.safe_load(kubeconfig.read_text())

        def named(section: str, name: str) -> Object:
            (entry,) = (entry for entry in document[section] if entry["name"] == name)
            return entry[section.removesuffix("s")]

        context = named("contexts", document["current-context"])
        cluster, user = named("clusters", context["cluster"]), named("users", context["user"])

        def file(entry: Object, name: str) -> str | None:
            if name in entry:
                return str((kubeconfig.parent / entry[name]).resolve())
            return _as_file(entry[f"{name}-data"]) if f"{name}-data" in entry else None

        return cls(
            server=cluster["server"].rstrip("/"),
            authority=file(cluster, "certificate-authority"),
            certificate=file(user, "client-certificate"),
            key=file(user, "client-key"),
            token=user.get("token") or ("tokenFile" in user and Path(user["tokenFile"]).read_text().strip()) or None,
        )

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority)
        if self.certificate and self.key:
            context.load_cert_chain(self.certificate, self.key)
        return context


def _as_file(data: str) -> str:
    with tempfile.NamedTemporaryFile(prefix="standin-", suffix=".pem", delete=False) as file:
        file.write(base64.b64decode(data))
    return file.name


class Api:
    """Reads and writes objects. An async context manager; raises ApiError, or aiohttp's errors for a lost server."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        headers = {"User-Agent": "manager/v1.7.0 (linux/amd64) kuberay-operator"}
        if self.credentials.token:
            headers["Authorization"] = f"Bearer {self.credentials.token}"
        tls = self.credentials.tls() if self.credentials.server.startswith("https") else False
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=40), headers=headers, timeout=_TIMEOUT
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        return await self._call("GET", resource.path(namespace, name))

    async def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object, or None where there is none."""
        try:
            return await self.get(resource, namespace, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, resource: Resource, label_selector: str = "") -> Object:
        """All objects of all namespaces."""
        return await self._call("GET", resource.path(), params=_selector(label_selector))

    async def create(self, resource: Resource, item: Mapping[str, Any]) -> Object:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **item}
        return await self._call("POST", resource.path(item["metadata"].get("namespace", "")), body)

    async def ensure(self, resource: Resource, item: Mapping[str, Any]) -> Object | None:
        """Creates the object; None where there is one of that name."""
        try:
            return await self.create(resource, item)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return None
            raise

    async def replace(self, resource: Resource, item: Mapping[str, Any], subresource: str = "") -> Object:
        metadata = item["metadata"]
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **item}
        return await self._call(
            "PUT", resource.path(metadata.get("namespace", ""), metadata["name"], subresource), body
        )

    async def patch(
        self, resource: Resource, namespace: str, name: str, change: Mapping[str, Any], subresource: str = ""
    ) -> Object:
        """A merge patch."""
        path = resource.path(namespace, name, subresource)
        return await self._call("PATCH", path, change, content_type=_MERGE_PATCH)

    async def merge_status(
        self, resource: Resource, namespace: str, name: str, uid: str, status: Mapping[str, Any]
    ) -> Object:
        """A strategic merge patch of the status of a built-in kind: conditions are merged by type."""
        body = {"metadata": {"uid": uid}, "status": status}
        path = resource.path(namespace, name, "status")
        return await self._call("PATCH", path, body, content_type="application/strategic-merge-patch+json")

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None
    ) -> Object | None:
        """Deletes in the background; None where there is nothing of that name (and uid)."""
        options: Object = {"propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        try:
            return await self._call("DELETE", resource.path(namespace, name), options)
        except ApiError as error:
            if error.status in (404, 409):
                return None
            raise

    async def watch(self, resource: Resource, since: str, label_selector: str = "") -> AsyncIterator[Object]:
        """Events since a resource version, bookmarks among them, until the server closes the stream."""
        assert self._session is not None
        params = {
            **_selector(label_selector),
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_WATCH_S + 30)
        url = self.credentials.server + resource.path()
        async with self._session.get(url, params=params, timeout=timeout) as answer:
            await _raise_for_status(answer)
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    yield json.loads(line)

    async def _call(
        self,
        verb: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        assert self._session is not None
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": content_type}
        async with self._session.request(
            verb, self.credentials.server + path, data=data, params=params, headers=headers
        ) as answer:
            await _raise_for_status(answer)
            return json.loads(await answer.read())


def _selector(label_selector: str) -> dict[str, str]:
    return {"labelSelector": label_selector} if label_selector else {}


async def _raise_for_status(answer: aiohttp.ClientResponse) -> None:
    if answer.status < 400:
        return
    text = await answer.text()
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    raise ApiError(answer.status, status.get("reason", ""), status.get("message") or text)
