"""spec.checkpoint: how often the run is saved, and where to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from rlcore.api.base import ApiModel, Conflict, raise_conflicts
from rlcore.api.fields import STORAGE_URI, ObjectName, Quantity, duration
from rlcore.api.quantity import parse_duration


class NewClaim(ApiModel):
    """A PersistentVolumeClaim that the operator makes for this job."""

    size: Quantity = Field(default="10Gi", description="Storage asked for, in bytes: 10Gi.")
    storage_class_name: ObjectName | None = Field(
        default=None, description="Kubernetes StorageClass; null: the cluster's default."
    )
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] = Field(
        default="ReadWriteOnce", description="ReadWriteMany recovers faster when the head's node dies."
    )
    on_delete: Literal["Retain", "Delete"] = Field(
        default="Retain", description="What becomes of the claim and its checkpoints when the RLJob is deleted."
    )


class StorageSpec(ApiModel):
    """Where checkpoints are kept; at most one of these is set.

    With none set: a claim of the operator's defaults in a cluster, the run's own folder on a local machine. A local run
    uses path or uri as they are and puts the checkpoints of a claim into the run's own folder.
    """

    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = Field(
        default=None, description="A directory on the driver's file system, such as a mounted share; null: not used."
    )
    uri: Annotated[str, StringConstraints(min_length=4, max_length=1024, pattern=STORAGE_URI)] | None = Field(
        default=None, description="An fsspec URL such as s3://bucket/prefix or gs://bucket/prefix; null: not used."
    )
    persistent_volume_claim: ObjectName | None = Field(
        default=None, description="Name of an existing PersistentVolumeClaim of the job's namespace; null: not used."
    )
    new_claim: NewClaim | None = Field(default=None, description="A claim for the operator to make; null: not used.")

    @model_validator(mode="after")
    def _check(self) -> StorageSpec:
        places = ("path", "uri", "persistent_volume_claim", "new_claim")
        used = [name for name in places if getattr(self, name) is not None]
        if len(used) > 1:
            names = [type(self).model_fields[name].alias or name for name in used]
            message = f"cannot be used with {names[0]}: checkpoints go to one place"
            raise_conflicts("StorageSpec", [Conflict((names[1],), getattr(self, used[1]), message)])
        return self


class CheckpointSpec(ApiModel):
    """When the run is saved, how many saves are kept, and where."""

    every: Annotated[str, *duration(1, 7 * 86_400)] = Field(
        default="5m", description="Time between checkpoints; one is also written at every orderly end."
    )
    keep: int = Field(default=3, ge=1, le=1000, description="Newest complete checkpoints to keep, a count.")
    storage: StorageSpec = Field(
        default_factory=StorageSpec, description="Where checkpoints go; default: a place of the job's own."
    )

    @property
    def every_s(self) -> int:
        """every in seconds."""
        return parse_duration(self.every)
