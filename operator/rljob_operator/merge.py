"""Strategic merge of a podTemplate over a generated one, as `kubectl patch` does it.

Maps are merged, lists whose items have a key of their own (containers by name, env by name, mounts by path) are merged
item by item, other lists are appended to. null deletes a field; `$patch: delete` an item; `$patch: replace` in a map
puts it in the place of the whole.
"""

from __future__ import annotations

import copy
from typing import Any

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
    "schedulingGates": "name",
}
"""Patch merge keys of the Kubernetes API's pod types."""

APPENDED = frozenset({"tolerations", "finalizers", "envFrom"})
"""Lists without a merge key whose items stay beside the patch's; any other list is replaced whole."""

DIRECTIVE = "$patch"


def strategic_merge(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """`base` with `patch` over it; neither is changed.

    Raises:
        ValueError: a map stands where the other side has a list, or an item lacks its key; the text names the path.
    """
    return _merge_map(base, patch, path="")


def _merge_map(base: dict[str, Any], patch: dict[str, Any], path: str) -> dict[str, Any]:
    if patch.get(DIRECTIVE) == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != DIRECTIVE}
    result = copy.deepcopy(base)
    for key, value in patch.items():
        where = f"{path}.{key}" if path else key
        if key == DIRECTIVE:
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merge_map(_of_type(result.get(key), dict, where), value, where)
        elif isinstance(value, list):
            result[key] = _merge_list(_of_type(result.get(key), list, where), value, key, where)
        else:
            result[key] = value
    return result


def _merge_list(base: list[Any], patch: list[Any], field: str, path: str) -> list[Any]:
    if field in APPENDED:
        return copy.deepcopy(base) + copy.deepcopy([item for item in patch if item not in base])
    merge_key = MERGE_KEYS.get(field)
    if merge_key is None:
        return copy.deepcopy(patch)
    result = {_key(item, merge_key, path, index): copy.deepcopy(item) for index, item in enumerate(base)}
    for index, item in enumerate(patch):
        where = f"{path}[{index}]"
        name = _key(item, merge_key, path, index)
        if item.get(DIRECTIVE) == "delete":
            result.pop(name, None)
        else:
            result[name] = _merge_map(result.get(name, {}), item, where)
    return list(result.values())


def _key(item: Any, merge_key: str, path: str, index: int) -> str | int:
    name = item.get(merge_key) if isinstance(item, dict) else None
    if not isinstance(name, str | int):
        raise ValueError(f"{path}[{index}] needs {merge_key}, which tells the items of this list apart")
    return name


def _of_type(value: Any, kind: type, path: str) -> Any:
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise ValueError(f"{path} is a {type(value).__name__} here, not a {kind.__name__}")
    return value
