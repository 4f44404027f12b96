"""The project's images, built by buildah from the Dockerfile of the tree, and handed to a node's containerd.

Layers are kept in the user's cache: what did not change is not built again. The base image is a Debian made by
debootstrap from this machine's own package source, since no registry of images may be reachable.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.kube.binaries import cache_folder
from tests.kube.cluster import ROOT
from tests.kube.sandbox import run

CACHE = cache_folder("images")
"""Of layers and images."""
_COMMANDS = ("buildah", "debootstrap")
_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
BASE_PACKAGES = ("ca-certificates", "python3", "python3-pip", "python3-venv", "wget")
BASE, PAUSE, OPERATOR, TRAINING = (
    f"localhost/rlcore-test/{name}" for name in ("base", "pause", "operator", "rlcore-cpu")
)
_FROM_MACHINE = ("/etc/ssl/certs", "/etc/resolv.conf", "/etc/pip.conf")
"""What a build needs to reach the machine's package sources."""


def why_not() -> str:
    """Why no image can be built here, in one line; empty where it can."""
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    return f"no {', '.join(missing)} on PATH (Debian packages of these names)" if missing else ""


@dataclass(frozen=True)
class Image:
    """One in the store.

    Attributes:
        name: reference.
        digest: of its configuration; the same for the same content.
        size_bytes: of all of its layers.
        own_bytes: of the layers above the first, which is the base image's.
    """

    name: str
    digest: str
    size_bytes: int
    own_bytes: int


class ImageStore:
    """buildah's storage in the cache folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or CACHE
        self._folder.mkdir(parents=True, exist_ok=True)

    def base(self) -> Image:
        """Debian with Python: the Dockerfile's BASE_IMAGE."""
        key = hashlib.sha256(" ".join((_suite(), *BASE_PACKAGES)).encode()).hexdigest()[:12]
        name = f"{BASE}:{key}"
        if not self._there(name):
            _say(f"making the base image with debootstrap ({_suite()})")
            with tempfile.TemporaryDirectory(dir=self._folder) as root:
                packages = ",".join(BASE_PACKAGES)
                run(
                    "debootstrap",
                    "--variant=minbase",
                    f"--include={packages}",
                    _suite(),
                    root,
                    _mirror(),
                    timeout_s=600,
                )
                self._commit_folder(name, Path(root))
        return self._look(name)

    def pause(self) -> Image:
        """One process that sleeps: what holds a pod's network."""
        base = self.base().name
        name = f"{PAUSE}:{base.rpartition(':')[2]}"
        if self._there(name):
            return self._look(name)
        container = self._buildah("from", "--pull-never", base).strip()
        self._buildah("config", "--cmd", "[]", "--entrypoint", '["/bin/sleep", "infinity"]', container)
        self._buildah("commit", "--quiet", "--rm", container, name)
        return self._look(name)

    def build(self, target: str, name: str) -> Image:
        """A target of the Dockerfile, from the tree as it is."""
        _say(f"building {target}")
        started = time.monotonic()
        mounts = [f"--volume={path}:{path}:ro" for path in _FROM_MACHINE if Path(path).exists()]
        self._buildah(
            *("build", "--layers", "--network=host", "--isolation=chroot", *mounts),
            *("--build-arg", f"BASE_IMAGE={self.base().name}", "--pull-never"),
            *("--target", target, "--tag", name, str(ROOT)),
            timeout_s=3600,
        )
        _say(f"{target} built in {time.monotonic() - started:.0f} s")
        return self._look(name)

    def export(self, image: Image, command: list[str]) -> None:
        """Writes the image as an archive to the standard input of a command, without a copy on the disk."""
        push = [*self._command("push", "--quiet"), image.name, f"docker-archive:/dev/stdout:{image.name}"]
        with subprocess.Popen(push, stdout=subprocess.PIPE) as sender:
            done = subprocess.run(command, stdin=sender.stdout, capture_output=True, text=True, check=False)
        if done.returncode or sender.returncode:
            raise RuntimeError(f"{image.name} not handed over: {sender.returncode}, {done.returncode}\n{done.stderr}")

    def _commit_folder(self, name: str, root: Path) -> None:
        container = self._buildah("from", "scratch").strip()
        try:
            self._buildah("add", "--quiet", container, str(root), "/", timeout_s=600)
            self._buildah("config", "--cmd", "/bin/sh", container)
            self._buildah("commit", "--quiet", container, name, timeout_s=600)
        finally:
            self._buildah("rm", container)

    def _there(self, name: str) -> bool:
        return bool(self._buildah("images", "--quiet", "--filter", f"reference={name}").strip())

    def _look(self, name: str) -> Image:
        found = json.loads(self._buildah("inspect", "--type", "image", name))
        sizes = [int(layer["size"]) for layer in json.loads(found["Manifest"])["layers"]]
        return Image(name, found["FromImageID"], sum(sizes), sum(sizes[1:]))

    def _command(self, *arguments: str) -> list[str]:
        folder = self._folder
        return [
            *("buildah", "--root", str(folder / "store"), "--runroot", str(folder / "run")),
            *("--storage-driver", "overlay", *arguments),
        ]

    def _buildah(self, *arguments: str, timeout_s: float = 120) -> str:
        return run(*self._command(*arguments), timeout_s=timeout_s)


def _deb822(field: str) -> str:
    """A field of the first stanza of the machine's Debian sources."""
    for line in _SOURCES.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return value.split()[0]
    raise RuntimeError(f"{_SOURCES} has no {field}: the base image is made from the machine's own package source")


def _suite() -> str:
    return _deb822("Suites")


def _mirror() -> str:
    return _deb822("URIs")


def _say(text: str) -> None:
    print(text, flush=True)
