"""spec.evaluators: the pods that act in the environments, in pools."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, field_validator, model_validator

from rlcore.api.base import ApiModel, Conflict, raise_conflicts
from rlcore.api.fields import DNS_LABEL, duration
from rlcore.api.pods import PodGroupSpec
from rlcore.api.quantity import parse_duration

RESERVED_POOL_NAMES = ("head", "headgroup", "learner")
"""Names of the groups that are no pools; KubeRay itself calls the head's group headgroup."""

PoolName = Annotated[str, StringConstraints(min_length=1, max_length=30, pattern=DNS_LABEL)]


class EvaluatorPool(PodGroupSpec):
    """A group of equal evaluator pods, autoscaled between two bounds."""

    name: PoolName = Field(description="Unique name of the pool; head, headgroup and learner are taken.")
    min_replicas: int = Field(default=1, ge=0, le=10_000, description="Fewest pods of this pool, a count.")
    max_replicas: int = Field(ge=0, le=10_000, description="Most pods of this pool, a count; at least minReplicas.")
    preemptible: bool = Field(
        default=False,
        description="Place the pods on spot or preemptible nodes, as the operator's settings define them.",
    )
    idle_timeout: Annotated[str, *duration(1, 86_400)] = Field(
        default="60s", description="The autoscaler removes a pod that was idle for this long."
    )

    @model_validator(mode="after")
    def _check(self) -> EvaluatorPool:
        if self.min_replicas > self.max_replicas:
            default = "" if "min_replicas" in self.model_fields_set else " (the default)"
            message = f"{self.min_replicas}{default} is more than maxReplicas {self.max_replicas}"
            raise_conflicts("EvaluatorPool", [Conflict(("minReplicas",), self.min_replicas, message)])
        return self

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name in RESERVED_POOL_NAMES:
            raise ValueError(f'"{name}" is taken by another group of pods: choose another name')
        return name

    @property
    def evaluators_per_pod(self) -> int:
        """Evaluators that one pod of this pool holds: one a whole core, and at least one."""
        return max(1, int(self.resources.cpu_cores))

    @property
    def idle_timeout_s(self) -> int:
        """idleTimeout in seconds."""
        return parse_duration(self.idle_timeout)


def _default_pools() -> list[EvaluatorPool]:
    return [EvaluatorPool(name="evaluators", min_replicas=1, max_replicas=4)]


class EvaluatorsSpec(ApiModel):
    """Evaluators: actors with one core each that hold a number of environments and sample from them."""

    envs_per_evaluator: int = Field(
        default=16, ge=1, le=65_536, description="Environments that one evaluator steps at once."
    )
    replicas: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="Pods over all pools, preemptible pools first and minimums kept, with no autoscaling; this is what "
        "`kubectl scale` sets; null: each pool is autoscaled within its bounds.",
    )
    pools: list[EvaluatorPool] = Field(
        default_factory=_default_pools,
        min_length=1,
        max_length=16,
        description="Groups of equal evaluator pods; default: one pool, evaluators, of 1 to 4 pods with one core.",
    )

    @field_validator("pools")
    @classmethod
    def _unique_names(cls, pools: list[EvaluatorPool]) -> list[EvaluatorPool]:
        names = [pool.name for pool in pools]
        raise_conflicts(
            "EvaluatorsSpec",
            [
                Conflict((index, "name"), name, f'"{name}" is also the name of pools[{names.index(name)}]')
                for index, name in enumerate(names)
                if names.index(name) < index
            ],
        )
        return pools
