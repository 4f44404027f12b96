"""What a decision asks the shell to do: plain data, each safe to do twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class ApplyConfigMap:
    """Server-side apply; skipped where the same content was applied before."""

    manifest: Manifest


@dataclass(frozen=True)
class ApplyClaim:
    """Create a PersistentVolumeClaim; one that is there is used as it is."""

    manifest: Manifest


@dataclass(frozen=True)
class CreateRayJob:
    """Create, with strict field validation; one of that name that is ours is left alone."""

    manifest: Manifest


@dataclass(frozen=True)
class TryRayJob:
    """Create on trial (dry run): the pods of a running job are given back only for a manifest that can have others."""

    manifest: Manifest


@dataclass(frozen=True)
class DeleteRayJob:
    """Delete this very one; it is no error that it is gone."""

    name: str
    uid: str


@dataclass(frozen=True)
class PatchRayCluster:
    """JSON patch with tests; where one fails, the next look decides anew."""

    name: str
    patch: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class TouchPod:
    """Change an annotation, so that the kubelet syncs mounted ConfigMaps at once."""

    name: str


@dataclass(frozen=True)
class ForceDeletePod:
    """Delete without grace: its node is gone and will not confirm."""

    name: str
    uid: str


@dataclass(frozen=True)
class DeleteJob:
    """Delete the RLJob itself: its time to live is over."""

    uid: str


Action = (
    ApplyConfigMap
    | ApplyClaim
    | CreateRayJob
    | TryRayJob
    | DeleteRayJob
    | PatchRayCluster
    | TouchPod
    | ForceDeletePod
    | DeleteJob
)


@dataclass(frozen=True)
class Event:
    """A Kubernetes event on the RLJob."""

    kind: str
    reason: str
    message: str
