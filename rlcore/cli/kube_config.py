"""From kubeconfig files, or a pod's own service account, to a connection."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlcore.cli.kube import Kube, kubernetes_module
from rlcore.cli.kube_options import Where
from rlcore.errors import UserError

DEFAULT_FILE = "~/.kube/config"
POD_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class Kubeconfig:
    """What several files say together; the first one to name a thing wins, as with kubectl.

    Attributes:
        contexts: by name.
        current: name of the current one, or empty.
    """

    contexts: Mapping[str, Mapping[str, Any]]
    current: str


def connect(where: Where) -> Kube:
    """A connection to the cluster that the user chose; nothing has been sent yet.

    Raises:
        UserError: there is no kubeconfig, or it cannot be used.
    """
    files = kubeconfig_files(where.kubeconfig, os.environ)
    there = [file for file in files if file.is_file()]
    if not there:
        if where.kubeconfig is None and where.context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            return _connect_from_a_pod(where)
        raise UserError(
            f"there is no kubeconfig: no file {' or '.join(map(str, files))}",
            hint="give one with --kubeconfig or KUBECONFIG; your cluster's provider has a command that writes it",
        )
    name, context = choose_context(read_kubeconfig(there), where.context, " and ".join(map(str, there)))
    config = kubernetes_module("config")
    with _error_log() as errors:
        try:
            client = config.new_client_from_config(config_file=os.pathsep.join(map(str, there)), context=name)
        except (config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                f"the kubeconfig cannot be used with context {name}: {error}", hint="`kubectl config view` shows it"
            ) from error
    if errors:
        # The client logs that the login command failed, and goes on without credentials.
        raise UserError(f"the login command of context {name} failed: {errors[0]}", hint="run it by hand, or log in")
    return Kube(client, where.namespace or context.get("namespace") or "default")


def kubeconfig_files(option: str | None, environment: Mapping[str, str]) -> list[Path]:
    """The files to read, whether they exist or not: --kubeconfig, else KUBECONFIG, else the default."""
    named = [option] if option else [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return [Path(name).expanduser() for name in named or [DEFAULT_FILE]]


def read_kubeconfig(files: list[Path]) -> Kubeconfig:
    """The contexts of files.

    Raises:
        UserError: one of them cannot be read, or is no kubeconfig.
    """
    contexts: dict[str, Mapping[str, Any]] = {}
    current = ""
    for file in files:
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise UserError(f"{file} cannot be read as a kubeconfig: {error}") from error
        if not isinstance(content, dict):
            raise UserError(f"{file} is not a kubeconfig: it holds no mapping", hint="`kubectl config view` shows it")
        current = current or str(content.get("current-context") or "")
        listed = content.get("contexts")
        for entry in listed if isinstance(listed, list) else []:
            if isinstance(entry, dict) and entry.get("name"):
                context = entry.get("context")
                contexts.setdefault(str(entry["name"]), context if isinstance(context, dict) else {})
    return Kubeconfig(contexts, current)


def choose_context(kubeconfig: Kubeconfig, asked: str | None, source: str) -> tuple[str, Mapping[str, Any]]:
    """Name and content of the context to use.

    Raises:
        UserError: there is none of that name, or none is current.
    """
    known = ", ".join(kubeconfig.contexts) or "none"
    name = asked or kubeconfig.current
    if not name:
        raise UserError(f"{source} has no current context", hint=f"choose one with --context; there are: {known}")
    if name not in kubeconfig.contexts:
        near = difflib.get_close_matches(name, kubeconfig.contexts, n=1)
        raise UserError(
            f"{source} has no context {name}", hint=f"did you mean {near[0]}?" if near else f"there are: {known}"
        )
    return name, kubeconfig.contexts[name]


def _connect_from_a_pod(where: Where) -> Kube:
    client, config = kubernetes_module("client"), kubernetes_module("config")
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
        namespace = where.namespace or POD_NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    except (config.ConfigException, OSError) as error:
        raise UserError(
            f"there is no kubeconfig, and this pod has no credentials: {error}", hint="give one with --kubeconfig"
        ) from error
    return Kube(client.ApiClient(configuration), namespace)


@contextmanager
def _error_log() -> Iterator[list[str]]:
    """Collects what is logged as an error instead of showing it."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR:
                messages.append(record.getMessage())

    collector = Collector()
    logging.getLogger().addHandler(collector)
    try:
        yield messages
    finally:
        logging.getLogger().removeHandler(collector)
