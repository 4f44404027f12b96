"""The binaries of the test cluster: taken where they are, else built once with the ordinary Go client.

The folders of modules/ hold a go.mod and a go.sum each, which pin every byte that is built. Binaries stay out of the
repository, in a cache of the user, under a name that changes with all they are made from. A folder named by
KUBEBUILDER_ASSETS is looked at first. `python -m tests.kube.binaries` builds all of them and prints where they are.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULES_DIR = Path(__file__).parent / "modules"


@dataclass(frozen=True)
class Module:
    """A folder of modules/, and the package of each binary that is built there."""

    name: str
    packages: dict[str, str]
    version_of: str
    """The required module whose version the binaries report."""
    version_variables: tuple[str, ...] = ()
    """Go packages with the variables gitVersion, gitMajor and gitMinor, empty unless the linker sets them."""

    @property
    def folder(self) -> Path:
        return MODULES_DIR / self.name

    @property
    def version(self) -> str:
        found = re.search(rf"{re.escape(self.version_of)} (v[\d.]+)", (self.folder / "go.mod").read_text())
        assert found, f"{self.folder / 'go.mod'} does not require {self.version_of}"
        return found[1]

    @property
    def flags(self) -> list[str]:
        linker = ["-s", "-w"]
        major, minor = self.version.removeprefix("v").split(".")[:2]
        for package in self.version_variables:
            values = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
            linker += [f"-X {package}.{variable}={value}" for variable, value in values.items()]
        return ["-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags", " ".join(linker)]


def _commands(prefix: str, *names: str) -> dict[str, str]:
    return {name: f"{prefix}/{name}" for name in names}


MODULES = (
    Module("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}, "go.etcd.io/etcd/server/v3"),
    Module(
        "kubernetes",
        _commands(
            "k8s.io/kubernetes/cmd",
            *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet", "kube-proxy"),
        ),
        "k8s.io/kubernetes",
        ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"),
    ),
    Module("helm", {"helm": "helm.sh/helm/v4/cmd/helm"}, "helm.sh/helm/v4"),
    Module("coredns", {"coredns": "github.com/coredns/coredns"}, "github.com/coredns/coredns"),
    Module("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, "sigs.k8s.io/kwok"),
    Module(
        "kubeconform", {"kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"}, "github.com/yannh/kubeconform"
    ),
)
MODULE_OF = {binary: module for module in MODULES for binary in module.packages}

NODE = ("kubelet", "kube-proxy", "coredns")
"""What a real node runs besides; only tests/node needs it."""
CONTROL_PLANE = tuple(binary for binary in MODULE_OF if binary not in NODE)


class BuildError(RuntimeError):
    """A binary could not be built; the message ends with what the Go client said."""


def find(binary: str) -> Path | None:
    """The binary in KUBEBUILDER_ASSETS, or one built before from the very same sources; else None."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and os.access(Path(assets) / binary, os.X_OK):
        return Path(assets) / binary
    module = MODULE_OF[binary]
    if _go_trouble(module):
        return None
    built = _home(module) / binary
    return built if built.exists() else None


def why_not(binaries: Iterable[str] = CONTROL_PLANE) -> str:
    """Why these binaries cannot be had here, in one line; empty where they can."""
    for binary in binaries:
        if find(binary) is None and (trouble := _go_trouble(MODULE_OF[binary])):
            return f"no {binary}: not in KUBEBUILDER_ASSETS, and it cannot be built: {trouble}"
    return ""


def ensure(binaries: Iterable[str] = CONTROL_PLANE) -> dict[str, Path]:
    """Path of each binary; builds those that are missing, which takes minutes the first time. Raises BuildError."""
    return {binary: find(binary) or _build(binary) for binary in binaries}


def _build(binary: str) -> Path:
    module = MODULE_OF[binary]
    if trouble := _go_trouble(module):
        raise BuildError(f"no {binary}: {trouble}")
    target = _home(module) / binary
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.parent / ".lock"):
        if target.exists():
            return target
        print(f"building {binary} {module.version} ... ", end="", flush=True)
        started = time.monotonic()
        unfinished, log = target.with_name(f".{binary}.new"), target.with_name(f"{binary}.log")
        command = ["go", "build", *module.flags, "-o", str(unfinished), module.packages[binary]]
        with log.open("w") as output:
            done = subprocess.run(
                command, cwd=module.folder, env=_go_environment(), stdout=output, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode:
            print("failed", flush=True)
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            raise BuildError(f"{binary} could not be built (all of it in {log}):\n{' '.join(command)}\n{tail}")
        unfinished.rename(target)
        log.unlink()
        print(f"{time.monotonic() - started:.0f} s", flush=True)
    return target


def cache_folder(name: str) -> Path:
    """A folder of the user's cache for what takes long to make."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "rlcore" / name


def _home(module: Module) -> Path:
    """Where the module's binaries are kept: the name changes with everything that they are made from."""
    content = hashlib.sha256()
    parts = (_go_version(module.name)[0], *module.flags, *(f"{k}={v}" for k, v in _BUILD_ENVIRONMENT.items()))
    for part in parts:
        content.update(part.encode() + b"\0")
    for name in ("go.mod", "go.sum"):
        content.update((module.folder / name).read_bytes() + b"\0")
    return cache_folder("binaries") / f"{module.name}-{content.hexdigest()[:16]}"


_BUILD_ENVIRONMENT = {"CGO_ENABLED": "0", "GOWORK": "off"}


def _go_environment() -> dict[str, str]:
    return {**os.environ, **_BUILD_ENVIRONMENT}


def _go_trouble(module: Module) -> str:
    return _go_version(module.name)[1]


@functools.cache
def _go_version(module: str) -> tuple[str, str]:
    """The Go version and platform that would build this module, and what is wrong with it (empty: nothing)."""
    if shutil.which("go") is None:
        return "", "there is no Go (`go`) on PATH"
    command = ["go", "env", "GOVERSION", "GOOS", "GOARCH"]
    done = subprocess.run(
        command, cwd=MODULES_DIR / module, env=_go_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        return "", " ".join(done.stderr.split()) or f"`go env` ends with {done.returncode}"
    return " ".join(done.stdout.split()), ""


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds a lock of this machine, so that two processes do not build the same thing twice."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    if trouble := why_not(MODULE_OF):
        print(trouble, file=sys.stderr)
        return 1
    for binary, path in ensure(sys.argv[1:] or MODULE_OF).items():
        print(f"{binary} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
