"""Namespaces of the kernel in which a node lives: network, mounts and processes of its own.

Nothing of the machine's own is touched: bridges, iptables rules, mounts and containers are inside, and the kernel takes
all of them away when the first process inside ends, which it does with this process, however that ends. A pair of
virtual network cards joins the inside with the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.kube.process import Daemon
from tests.kube.wait import eventually

HOST_ADDRESS, NODE_ADDRESS = "10.245.77.1", "10.245.77.2"
POD_CIDR, BRIDGE, BRIDGE_ADDRESS = "10.244.77.0/24", "cni0", "10.244.77.1"
_HOST_CARD, _NODE_CARD = "rlcore-host", "rlcore-node"
_COMMANDS = ("unshare", "nsenter", "setpriv", "ip", "iptables")


def why_not() -> str:
    """Why there can be no sandbox here, in one line; empty where there can."""
    if os.geteuid():
        return "namespaces of network and mounts need root"
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    return f"no {', '.join(missing)} on PATH" if missing else ""


class Sandbox:
    """A context manager: made on entry; all that runs in it is killed on exit."""

    def __init__(self, workdir: Path) -> None:
        self._holder = Daemon(
            "sandbox",
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "infinity"],
            log=workdir / "logs" / "sandbox.log",
        )

    def __enter__(self) -> Self:
        self._holder.start()
        self._pid = eventually(self._first_process, 10, what="the first process of the sandbox")
        run("ip", "link", "delete", _HOST_CARD, check=False)  # of a run that was killed a moment ago
        run("ip", "link", "add", _HOST_CARD, "type", "veth", "peer", "name", _NODE_CARD, "netns", str(self._pid))
        run("ip", "address", "add", f"{HOST_ADDRESS}/30", "dev", _HOST_CARD)
        run("ip", "link", "set", _HOST_CARD, "up")
        inside = (
            ("ip", "link", "set", "lo", "up"),
            ("ip", "address", "add", f"{NODE_ADDRESS}/30", "dev", _NODE_CARD),
            ("ip", "link", "set", _NODE_CARD, "up"),
            ("ip", "route", "add", "default", "via", HOST_ADDRESS),
            ("ip", "link", "add", BRIDGE, "type", "bridge"),
            ("ip", "address", "add", f"{BRIDGE_ADDRESS}/24", "dev", BRIDGE),
            ("ip", "link", "set", BRIDGE, "up"),
            ("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"),
        )
        for command in inside:
            run(*self.command(command))
        run("ip", "route", "replace", POD_CIDR, "via", NODE_ADDRESS)
        return self

    def __exit__(self, *error: object) -> None:
        self._holder.stop(2)

    def command(self, command: Sequence[str | Path]) -> list[str]:
        """The command as it is run inside: it ends with the process that is started here."""
        enter = ["nsenter", "--target", str(self._pid), "--net", "--mount", "--pid"]
        return [*enter, "setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]

    def daemon(
        self, name: str, command: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None
    ) -> Daemon:
        """A process inside."""
        return Daemon(name, self.command(command), log=log, env=env)

    def _first_process(self) -> int:
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()
        return int(children[0]) if children else 0


def run(*command: str | Path, check: bool = True, timeout_s: float = 60) -> str:
    """Output of a command. Raises RuntimeError with what it said."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=timeout_s, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
