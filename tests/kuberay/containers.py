"""What a container becomes on this machine: its environment, its command, its mounts. Pure.

Three things differ from a container of a real node, and are put right in texts: paths of mounts are real directories,
the head service's name is the head's loopback address, and nodes of Ray share the machine's ports.
"""

from __future__ import annotations

import base64
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlcore.api.quantity import parse_quantity
from tests.kuberay.names import (
    CLUSTER_LABEL,
    Object,
    annotations_of,
    head_service_host,
    head_service_name,
    labels_of,
)
from tests.kuberay.ray_start import AGENT_PORT

_ROOT = Path(__file__).parents[2]
_OBJECT_STORE_BYTES = 150 * 1024**2
_VARIABLE = re.compile(r"\$(\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_KEPT_VARIABLES = ("HOME", "LANG", "TZ", "TMPDIR", "OMP_NUM_THREADS")
_PATIENCE = {
    # Two busy cores are shared by all nodes.
    "RAY_agent_register_timeout_ms": "180000",
    "RAY_worker_register_timeout_seconds": "180",
    # A node that lost its head ends soon, as it does where the head's name leads to a new head.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "30",
}


@dataclass(frozen=True)
class Head:
    """Where the head of a RayCluster is."""

    address: str
    gcs_port: int


@dataclass(frozen=True)
class Place:
    """Where on this machine a pod runs."""

    address: str
    temp_dir: str
    """Of Ray."""
    agent_port: int
    client_port: int
    head: Head
    declared_gcs_port: int = 6379
    volumes: Mapping[str, Path] = field(default_factory=dict)
    api_server: tuple[str, str] = ("127.0.0.1", "443")
    client_files: Mapping[str, str] = field(default_factory=dict)
    """Credentials for the autoscaler."""


@dataclass(frozen=True)
class Sources:
    """The Secrets and ConfigMaps that a container's environment refers to, by name; missing ones are not in them."""

    secrets: Mapping[str, Object]
    config_maps: Mapping[str, Object]


class MissingError(Exception):
    """Something that the container needs is not there (yet)."""


def mounts(container: Mapping[str, Any], place: Place) -> dict[str, Path]:
    """Real paths by mount path, the longest first."""
    found = {}
    for mount in container.get("volumeMounts") or []:
        if mount["name"] in place.volumes:
            found[mount["mountPath"].rstrip("/")] = place.volumes[mount["name"]] / mount.get("subPath", "")
    found["/tmp/ray"] = Path(place.temp_dir)
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def environment(container: Mapping[str, Any], pod: Mapping[str, Any], place: Place, sources: Sources) -> dict[str, str]:
    """All variables. Raises MissingError."""
    env: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        env.update(_all_of(source, sources))
    for entry in container.get("env") or []:
        value = _value(entry, container, pod, place, sources)
        if value is not None:
            env[entry["name"]] = expand(value, env)
    fix, under = rewriter(pod, place), mounts(container, place)
    given = {name: _real_path(fix(value), under) for name, value in env.items()}
    if "KUBERAY_GEN_RAY_START_CMD" in given:
        given["KUBERAY_GEN_RAY_START_CMD"] = _on_this_machine(given["KUBERAY_GEN_RAY_START_CMD"], pod, place)
    return {**_base_environment(pod, place), **given}


def command(container: Mapping[str, Any], pod: Mapping[str, Any], place: Place, env: Mapping[str, str]) -> list[str]:
    """The words to execute."""
    fix, under = rewriter(pod, place), mounts(container, place)
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    fixed = [_real_path(fix(expand(word, env)), under) for word in words]
    return [_on_this_machine(word, pod, place) for word in fixed]


def expand(text: str, env: Mapping[str, str]) -> str:
    """$(NAME) of known variables; $$ is a dollar."""

    def replacement(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else env.get(match[2], match[0])

    return _VARIABLE.sub(replacement, text)


def field_value(path: str, pod: Mapping[str, Any], place: Place) -> str:
    """What the downward API says of a field of the pod."""
    if match := _SUBSCRIPT.fullmatch(path):
        return {"labels": labels_of, "annotations": annotations_of}[match[1]](pod).get(match[2], "")
    metadata, spec = pod["metadata"], pod["spec"]
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "metadata.labels": _lines(labels_of(pod)),
        "metadata.annotations": _lines(annotations_of(pod)),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": place.address,
        "status.podIPs": place.address,
        "status.hostIP": "127.0.0.1",
    }
    return values[path]


def rewriter(pod: Mapping[str, Any], place: Place) -> Callable[[str], str]:
    """Puts the head's address where its service's name, or the usual port, stands."""
    namespace, cluster = pod["metadata"]["namespace"], labels_of(pod).get(CLUSTER_LABEL, "")
    host, port = head_service_host(cluster, namespace), place.declared_gcs_port
    gcs = f"{place.head.address}:{place.head.gcs_port}"
    changes = {
        f"{host}:{port}": gcs,
        f"127.0.0.1:{port}": gcs,
        host: place.head.address,
        head_service_name(cluster): place.head.address,
    }
    pattern = re.compile("|".join(re.escape(text) for text in changes))
    return lambda text: pattern.sub(lambda match: changes[match[0]], text)


def probe_port(port: int, place: Place) -> int:
    """The real port of one that a probe names."""
    return place.agent_port if port == AGENT_PORT else port


def _on_this_machine(text: str, pod: Mapping[str, Any], place: Place) -> str:
    """Adds to Ray's own commands what keeps nodes on one machine apart; they stand at the end of the text."""
    if "ray kuberay-autoscaler " in text:
        return f"{text} --gcs-address={place.head.address}:{place.head.gcs_port}"
    if "ray start " not in text:
        return text
    flags = {
        "node-ip-address": place.address,
        "temp-dir": place.temp_dir,
        "object-store-memory": _OBJECT_STORE_BYTES,
        "dashboard-agent-listen-port": place.agent_port,
        # 0 is any free port; all of these would be bound to every address of the machine.
        **dict.fromkeys(
            (
                "node-manager-port",
                "object-manager-port",
                "dashboard-agent-grpc-port",
                "metrics-export-port",
                "runtime-env-agent-port",
                "min-worker-port",
                "max-worker-port",
            ),
            0,
        ),
    }
    if "ray start --head " in text:
        flags |= {
            "port": place.head.gcs_port,
            "dashboard-host": place.address,
            "ray-client-server-port": place.client_port,
        }
    return f"{text.rstrip()} {' '.join(f'--{name}={value}' for name, value in flags.items())}"


def _base_environment(pod: Mapping[str, Any], place: Place) -> dict[str, str]:
    """What an image and a kubelet would set."""
    host, port = place.api_server
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    kept = {
        name: os.environ[name] for name in ("HOME", "LANG", "TZ", "TMPDIR", "OMP_NUM_THREADS") if name in os.environ
    }
    return {
        **kept,
        **_PATIENCE,
        "PATH": binaries,
        "PYTHONPATH": str(_ROOT),
        "PYTHONUNBUFFERED": "1",
        "HOSTNAME": pod["metadata"]["name"],
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
        "RAY_USAGE_STATS_ENABLED": "0",
        **place.client_files,
    }


def _value(
    entry: Mapping[str, Any], container: Mapping[str, Any], pod: Mapping[str, Any], place: Place, sources: Sources
) -> str | None:
    origin = entry.get("valueFrom")
    if origin is None:
        return entry.get("value", "")
    if reference := origin.get("fieldRef"):
        return field_value(reference["fieldPath"], pod, place)
    if reference := origin.get("secretKeyRef"):
        value = _entry_of("Secret", reference, sources.secrets)
        return None if value is None else base64.b64decode(value).decode()
    if reference := origin.get("configMapKeyRef"):
        return _entry_of("ConfigMap", reference, sources.config_maps)
    return _resource(origin["resourceFieldRef"], container)


def _entry_of(kind: str, reference: Mapping[str, Any], known: Mapping[str, Object]) -> str | None:
    found = known.get(reference["name"])
    value = (found.get("data") or {}).get(reference["key"]) if found else None
    if value is None and not reference.get("optional"):
        what = f"couldn't find key {reference['key']} in" if found else "there is no"
        raise MissingError(f"{what} {kind} {reference['name']}")
    return value


def _all_of(source: Mapping[str, Any], sources: Sources) -> dict[str, str]:
    prefix = source.get("prefix", "")
    kind, known = ("secretRef", sources.secrets) if "secretRef" in source else ("configMapRef", sources.config_maps)
    reference = source[kind]
    if reference["name"] not in known:
        if reference.get("optional"):
            return {}
        raise MissingError(f"{kind} {reference['name']} not found")
    data = known[reference["name"]].get("data") or {}
    if kind == "secretRef":
        data = {name: base64.b64decode(value).decode() for name, value in data.items()}
    return {f"{prefix}{name}": value for name, value in data.items()}


def _resource(reference: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    kind, _, name = reference["resource"].partition(".")
    resources = container.get("resources") or {}
    amount = (resources.get(kind) or resources.get("limits") or {}).get(name, "0")
    return str(math.ceil(parse_quantity(str(amount)) / parse_quantity(str(reference.get("divisor") or "1"))))


def _real_path(text: str, under: Mapping[str, Path]) -> str:
    for mount_path, path in under.items():
        if text == mount_path or text.startswith(f"{mount_path}/"):
            return f"{path}{text[len(mount_path) :]}"
    return text


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f'{name}="{value}"' for name, value in sorted(values.items()))
