"""A command in a container of a pod, as `kubectl exec` runs it: over a websocket, output as bytes.

The official client opens the websocket. Its frames are read here: each is a channel's number and a piece of the
channel's bytes (Kubernetes' subprotocols v4 and v5). Older clients' own readers miss frames that TLS has decrypted
together with the one before.
"""

from __future__ import annotations

import contextlib
import json
import select
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from rlcore.cli.kube import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, Kube, kubernetes_module, websocket_module
from rlcore.cli.kube_errors import Asked, Unreachable, refusal

HANDSHAKE_TIMEOUT_S = 2 * CONNECT_TIMEOUT_S
"""The API server has to reach the kubelet, and the kubelet the container's runtime."""
CLOSE_TIMEOUT_S = 1.0
PING_EVERY_S = 30.0
"""Load balancers cut connections on which nothing is said."""

_STDOUT, _STDERR, _RESULT = 1, 2, 3
_connecting = threading.Lock()


class Exec:
    """A running command; leaving the context ends it.

    with Exec(kube, "training", "pong-1-head", "ray-head", ["tail", "-F", file]) as command:
        for piece in command.output(idle_s=2):
            ...

    Args:
        with_input: it has a standard input, which ends when the context is left.

    Raises:
        KubeError: the API server refused, or its kubelet did not answer.
        Unreachable: nobody answered.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        with_input: bool = False,
    ) -> None:
        query = [("container", container), ("stdout", "true"), ("stderr", "true")]
        query += [("stdin", "true")] if with_input else []
        query += [("command", word) for word in command]
        url = f"{kube.url(f'/api/v1/namespaces/{namespace}/pods/{pod}/exec')}?{urlencode(query)}"
        self._asked = Asked("create", "pods/exec", "", namespace, pod)
        self._socket = _open(kube, url, self._asked)
        self._pinged = time.monotonic()
        self._kept = {_STDERR: b"", _RESULT: b""}

    def __enter__(self) -> Exec:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError, websocket_module().WebSocketException):
            self._socket.close(timeout=CLOSE_TIMEOUT_S)
        # Where the other side closed first, close() leaves the connection open.
        self._socket.shutdown()

    def output(self, idle_s: float) -> Iterator[bytes]:
        """Standard output as it comes; an empty piece after each silence of idle_s seconds; ends with the command."""
        library = websocket_module()
        while True:
            try:
                if not self._readable(idle_s):
                    self._ping()
                    yield b""
                    continue
                opcode, frame = self._socket.recv_data_frame(True)
            except (OSError, library.WebSocketException) as error:
                raise Unreachable(f"the connection to pod {self._asked.name} broke: {error}") from error
            if opcode == library.ABNF.OPCODE_CLOSE:
                return
            if opcode in (library.ABNF.OPCODE_BINARY, library.ABNF.OPCODE_TEXT) and len(frame.data) > 1:
                channel, piece = frame.data[0], frame.data[1:]
                if channel == _STDOUT:
                    yield piece
                elif channel in self._kept:
                    self._kept[channel] += piece

    def exit_code(self) -> int:
        """Of the command, whose output has ended.

        Raises:
            KubeError: it was never started; the text has what the kubelet said.
            Unreachable: the connection ended before the command.
        """
        try:
            result = json.loads(self._kept[_RESULT])
        except ValueError:
            raise Unreachable(f"the connection to pod {self._asked.name} ended before the command") from None
        if result.get("status") == "Success":
            return 0
        for cause in (result.get("details") or {}).get("causes") or []:
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
        raise refusal(500, json.dumps({**result, "kind": "Status"}), self._asked)

    def errors(self) -> str:
        """What the command has written to its standard error so far."""
        return self._kept[_STDERR].decode("utf-8", "replace").strip()

    def _readable(self, timeout_s: float) -> bool:
        connection = self._socket.sock
        # TLS is decrypted a record at a time: the next frame may be here, where select() does not see it.
        if isinstance(connection, ssl.SSLSocket) and connection.pending():
            return True
        return bool(select.select([connection], [], [], timeout_s)[0])

    def _ping(self) -> None:
        if time.monotonic() - self._pinged > PING_EVERY_S:
            self._socket.ping()
            self._pinged = time.monotonic()


def run(kube: Kube, namespace: str, pod: str, container: str, command: Sequence[str]) -> tuple[int, bytes, str]:
    """Run a command that ends by itself: exit code, output, and what it wrote to its standard error.

    Raises:
        KubeError, Unreachable: as Exec; also where it is silent for READ_TIMEOUT_S.
    """
    pieces = []
    with Exec(kube, namespace, pod, container, command) as running:
        for piece in running.output(idle_s=READ_TIMEOUT_S):
            if not piece:
                raise Unreachable(f"the command in pod {pod} does not answer")
            pieces.append(piece)
        return running.exit_code(), b"".join(pieces), running.errors()


def _open(kube: Kube, url: str, asked: Asked) -> Any:
    client, library = kubernetes_module("stream.ws_client"), websocket_module()
    # The client takes no time-out for the handshake; the library has one for all, and that is set back at once.
    with _connecting:
        before = library.getdefaulttimeout()
        library.setdefaulttimeout(HANDSHAKE_TIMEOUT_S)
        try:
            return client.create_websocket(kube.configuration, client.get_websocket_url(url), kube.auth_headers())
        except library.WebSocketBadStatusException as error:
            raise refusal(error.status_code, error.resp_body or b"", asked) from error
        except (OSError, library.WebSocketException) as error:
            what = str(error) or type(error).__name__
            raise Unreachable(f"no command could be run in pod {asked.name}: {what}") from error
        finally:
            library.setdefaulttimeout(before)
