"""The user's cluster: which one, and the few requests the subcommands need, as plain data.

Requests go through the connection pool and the credentials of the official client, without its models: RLJobs have
none there, and plain dicts are what the views take. Every request has a time-out.
"""

from __future__ import annotations

import difflib
import importlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from rlcore.api.crd import PLURAL
from rlcore.api.rljob import GROUP, VERSION
from rlcore.cli.kube_errors import Asked, KubeError, Unreachable, no_such_job, refusal
from rlcore.errors import UserError

FIELD_MANAGER = "rlcore-cli"
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0


class Kube:
    """Requests to one API server; leaving the context closes its connections.

    Args:
        client: kubernetes.client.ApiClient, configured.
        namespace: where the user works unless told otherwise.

    Attributes:
        warnings: what the API server has warned of, each once, in the order of the answers.
    """

    def __init__(self, client: Any, namespace: str) -> None:
        self.configuration = client.configuration
        self.namespace = namespace
        self.warnings: list[str] = []
        self._pool = client.rest_client.pool_manager

    def __enter__(self) -> Kube:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.clear()

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self.configuration.host)

    def auth_headers(self) -> dict[str, str]:
        """The credentials, renewed where they have expired."""
        settings = self.configuration.auth_settings().values()
        return {entry["key"]: entry["value"] for entry in settings if entry["in"] == "header" and entry["value"]}

    def url(self, path: str, query: Mapping[str, str | int] | None = None) -> str:
        """The whole URL of a path of the API."""
        return self.server.rstrip("/") + quote(path) + (f"?{urlencode(query)}" if query else "")

    def json(
        self,
        asked: Asked,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        *,
        body: object = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """One request; the answer's JSON object.

        Raises:
            KubeError: the server refused, see kube_errors.refusal.
            Unreachable: it did not answer in time, or not at all.
        """
        with self._response(asked, method, path, query, body, content_type, READ_TIMEOUT_S) as response:
            answer = _json_object(response.read())
        if answer is None:
            raise KubeError(
                f"{self.server} is no Kubernetes API server: it does not answer with a JSON object",
                hint="see the cluster's server in the kubeconfig: `kubectl config view --minify`",
            )
        return answer

    def lines(
        self, asked: Asked, path: str, query: Mapping[str, str | int], *, read_timeout_s: float | None = None
    ) -> Iterator[bytes]:
        """The lines of an answer that goes on: a watch, or a log that is followed; line ends are left out.

        Args:
            read_timeout_s: longest silence; None: it may be silent for ever.

        Raises:
            KubeError, Unreachable: as json(), also in the middle.
        """
        with self._response(asked, "GET", path, query, None, "application/json", read_timeout_s) as response:
            rest = b""
            for chunk in response.stream(amt=65_536, decode_content=True):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from whole
            if rest:
                yield rest

    @contextmanager
    def _response(
        self,
        asked: Asked,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None,
        body: object,
        content_type: str,
        read_timeout_s: float | None,
    ) -> Iterator[Any]:
        import urllib3

        headers = {"Accept": "application/json, */*", **self.auth_headers()}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            response = self._pool.request(
                method,
                self.url(path, query),
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s),
                # Only where the server itself asks to come back later.
                retries=urllib3.Retry(
                    total=3, connect=0, read=0, other=0, redirect=0, allowed_methods=None, raise_on_status=False
                ),
                preload_content=False,
            )
            try:
                if response.status >= 300:
                    raise refusal(response.status, response.read(), asked)
                warned = warning_texts(response.headers.getlist("Warning"))
                self.warnings += [text for text in warned if text not in self.warnings]
                yield response
            finally:
                # What was not read to its end cannot be used again.
                response.close()
        except urllib3.exceptions.HTTPError as error:
            raise unreachable(self.server, error) from error

    def get_job(self, name: str, namespace: str) -> dict[str, Any]:
        """One RLJob.

        Raises:
            KubeError: there is none; the hint names those that look alike.
        """
        asked = Asked("get", PLURAL, GROUP, namespace, name)
        try:
            return self.json(asked, "GET", jobs_path(namespace, name))
        except KubeError as error:
            if error.code != 404 or error.reason != "NotFound":
                raise
        names = self._job_names(namespace)
        raise no_such_job(name, namespace, names, near=difflib.get_close_matches(name, names, n=2))

    def list_jobs(self, namespace: str) -> dict[str, Any]:
        """The list object of a namespace's RLJobs; empty: of all namespaces."""
        return self.json(Asked("list", PLURAL, GROUP, namespace), "GET", jobs_path(namespace))

    def _job_names(self, namespace: str) -> list[str]:
        try:
            return [item["metadata"]["name"] for item in self.list_jobs(namespace).get("items", [])]
        except KubeError:
            return []  # who may get one job may not be allowed to list them all: it is a hint only

    def list_pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Pods with these labels, oldest first."""
        asked = Asked("list", "pods", "", namespace)
        answer = self.json(asked, "GET", f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": selector})
        return sorted(answer.get("items", []), key=lambda pod: str(pod["metadata"].get("creationTimestamp")))


def jobs_path(namespace: str, name: str = "") -> str:
    """Path of a namespace's RLJobs, of one of them, or (namespace empty) of all."""
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{GROUP}/{VERSION}{scope}/{PLURAL}" + (f"/{name}" if name else "")


def warning_texts(headers: Sequence[str]) -> list[str]:
    """The texts of Warning headers: 299 - "deprecated"."""
    found = (re.fullmatch(r'299 \S+ "(.*)"', header) for header in headers)
    return [re.sub(r"\\(.)", r"\1", match[1]) for match in found if match]


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def unreachable(server: str, error: Exception) -> Unreachable:
    """The error for a request that got no answer."""
    cause = getattr(error, "reason", None)
    cause = cause if isinstance(cause, Exception) else error
    names = {kind.__name__ for kind in type(cause).__mro__}
    text = str(cause).split(": ", 1)[-1] if "NewConnectionError" in names else str(cause)
    hint = "is the cluster up, and the right one? `kubectl config current-context` and `kubectl cluster-info` tell"
    if "NameResolutionError" in names:
        what = "its name cannot be resolved"
    elif "ConnectTimeoutError" in names and "NewConnectionError" not in names:
        what = f"no connection within {CONNECT_TIMEOUT_S:.0f} s"
    elif "ReadTimeoutError" in names:
        what = "no answer in time"
    elif "SSLError" in names:
        what = f"its certificate is not trusted: {text}"
        hint = "is certificate-authority of the kubeconfig that of this cluster?"
    elif "ProxyError" in names:
        what = f"the proxy refused: {text}"
        hint = "see HTTPS_PROXY, NO_PROXY and proxy-url in the kubeconfig"
    else:
        what = text
    return Unreachable(f"the cluster at {server} cannot be reached: {what}", hint=hint)


def kubernetes_module(name: str) -> Any:
    """A module of the official client, which is an extra.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(f"kubernetes.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "kubernetes" and error.name in ("kubernetes", f"kubernetes.{name}"):
            raise UserError(
                "commands for a cluster need the package kubernetes, which is not installed",
                hint="pip install 'rlcore[kube]'",
            ) from error
        raise


def websocket_module() -> Any:
    """The library that the official client opens websockets with."""
    return importlib.import_module("websocket")
