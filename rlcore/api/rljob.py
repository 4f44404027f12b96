"""The RLJob object: apiVersion, kind, metadata, spec, status."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from rlcore.api.base import ApiModel
from rlcore.api.fields import DNS_LABEL, Label
from rlcore.api.spec import RLJobSpec

GROUP = "rlcore.io"
VERSION = "v1alpha1"
KIND = "RLJob"
MAX_NAME_LENGTH = 43
"""KubeRay allows 47 characters; four go to the attempt's suffix, -NNN."""


class ObjectMeta(ApiModel):
    """Kubernetes' own metadata; rlcore reads the first four fields and leaves the others to the API server."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH, pattern=DNS_LABEL)] = Field(
        description="Name of the job; locally also of its folder below runs/."
    )
    namespace: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=DNS_LABEL)] | None = Field(
        default=None, description="Kubernetes namespace; null: the current one; unused locally."
    )
    labels: dict[Label, Label] = Field(default_factory=dict[str, str], description="Kubernetes labels.")
    annotations: dict[Label, str] = Field(default_factory=dict[str, str], description="Kubernetes annotations.")
    uid: Any = Field(default=None, description="Set by the API server.")
    resource_version: Any = Field(default=None, description="Set by the API server.")
    generation: Any = Field(default=None, description="Set by the API server.")
    creation_timestamp: Any = Field(default=None, description="Set by the API server.")
    deletion_timestamp: Any = Field(default=None, description="Set by the API server.")
    deletion_grace_period_seconds: Any = Field(default=None, description="Set by the API server.")
    self_link: Any = Field(default=None, description="Set by the API server.")
    managed_fields: Any = Field(default=None, description="Set by the API server.")
    generate_name: Any = Field(default=None, description="Set by the API server's clients.")
    owner_references: Any = Field(default=None, description="Kubernetes' owners of this object.")
    finalizers: Any = Field(default=None, description="Kubernetes' finalizers of this object.")


class RLJob(ApiModel):
    """One training job."""

    api_version: Literal["rlcore.io/v1alpha1"] = Field(description="Group and version of this kind.")
    kind: Literal["RLJob"] = Field(description="The kind of object.")
    metadata: ObjectMeta = Field(description="Kubernetes metadata.")
    spec: RLJobSpec = Field(description="What the user asks for.")
    # Written by the operator and read by rlcore.api.status.RLJobStatus; a manifest's own status means nothing.
    status: dict[str, Any] | None = Field(default=None, description="What the operator has observed.")
