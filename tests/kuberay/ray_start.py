"""The `ray start` command that KubeRay makes of a group's parameters, resources and limits. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rlcore.api.quantity import parse_quantity

AGENT_PORT, METRICS_PORT, GCS_PORT = 52365, 8080, 6379
_ULIMIT = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}"
_PARAMETER_OF_RESOURCE = {"CPU": "num-cpus", "GPU": "num-gpus", "memory": "memory"}


def head_parameters(spec: Mapping[str, Any]) -> dict[str, str]:
    """Of the head of a RayCluster's spec."""
    parameters = {"dashboard-host": "0.0.0.0", **_group_parameters(spec["headGroupSpec"])}
    if spec.get("enableInTreeAutoscaling"):
        parameters["no-monitor"] = "true"
    return parameters


def worker_parameters(group: Mapping[str, Any], head_address: str) -> dict[str, str]:
    """Of a worker that joins the head at `host:port`."""
    return {"address": head_address, **_group_parameters(group)}


def gcs_port(spec: Mapping[str, Any]) -> int:
    return int((spec["headGroupSpec"].get("rayStartParams") or {}).get("port", GCS_PORT))


def start_command(node_type: str, parameters: Mapping[str, str]) -> str:
    """The command as it also stands in KUBERAY_GEN_RAY_START_CMD."""
    flags = "".join(_flag(name, parameters[name]) for name in sorted(parameters))
    return f"ray start {'--head ' if node_type == 'head' else ''}{flags}"


def container_args(command: str, own: str) -> str:
    """What the shell of the Ray container runs: the template's own command, if there is one, then Ray."""
    return f"{f'{own} && ' if own else ''}{_ULIMIT}; {command}"


def _group_parameters(group: Mapping[str, Any]) -> dict[str, str]:
    parameters = dict(group.get("rayStartParams") or {})
    custom: dict[str, float] = {}
    for name, amount in (group.get("resources") or {}).items():
        if name in _PARAMETER_OF_RESOURCE:
            parameters[_PARAMETER_OF_RESOURCE[name]] = _plain(amount)
        else:
            number = float(parse_quantity(amount))
            custom[name] = int(number) if number.is_integer() else number
    if custom:
        parameters["resources"] = f"'{json.dumps(custom, sort_keys=True, separators=(',', ':'))}'"
    if labels := group.get("labels"):
        parameters["labels"] = ",".join(f"{name}={labels[name]}" for name in sorted(labels))
    _add_limits(parameters, group["template"]["spec"]["containers"][0])
    parameters.setdefault("metrics-export-port", str(METRICS_PORT))
    parameters.setdefault("dashboard-agent-listen-port", str(AGENT_PORT))
    parameters["block"] = "true"
    return parameters


def _add_limits(parameters: dict[str, str], container: Mapping[str, Any]) -> None:
    """What the container may use, where nothing else says how much Ray may give away."""
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    if "cpu" in amounts:
        parameters.setdefault("num-cpus", _plain(amounts["cpu"]))
    if "memory" in amounts:
        parameters.setdefault("memory", _plain(amounts["memory"]))
    for name, amount in amounts.items():
        if name.endswith("gpu") and parse_quantity(str(amount)):
            parameters.setdefault("num-gpus", _plain(amount))


def _plain(amount: object) -> str:
    """A quantity as a whole number, rounded up."""
    return str(math.ceil(parse_quantity(str(amount))))


def _flag(name: str, value: str) -> str:
    if name in ("log-color", "include-dashboard"):
        return f" --{name}={value} "
    if value.lower() in ("true", "false"):
        return f" --{name} " if value.lower() == "true" else ""
    return f" --{name}={value} "
