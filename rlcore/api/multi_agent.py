"""spec.multiAgent: several policies, and which agent acts by which."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from rlcore.api.base import ApiModel, Conflict, raise_conflicts
from rlcore.api.fields import ModuleReference, PolicyName
from rlcore.api.model import ModelSpec


class PolicySpec(ApiModel):
    """One policy of a multi-agent job."""

    model: ModelSpec | None = Field(default=None, description="The policy's own network; null: spec.model.")


class MultiAgentSpec(ApiModel):
    """Policies by name and the function that gives each agent one of them."""

    policies: Annotated[dict[PolicyName, PolicySpec], Field(min_length=1, max_length=64)] = Field(
        description="The policies by name."
    )
    mapping: ModuleReference = Field(
        description="\"module:function\"; called with an agent's id, it returns the name of the agent's policy."
    )
    train: Annotated[list[PolicyName], Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="Names of the policies to train, the others only act; null: all of them."
    )

    @model_validator(mode="after")
    def _check(self) -> MultiAgentSpec:
        known = ", ".join(self.policies)
        raise_conflicts(
            "MultiAgentSpec",
            [
                Conflict(("train", index), name, f'"{name}" is not one of the policies: {known}')
                for index, name in enumerate(self.train or ())
                if name not in self.policies
            ],
        )
        return self
