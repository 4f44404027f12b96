"""An API server that misbehaves: a proxy in front of the real one, which is slow, fails and cuts connections as told.

Clients come with bearer tokens (it has no use for client certificates), over HTTP/1.1; upgrades (exec, port-forward)
do not pass.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
from aiohttp import web
from yarl import URL

from tests.kube.cluster import Cluster
from tests.kube.process import free_port
from tests.kube.request_info import RequestInfo, request_info

T = TypeVar("T")

HOST = "127.0.0.1"
ADMIN = "fault-proxy-admin"
REASONS = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "host")
)
REQUEST_LIMIT_BYTES = 64 * 1024**2


@dataclass
class Fault:
    """Something that goes wrong with the requests that match."""

    status: int | None
    """The answer; None: the connection is cut instead."""
    methods: frozenset[str]
    """Empty: all."""
    path: re.Pattern[str]
    rate: float
    left: int | None
    """How many more times; None: without end."""
    after: bool
    """The request is carried out, and only its answer is lost."""
    retry_after_s: int | None
    once: re.Pattern[str] | None = None
    """The same request again passes; what this finds in it may differ."""
    then: Callable[[], None] | None = None
    """Called at the moment at which it goes wrong, before the client learns of it."""
    hits: int = 0
    seen: set[str] = field(default_factory=set[str])

    def matches(self, method: str, path: str) -> bool:
        return self.left != 0 and (not self.methods or method in self.methods) and bool(self.path.search(path))

    def strikes(self, chance: float, request: str) -> bool:
        """Whether a request that matches is hit."""
        if chance >= self.rate:
            return False
        if self.once:
            request = self.once.sub("", request)
            if request in self.seen:
                return False
            self.seen.add(request)
        self.hits += 1
        self.left = None if self.left is None else self.left - 1
        return True


class FaultProxy:
    """A context manager; what it does to requests can be changed at any time, from any thread.

    with FaultProxy(cluster) as proxy:
        start_operator(proxy.kubeconfig_for("system", "operator"))
        conflicts = proxy.fail(409, rate=0.3, methods=["PATCH"], path="/rljobs/[^/]+/status")
        ...
        conflicts.left = 0
        assert proxy.counts["patch", "rljobs/status"] < 10
    """

    def __init__(self, upstream: Cluster, *, seed: int = 0) -> None:
        self.upstream = upstream
        self.latency_s = 0.0
        """Before each request is passed on."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """Requests by (verb, resource), those that failed included; see request_info."""
        self._faults: list[Fault] = []
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        port = free_port(HOST)
        self.url = f"https://{HOST}:{port}"
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *error: object) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of an administrator that goes through this proxy."""
        account = {"kind": "ServiceAccount", "name": ADMIN, "namespace": "kube-system"}
        self.upstream.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ADMIN, "namespace": "kube-system"}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": ADMIN},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [account],
            },
        )
        return self.kubeconfig_for("kube-system", ADMIN)

    def kubeconfig_for(self, namespace: str, service_account: str) -> Path:
        """A kubeconfig of that ServiceAccount that goes through this proxy."""
        return self.upstream.kubeconfig_for(namespace, service_account, server=self.url)

    def fail(
        self,
        status: int,
        *,
        rate: float = 1.0,
        count: int | None = None,
        methods: Iterable[str] = (),
        path: str = "",
        after: bool = False,
        retry_after_s: int | None = None,
    ) -> Fault:
        """Answers with this status a share of the requests, or the next count of them.

        path is a regular expression, searched for in the path with its query (`watch=true`). With after the request is
        carried out all the same, and only its answer is replaced.
        """
        fault = Fault(status, frozenset(methods), re.compile(path), rate, count, after, retry_after_s)
        return self._add(fault)

    def cut(
        self,
        *,
        rate: float = 1.0,
        count: int | None = None,
        methods: Iterable[str] = (),
        path: str = "",
        after: bool = False,
        once: str = "",
        then: Callable[[], None] | None = None,
    ) -> Fault:
        """Closes the connection without an answer, for requests chosen as in fail.

        With once the same request passes when it comes again; the same is what differs only in what this regular
        expression finds in method, path and body. then is called before the connection is closed, such as to kill the
        client.
        """
        same = re.compile(once) if once else None
        return self._add(Fault(None, frozenset(methods), re.compile(path), rate, count, after, None, same, then))

    def heal(self) -> None:
        """From now on everything is passed on at once."""
        with self._lock:
            self._faults.clear()
            self.latency_s = 0.0

    def cut_connections(self) -> None:
        """Cuts all connections that are open now, watches in the middle."""

        async def cut() -> None:
            for connection in self._connections():
                _abort(connection.transport)

        self._call(cut())

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _start(self) -> None:
        authority = self.upstream.control_plane.authority
        to_upstream = ssl.create_default_context(cafile=str(authority.certificate))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=to_upstream, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        own = authority.issue(f"proxy-{self._port}", "fault-proxy", hosts=(HOST,))
        to_clients = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        to_clients.load_cert_chain(own.certificate, own.key)
        application = web.Application(client_max_size=REQUEST_LIMIT_BYTES)
        application.router.add_route("*", "/{path:.*}", self._handle)
        # A client that goes away ends its watch upstream as well.
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self._port, ssl_context=to_clients).start()

    async def _stop(self) -> None:
        for connection in self._connections():
            _abort(connection.transport)
        await self._runner.cleanup()
        await self._session.close()

    def _connections(self) -> list[web.RequestHandler]:
        return self._runner.server.connections if self._runner.server else []

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        info = request_info(request.method, request.path_qs)
        body = await request.read()
        fault = self._note(info, request, body)
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        if fault and not fault.after:
            return _answer(fault, request)
        try:
            async with self._session.request(
                request.method,
                URL(f"{self.upstream.server}{request.raw_path}", encoded=True),
                headers=[(k, v) for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP],
                data=body,
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
                allow_redirects=False,
            ) as answer:
                if fault:
                    await answer.read()
                    return _answer(fault, request)
                return await _pass_on(answer, request)
        except (aiohttp.ClientError, OSError):
            # The API server is away: the client sees what it would have seen without a proxy.
            _abort(request.transport)
            return web.Response()

    def _note(self, info: RequestInfo, request: web.Request, body: bytes) -> Fault | None:
        """Counts the request, and says what shall go wrong with it."""
        whole = f"{request.method} {request.path_qs} {body.decode(errors='replace')}"
        with self._lock:
            self.counts[info] += 1
            for fault in self._faults:
                if fault.matches(request.method, request.path_qs) and fault.strikes(self._random.random(), whole):
                    return fault
        return None


async def _pass_on(answer: aiohttp.ClientResponse, request: web.Request) -> web.StreamResponse:
    """Passes an answer on piece by piece, so that events of a watch arrive as they happen."""
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for key, value in answer.headers.items():
        if key.lower() not in HOP_BY_HOP:
            response.headers.add(key, value)
    await response.prepare(request)
    async for piece in answer.content.iter_any():
        await response.write(piece)
    await response.write_eof()
    return response


def _answer(fault: Fault, request: web.Request) -> web.Response:
    if fault.then:
        fault.then()
    if fault.status is None:
        _abort(request.transport)
        return web.Response()
    reason = REASONS.get(fault.status, "Unknown")
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": reason,
        "message": f"{reason} by order of a test",
        "code": fault.status,
    }
    headers = {} if fault.retry_after_s is None else {"Retry-After": str(fault.retry_after_s)}
    return web.json_response(status, status=fault.status, headers=headers)


def _abort(transport: asyncio.BaseTransport | None) -> None:
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()
