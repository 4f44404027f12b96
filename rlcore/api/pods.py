"""What head, learner and evaluator pods have in common: resources and where they may be placed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rlcore.api.base import ApiModel
from rlcore.api.fields import FreeForm, ImageName, Label, ObjectName, Quantity
from rlcore.api.quantity import cores, size_bytes


class ResourceSpec(ApiModel):
    """What one pod asks for; requests and limits are the same, so that nothing it needs can be taken away."""

    cpu: Quantity = Field(default="1", description="CPU of one pod, in cores: 2 or 500m.")
    memory: Quantity = Field(default="2Gi", description="Memory of one pod, in bytes: 4Gi.")
    extra: dict[Label, Quantity] = Field(
        default_factory=dict[str, str],
        max_length=16,
        description="Further resources of one pod by name, such as ephemeral-storage: 10Gi, each a quantity.",
    )

    @property
    def cpu_cores(self) -> float:
        """CPU of one pod, in cores."""
        return cores(self.cpu)

    @property
    def memory_bytes(self) -> int:
        """Memory of one pod, in bytes."""
        return size_bytes(self.memory)


class Toleration(ApiModel):
    """A Kubernetes toleration."""

    key: Label | None = Field(default=None, description="Taint key; null: every taint.")
    operator: Literal["Exists", "Equal"] = Field(default="Equal", description="How the taint's value is compared.")
    value: Label | None = Field(default=None, description="Taint value for Equal; null: the empty value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Taint effect; null: every effect."
    )
    toleration_seconds: int | None = Field(
        default=None, ge=0, le=10**9, description="How long a NoExecute taint is tolerated, in seconds; null: for ever."
    )


class PodGroupSpec(ApiModel):
    """Fields of every group of pods."""

    resources: ResourceSpec = Field(default_factory=ResourceSpec, description="What one pod of this group asks for.")
    image: ImageName | None = Field(default=None, description="Container image of this group; null: spec.image.")
    node_selector: dict[Label, Label] = Field(
        default_factory=dict[str, str], max_length=64, description="Labels a node must have, by key."
    )
    tolerations: list[Toleration] = Field(
        default_factory=list[Toleration], max_length=32, description="Taints that the pods tolerate."
    )
    affinity: FreeForm = Field(
        default_factory=dict[str, Any], description="Kubernetes affinity, handed on as it stands."
    )
    topology_spread_constraints: Annotated[list[FreeForm], Field(max_length=8)] = Field(
        default_factory=list[dict[str, Any]],
        description="Kubernetes topology spread constraints, handed on as they stand.",
    )
    priority_class_name: ObjectName | None = Field(
        default=None, description="Kubernetes PriorityClass of the pods; null: the cluster's default."
    )
    pod_template: FreeForm = Field(
        default_factory=dict[str, Any],
        description="Kubernetes PodTemplateSpec merged over the generated one, for volumes, sidecars and the like.",
    )
