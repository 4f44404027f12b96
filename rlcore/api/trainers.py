"""spec.learner and spec.head: the pods that learn, and the one that runs the driver."""

from __future__ import annotations

from pydantic import Field

from rlcore.api.fields import Label, Quantity
from rlcore.api.pods import PodGroupSpec, ResourceSpec


class LearnerSpec(PodGroupSpec):
    """The pods that hold the policy being trained and its optimizer state."""

    replicas: int = Field(default=1, ge=1, le=256, description="Learner pods, a count.")
    gpus: int = Field(
        default=0,
        ge=0,
        le=64,
        description="GPUs of one learner pod, a count; 0: it learns on its CPUs. Locally: GPUs to use.",
    )
    gpu_resource: Label = Field(
        default="nvidia.com/gpu", min_length=1, description="Kubernetes' resource name of a GPU; no unit."
    )
    preemptible: bool = Field(
        default=False,
        description="Place learners on spot or preemptible nodes; a lost one costs what came after a checkpoint.",
    )


class HeadResources(ResourceSpec):
    """What the head pod asks for."""

    cpu: Quantity = Field(default="2", description="CPU of the head pod, in cores: 2 or 500m.")
    memory: Quantity = Field(default="4Gi", description="Memory of the head pod, in bytes: 4Gi.")


class HeadSpec(PodGroupSpec):
    """The head pod: Ray's head, the driver and checkpoints; always on an on-demand node, and it samples nothing."""

    resources: HeadResources = Field(default_factory=HeadResources, description="What the head pod asks for.")
