"""Server-side apply of a manifest's objects, and what it changed in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rlcore.api.crd import PLURAL
from rlcore.api.rljob import GROUP, KIND, VERSION
from rlcore.cli.kube import FIELD_MANAGER, Kube, jobs_path
from rlcore.cli.kube_errors import Asked, KubeError
from rlcore.errors import UserError

APPLY_TYPE = "application/apply-patch+yaml"
MAX_CHANGES = 20
SERVERS_OWN = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"),
    *("deletionGracePeriodSeconds", "selfLink", "managedFields"),
)
"""Metadata that `kubectl get -o yaml` shows and nobody can set."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """Where an object lives in the API."""

    asked: Asked
    path: str


@dataclass(frozen=True)
class Applied:
    """What became of one object.

    Attributes:
        changes: of an object that was there, by field; empty for a new one.
        job: the object as the API server has it now.
    """

    outcome: Literal["created", "changed", "unchanged"]
    changes: tuple[str, ...]
    job: Object


def apply(kube: Kube, manifest: Object, place: Place, *, dry_run: bool, force: bool) -> Applied:
    """Make or change one object; fields that others own stay theirs unless `force`.

    Raises:
        KubeError: the API server refused; the text names the fields.
    """
    query: dict[str, str | int] = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    query |= {"force": "true"} if force else {}
    query |= {"dryRun": "All"} if dry_run else {}
    before = _get(kube, place)
    after = kube.json(
        place.asked, "PATCH", place.path, query, body=without_servers_own(manifest), content_type=APPLY_TYPE
    )
    if before is None:
        return Applied("created", (), after)
    changes = tuple(field_changes(_of_people(before), _of_people(after)))
    return Applied("changed" if changes else "unchanged", changes, after)


def place_of_job(name: str, namespace: str) -> Place:
    """Where an RLJob lives."""
    return Place(Asked("patch", PLURAL, GROUP, namespace, name), jobs_path(namespace, name))


def find_place(kube: Kube, manifest: Object, namespace: str) -> Place:
    """Where an object of any kind lives; asks the API server for the plural of its kind.

    Args:
        namespace: where it goes unless its metadata says otherwise.

    Raises:
        UserError: it is no object, or the cluster does not know its kind.
    """
    api_version, kind = manifest.get("apiVersion"), manifest.get("kind")
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = metadata.get("name")
    if not all(isinstance(part, str) and part for part in (api_version, kind, name)):
        raise UserError(f"a document beside the RLJob needs apiVersion, kind and metadata.name; it has kind {kind!r}")
    group, _, version = str(api_version).rpartition("/")
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    unknown = UserError(f"the cluster does not know {kind} ({api_version}), which stands beside the RLJob")
    try:
        known = kube.json(Asked("get", "resources", group), "GET", base).get("resources", [])
    except KubeError as error:
        if error.code == 404:
            raise unknown from error
        raise
    resource = next((entry for entry in known if entry["kind"] == kind and "/" not in entry["name"]), None)
    if resource is None:
        raise unknown
    namespace = (metadata.get("namespace") or namespace) if resource["namespaced"] else ""
    scope = f"/namespaces/{namespace}" if namespace else ""
    asked = Asked("patch", resource["name"], group, namespace, str(name))
    return Place(asked, f"{base}{scope}/{resource['name']}/{name}")


def without_servers_own(manifest: Object) -> dict[str, Any]:
    """The manifest without status and without metadata that only the API server sets."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in SERVERS_OWN}
    if isinstance(metadata.get("annotations"), dict):
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != LAST_APPLIED}
    return {**{key: value for key, value in manifest.items() if key != "status"}, "metadata": metadata}


def field_changes(before: object, after: object, path: str = "") -> Iterator[str]:
    """Each field that differs, with both values as JSON; lists of named objects are compared by name."""
    if before == after:
        return
    old, new = _children(before), _children(after)
    if old is None or new is None or isinstance(before, list) != isinstance(after, list):
        yield f"{path}: {_short(before)} -> {_short(after)}"
        return
    for key in dict.fromkeys([*old, *new]):
        where = f"{path}{key}" if key.startswith("[") or not path else f"{path}.{key}"
        if key not in new:
            yield f"{where}: removed, was {_short(old[key])}"
        elif key not in old:
            yield f"{where}: set to {_short(new[key])}"
        else:
            yield from field_changes(old[key], new[key], where)


def _children(value: object) -> dict[str, Any] | None:
    """The parts of a value by the way a path names them; None for a value without parts."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and value and all(isinstance(entry, dict) and "name" in entry for entry in value):
        return {f"[{entry['name']}]": entry for entry in value}
    return None


def _short(value: object) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 80 else shown[:77] + "..."


def _get(kube: Kube, place: Place) -> Object | None:
    asked = Asked("get", place.asked.resource, place.asked.group, place.asked.namespace, place.asked.name)
    try:
        return kube.json(asked, "GET", place.path)
    except KubeError as error:
        if error.code == 404 and error.reason == "NotFound":
            return None
        raise


def _of_people(found: Object) -> dict[str, Any]:
    """The part of an object that a manifest is about."""
    metadata = {key: found["metadata"].get(key) or {} for key in ("labels", "annotations")}
    rest = {key: value for key, value in found.items() if key not in ("metadata", "status", "apiVersion", "kind")}
    return {"metadata": metadata, **rest}


def is_job(manifest: Object) -> bool:
    """Whether a document is the RLJob itself."""
    return manifest.get("kind") == KIND and manifest.get("apiVersion") == f"{GROUP}/{VERSION}"
