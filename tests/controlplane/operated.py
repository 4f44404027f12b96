"""A cluster with KubeRay's stand-in and the operator in it, and RLJobs as tests speak of them."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import yaml

from tests.kube.cluster import ROOT, Cluster
from tests.kube.operator_process import OperatorProcess
from tests.kube.wait import eventually
from tests.kuberay.standin import KubeRayStandIn

SCRIPT = "standin.rlcore.io/script"

Manifest = dict[str, Any]

SINGULAR = {
    "rlj": "rljobs",
    "rayjob": "rayjobs",
    "raycluster": "rayclusters",
    "configmap": "configmaps",
    "pod": "pods",
    "pvc": "persistentvolumeclaims",
    "resourcequota": "resourcequotas",
}
GROUPS = {"rljobs": "apis/rlcore.io/v1alpha1", "rayjobs": "apis/ray.io/v1", "rayclusters": "apis/ray.io/v1"}


@dataclass
class Operated:
    """What tests of the operator work with."""

    cluster: Cluster
    operator: OperatorProcess
    kuberay: KubeRayStandIn

    def job(self, namespace: str, name: str = "cartpole-ppo") -> Job:
        """An RLJob by name, there or not."""
        return Job(self.cluster, namespace, name)


@dataclass
class Stage:
    """All but an operator: for tests that start, kill and starve operators of their own."""

    cluster: Cluster
    kuberay: KubeRayStandIn


@dataclass
class Job:
    """An RLJob, as a person with kubectl has it."""

    cluster: Cluster
    namespace: str
    name: str

    def apply(
        self, *, script: dict[str, Any] | None = None, annotations: dict[str, str] | None = None, **spec: Any
    ) -> Job:
        """`kubectl apply` of examples/cartpole-ppo.yaml with some fields of spec changed.

        Args:
            script: what the scripted driver does.
            annotations: of the RLJob.
            spec: fields that take the place of the example's; None removes one.
        """
        document = yaml.safe_load((ROOT / "examples" / "cartpole-ppo.yaml").read_text())
        marks = {**(annotations or {}), **({SCRIPT: json.dumps(script)} if script is not None else {})}
        document["metadata"] = {"name": self.name, "namespace": self.namespace, "annotations": marks}
        document["spec"] = {key: value for key, value in (document["spec"] | spec).items() if value is not None}
        self.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(document))
        return self

    def patch(self, spec: dict[str, Any]) -> None:
        """`kubectl patch --type=merge` of spec."""
        self.kubectl("patch", "rlj", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def annotate(self, **annotations: str) -> None:
        """`kubectl annotate`, keys below rlcore.io/."""
        pairs = [f"rlcore.io/{key}={value}" for key, value in annotations.items()]
        self.kubectl("annotate", "--overwrite", "rlj", self.name, *pairs)

    def kubectl(self, *args: str, check: bool = True) -> str:
        """kubectl in the job's namespace."""
        return str(self.cluster.kubectl("-n", self.namespace, *args, check=check).stdout)

    def get(self, kind: str = "rlj", name: str = "") -> Manifest:
        """One object, {} where there is none."""
        try:
            return self._read(kind, name or self.name)
        except urllib.error.HTTPError as error:
            with error:
                if error.code != HTTPStatus.NOT_FOUND:
                    raise
            return {}

    def list(self, kind: str) -> list[Manifest]:
        """Everything of a kind that belongs to the job."""
        items: list[Manifest] = self._read(kind, labelSelector=f"rlcore.io/job={self.name}")["items"]
        return items

    @property
    def status(self) -> Manifest:
        """status, {} where there is none."""
        found: Manifest = self.get().get("status") or {}
        return found

    def condition(self, kind: str) -> Manifest:
        """A condition, {} where there is none."""
        return next((c for c in self.status.get("conditions", []) if c["type"] == kind), {})

    def reaches(self, phase: str, deadline_s: float = 60.0) -> Manifest:
        """Waits for a phase; the status then."""
        return self.comes(lambda status: status.get("phase") == phase, f"phase {phase}", deadline_s)

    def comes(self, check: Callable[[Manifest], object], what: str, deadline_s: float = 60.0) -> Manifest:
        """Waits until something is true of the status; the status then."""

        def look() -> Manifest | None:
            status = self.status
            if status and check(status):
                return status
            return None

        try:
            return eventually(look, deadline_s=deadline_s, what=f"{self.name}: {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}\nstatus: {json.dumps(self.status, indent=1)}") from None

    def events(self) -> list[tuple[str, str]]:
        """(reason, message) of the RLJob's events."""
        items = self._read("events", fieldSelector=f"involvedObject.name={self.name}")["items"]
        return [(item["reason"], item["message"]) for item in items]

    def told(self, reason: str, deadline_s: float = 15.0) -> list[str]:
        """Messages of the events of a reason, once there is one: they come after the status that tells the same."""
        return eventually(
            lambda: [message for found, message in self.events() if found == reason], deadline_s, what=f"event {reason}"
        )

    def gone(self, kind: str, deadline_s: float = 60.0) -> None:
        """Waits until nothing of a kind is left."""
        eventually(lambda: not self.list(kind), deadline_s=deadline_s, what=f"{self.name}: no {kind} left")

    def _read(self, kind: str, name: str = "", **query: str) -> Manifest:
        """A GET: kubectl would take twenty times as long, and tests look often while they wait."""
        resource = SINGULAR.get(kind, kind)
        path = f"{GROUPS.get(resource, 'api/v1')}/namespaces/{self.namespace}/{resource}/{name}".rstrip("/")
        found: Manifest = json.loads(self.cluster.control_plane.request(f"/{path}?{urlencode(query)}"))
        return found
