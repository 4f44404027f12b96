"""Volumes of pods as directories: a kubelet's part, with the atomic swap that readers of ConfigMaps rely on."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.kuberay.api import CLAIMS, CONFIG_MAPS, SECRETS, Api, Resource
from tests.kuberay.containers import MissingError, Sources
from tests.kuberay.names import Object

FieldValue = Callable[[str], str]


class Volumes:
    """Makes directories of volumes below a working directory; those of claims outlive the pods."""

    def __init__(self, api: Api, workdir: Path) -> None:
        self._api, self._claims = api, workdir / "claims"

    async def prepare(self, pod: Mapping[str, Any], folder: Path, field_value: FieldValue) -> dict[str, Path]:
        """The directory of each volume, made and filled. Raises MissingError while something is not there."""
        found = {}
        for volume in pod["spec"].get("volumes") or []:
            found[volume["name"]] = await self._prepare(pod, volume, folder / volume["name"], field_value)
        return found

    async def refresh(self, pod: Mapping[str, Any], folder: Path, field_value: FieldValue) -> None:
        """Brings what comes from ConfigMaps, Secrets and the pod itself up to date."""
        for volume in pod["spec"].get("volumes") or []:
            if any(kind in volume for kind in ("configMap", "secret", "downwardAPI", "projected")):
                with contextlib.suppress(MissingError):  # a ConfigMap that was deleted stays as it was
                    await self._prepare(pod, volume, folder / volume["name"], field_value)

    async def sources(self, pod: Mapping[str, Any]) -> Sources:
        """The Secrets and ConfigMaps that the environments of the pod's containers refer to."""
        names: dict[Resource, set[str]] = {SECRETS: set(), CONFIG_MAPS: set()}
        for container in (*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]):
            for entry in container.get("env") or []:
                origin = entry.get("valueFrom") or {}
                for kind, resource in (("secretKeyRef", SECRETS), ("configMapKeyRef", CONFIG_MAPS)):
                    if kind in origin:
                        names[resource].add(origin[kind]["name"])
            for source in container.get("envFrom") or []:
                for kind, resource in (("secretRef", SECRETS), ("configMapRef", CONFIG_MAPS)):
                    if kind in source:
                        names[resource].add(source[kind]["name"])
        found: dict[Resource, dict[str, Object]] = {SECRETS: {}, CONFIG_MAPS: {}}
        for resource, wanted in names.items():
            for name in wanted:
                item = await self._api.find(resource, pod["metadata"]["namespace"], name)
                if item is not None:
                    found[resource][name] = item
        return Sources(found[SECRETS], found[CONFIG_MAPS])

    async def _prepare(
        self, pod: Mapping[str, Any], volume: Mapping[str, Any], folder: Path, field_value: FieldValue
    ) -> Path:
        namespace = pod["metadata"]["namespace"]
        if claim := volume.get("persistentVolumeClaim"):
            return await self._claim(namespace, claim["claimName"])
        if path := volume.get("hostPath"):
            return Path(path["path"])
        folder.mkdir(parents=True, exist_ok=True)
        files: dict[str, bytes] = {}
        for source in (volume.get("projected") or {}).get("sources") or [volume]:
            files |= await self._files(namespace, source, field_value)
        if any(kind in volume for kind in ("configMap", "secret", "downwardAPI", "projected")):
            write_atomically(folder, files)
        return folder

    async def _claim(self, namespace: str, name: str) -> Path:
        """The directory of a claim; a new claim of an old name gets an empty one."""
        claim = await self._api.find(CLAIMS, namespace, name)
        if claim is None:
            raise MissingError(f'persistentvolumeclaim "{name}" not found')
        if (claim.get("status") or {}).get("phase") != "Bound":
            raise MissingError(f'persistentvolumeclaim "{name}" is not bound')
        folder, uid = self._claims / namespace / name, claim["metadata"]["uid"]
        owner = folder.with_name(f".{name}.json")
        if owner.exists() and (known := json.loads(owner.read_text())["uid"]) != uid:
            folder.rename(folder.with_name(f".{name}.{known}"))
        folder.mkdir(parents=True, exist_ok=True)
        owner.write_text(json.dumps({"uid": uid}))
        return folder

    async def _files(self, namespace: str, source: Mapping[str, Any], field_value: FieldValue) -> dict[str, bytes]:
        if reference := source.get("configMap"):
            item = await self._source(CONFIG_MAPS, namespace, reference["name"], reference)
            return _chosen(reference, {name: text.encode() for name, text in (item.get("data") or {}).items()})
        if reference := source.get("secret"):
            name = reference.get("secretName") or reference["name"]
            item = await self._source(SECRETS, namespace, name, reference)
            return _chosen(reference, {key: base64.b64decode(text) for key, text in (item.get("data") or {}).items()})
        if reference := source.get("downwardAPI"):
            entries = [entry for entry in reference.get("items") or [] if "fieldRef" in entry]
            return {entry["path"]: field_value(entry["fieldRef"]["fieldPath"]).encode() for entry in entries}
        return {}

    async def _source(self, resource: Resource, namespace: str, name: str, reference: Mapping[str, Any]) -> Object:
        item = await self._api.find(resource, namespace, name)
        if item is None and not reference.get("optional"):
            raise MissingError(f'{resource.kind.lower()} "{name}" not found')
        return item or {}


def write_atomically(folder: Path, files: Mapping[str, bytes]) -> None:
    """Swaps all files of a directory at once: names lead through the link `..data` to the newest version."""
    link = folder / "..data"
    if link.exists() and {path.name: path.read_bytes() for path in link.iterdir()} == files:
        return
    version = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    version.chmod(0o755)
    for name, content in files.items():
        (version / name).write_bytes(content)
    old = os.readlink(link) if link.is_symlink() else None
    new_link = folder / "..data_tmp"
    new_link.unlink(missing_ok=True)
    new_link.symlink_to(version.name)
    new_link.rename(link)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data", name))
    for path in folder.iterdir():
        if not path.name.startswith("..") and path.name not in files:
            path.unlink()
    if old is not None:
        shutil.rmtree(folder / old, ignore_errors=True)


def _chosen(reference: Mapping[str, Any], data: Mapping[str, bytes]) -> dict[str, bytes]:
    if items := reference.get("items"):
        return {item["path"]: data[item["key"]] for item in items if item["key"] in data}
    return dict(data)
