"""A Unix socket in the driver's runtime directory: whoever stops the pod asks it for a last checkpoint.

The only command is `checkpoint`, one line; the answer is one line as well. See rlcore/prestop.py for the client.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from pathlib import Path
from queue import Empty, SimpleQueue

from rlcore.prestop import ANSWER_DEADLINE_S, COMMAND, SOCKET_FILE

logger = logging.getLogger("rlcore.driver")


class CheckpointSocket:
    """Takes requests on a thread of its own; the driver answers them between two steps.

    Args:
        directory: where the socket is made.
    """

    def __init__(self, directory: Path) -> None:
        self._requests: SimpleQueue[socket.socket] = SimpleQueue()
        # A path through /proc, for a socket's own path may have 108 bytes only.
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        self._path = directory / SOCKET_FILE
        self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(f"/proc/self/fd/{self._directory}/{SOCKET_FILE}")
        self._path.chmod(0o600)
        self._socket.listen(4)
        threading.Thread(target=self._serve, name="rlcore-checkpoint-socket", daemon=True).start()

    @property
    def asked(self) -> bool:
        """Whether somebody waits for a checkpoint."""
        return not self._requests.empty()

    def answer(self, text: str) -> None:
        """Tells everybody who waits."""
        with contextlib.suppress(Empty):
            while True:
                with self._requests.get_nowait() as connection, contextlib.suppress(OSError):
                    connection.sendall(f"{text}\n".encode())

    def close(self) -> None:
        """Ends the socket; whoever still waits is told so by the end of the connection."""
        self.answer("the driver ends")
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._path.unlink(missing_ok=True)
        os.close(self._directory)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            try:
                connection.settimeout(ANSWER_DEADLINE_S)
                if connection.recv(64).decode(errors="replace").strip() == COMMAND:
                    logger.info("a checkpoint is asked for before this pod stops")
                    self._requests.put(connection)
                    continue
            except OSError as error:
                logger.warning("checkpoint socket: %s", error)
            connection.close()
