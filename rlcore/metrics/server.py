"""One small HTTP server for /metrics, /status and /healthz; it only reads, and no client can hold the driver up."""

from __future__ import annotations

import errno
import json
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from rlcore.errors import UserError

logger = logging.getLogger("rlcore.metrics")

REQUEST_DEADLINE_S = 10.0
MAX_CONNECTIONS = 32
"""Beyond these, new connections are closed at once: a scraper tries again, threads do not pile up."""


class MetricsServer:
    """Serves `registry` and what `status` returns, from threads of its own.

    Args:
        registry: for /metrics.
        status: called for each /status; returns JSON values.
        host: 127.0.0.1 unless others must reach it; "0.0.0.0" or "::" in a pod.
        port: 0 takes any free one; see `port` for which.

    Raises (from the constructor):
        UserError: the port is taken, or host or port cannot be used.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        status: Callable[[], Mapping[str, Any]],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        request_deadline_s: float = REQUEST_DEADLINE_S,
    ) -> None:
        try:
            self._server = _Server((host, port), registry, status, request_deadline_s)
        except (OSError, OverflowError) as error:
            raise _cannot_listen(host, port, error) from error
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="rlcore-metrics", daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self, deadline_s: float = 5.0) -> None:
        """Stop listening and close every connection; returns within `deadline_s`, whatever the clients do."""
        if self._thread.is_alive():
            # shutdown() waits for the serving loop without a limit, so the limit is set from outside.
            threading.Thread(target=self._server.shutdown, name="rlcore-metrics-stop", daemon=True).start()
            self._thread.join(deadline_s)
        self._server.server_close()
        self._server.close_connections(older_than_s=0.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a stuck client's thread is not waited for
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self,
        address: tuple[str, int],
        registry: CollectorRegistry,
        status: Callable[[], Mapping[str, Any]],
        request_deadline_s: float,
    ) -> None:
        self.registry, self.status, self.request_deadline_s = registry, status, request_deadline_s
        self._connections: dict[socket.socket, float] = {}
        self._connections_lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own looks its name up, and a slow name server would hold the driver's start up.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._connections_lock:
            free = len(self._connections) < MAX_CONNECTIONS
            if free:
                self._connections[request] = time.monotonic()
        if free:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self._connections_lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        # Called by the serving loop ten times a second. A socket's time-out alone would let a client that sends one
        # byte now and then stay for ever.
        self.close_connections(older_than_s=self.request_deadline_s)

    def close_connections(self, older_than_s: float) -> None:
        now = time.monotonic()
        with self._connections_lock:
            for connection, since in self._connections.items():
                if now - since >= older_than_s:
                    _shut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("request from %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "rlcore"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.request_deadline_s)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._answer_with(lambda: encode(self.server.registry), content_type)
        elif path == "/status":
            self._answer_with(lambda: _json(self.server.status()), "application/json")
        elif path == "/healthz":
            self._answer(HTTPStatus.OK, b"ok\n", "text/plain; charset=utf-8")
        else:
            text = b"not found; there are /metrics, /status and /healthz\n"
            self._answer(HTTPStatus.NOT_FOUND, text, "text/plain; charset=utf-8")

    def do_HEAD(self) -> None:
        self.do_GET()

    def __getattr__(self, name: str) -> Callable[[], None]:
        # http.server looks for do_<METHOD>, whatever a client calls its method.
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def _refuse(self) -> None:
        text = b"read-only: GET and HEAD\n"
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, text, "text/plain; charset=utf-8", Allow="GET, HEAD")

    def _answer_with(self, make_body: Callable[[], bytes], content_type: str) -> None:
        try:
            body = make_body()
        except Exception:
            # A bug in a metric must not look like a driver that is gone.
            logger.exception("cannot answer %s", self.path)
            text = b"internal error; see the driver's log\n"
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, text, "text/plain; charset=utf-8")
        else:
            self._answer(HTTPStatus.OK, body, content_type)

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        logger.debug("%s %s", self.address_string(), format % args)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, allow_nan=False, indent=2).encode() + b"\n"


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)  # wakes its thread, which then closes it
    except OSError:
        return  # closed by its thread meanwhile


def _cannot_listen(host: str, port: int, error: Exception) -> UserError:
    hint = "choose another port, or 0 to take any free one"
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.EADDRINUSE:
        return UserError(f"metrics port {port} on {host} is in use by another program", hint=hint)
    if code == errno.EACCES:
        return UserError(f"metrics port {port} on {host} needs rights that this user lacks", hint=hint)
    return UserError(f"cannot serve metrics on {host} port {port}: {error}", hint="check host and port")
