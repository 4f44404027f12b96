"""Environments for the peers: one virtual environment each, made with uv when it is first needed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent / "peers"
# A line of a requirements file that begins so is installed without what it says it needs.
WITHOUT_DEPENDENCIES = "# --no-deps "


class InstallationError(Exception):
    """A peer that cannot be installed here; the message says why."""


def peer_python(peer: str) -> Path:
    """The interpreter of a peer's environment, which is made if it is not there.

    Raises:
        InstallationError: uv is missing, or could not install the peer.
    """
    text = (REQUIREMENTS / f"{peer}.txt").read_text()
    home = cache_folder() / environment_name(peer, text)
    python = home / "bin" / "python"
    done = home / "installed"
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        _uv("venv", "--quiet", "--python", python_version(), str(home))
        _uv("pip", "install", "--quiet", "--python", str(python), "-r", str(REQUIREMENTS / f"{peer}.txt"))
        for requirement in without_dependencies(text):
            _uv("pip", "install", "--quiet", "--python", str(python), "--no-deps", requirement)
        done.touch()
    return python


def cache_folder() -> Path:
    """Where environments are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlcore" / "peers"


def environment_name(peer: str, requirements: str) -> str:
    """Another name, and so a new environment, for other requirements or another Python."""
    digest = hashlib.sha256(f"{python_version()}\n{requirements}".encode()).hexdigest()
    return f"{peer}-{digest[:12]}"


def without_dependencies(requirements: str) -> list[str]:
    """Requirements that are installed bare, because their own pins exclude this Python."""
    lines = requirements.splitlines()
    return [line.removeprefix(WITHOUT_DEPENDENCIES) for line in lines if line.startswith(WITHOUT_DEPENDENCIES)]


def python_version() -> str:
    """Peers run on the Python that we run on."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _uv(*arguments: str) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv is None:
        raise InstallationError("uv is not installed: pip install uv")
    done = subprocess.run([uv, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise InstallationError(lines[-1] if lines else f"uv {arguments[0]} failed")
