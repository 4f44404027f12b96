"""Loopback addresses for heads and nodes: each has one of its own, the same after a restart."""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
from collections.abc import Sequence

_FIRST, _COUNT = (127 << 24) | (64 << 16), 64 << 16
"""127.64.0.0 to 127.127.255.255."""
_MOST_TRIES = 1000


class AddressBook:
    """Gives out addresses, derived from a uid; one on which another process listens is passed over."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._by_uid: dict[str, str] = {}
        self._taken: dict[str, str] = {}

    def claim(self, uid: str) -> str:
        if uid in self._by_uid:
            return self._by_uid[uid]
        start = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4])
        for offset in range(_MOST_TRIES):
            number = _FIRST + (start + offset) % _COUNT
            address = ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
            if number & 255 not in (0, 255) and address not in self._taken and self._is_free(address):
                self._by_uid[uid], self._taken[address] = address, uid
                return address
        raise RuntimeError(f"no loopback address with free ports {self._ports}; does something listen on 0.0.0.0?")

    def keep(self, uid: str, address: str) -> None:
        """An address that was given out before a restart."""
        self._by_uid[uid], self._taken[address] = address, uid

    def owner(self, address: str) -> str:
        """The uid that has an address; empty where none has."""
        return self._taken.get(address, "")

    def release(self, uid: str) -> None:
        if address := self._by_uid.pop(uid, None):
            del self._taken[address]

    def _is_free(self, address: str) -> bool:
        return all(is_free(address, port) for port in self._ports)


class Ports:
    """Gives out ports that nothing on this machine listens on, below those that the kernel gives to clients."""

    def __init__(self) -> None:
        self._given: set[int] = set()

    def claim(self) -> int:
        for port in random.sample(range(12_000, 20_000), 500):
            if port not in self._given and is_free("0.0.0.0", port):
                self._given.add(port)
                return port
        raise RuntimeError("no port is left")

    def release(self, port: int) -> None:
        self._given.discard(port)


def is_free(address: str, port: int) -> bool:
    """Whether a server could be started there now."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind((address, port))
        return True
    return False
