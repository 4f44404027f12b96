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


class SelfPlaySpec(ApiModel):
    """A trained policy plays against frozen past snapshots of itself."""

    policy: PolicyName = Field(description="The trained policy, of which snapshots are taken.")
    opponents: Annotated[list[PolicyName], Field(min_length=1, max_length=64)] = Field(
        description="Policies that are not trained: in each iteration each of them is one of the snapshots."
    )
    shuffle_seats: bool = Field(
        default=True,
        description="In each episode the agents of the policy and of its opponents change places at random, so that it "
        "learns all sides of the game.",
    )
    pool_size: int = Field(
        default=10, ge=1, le=1000, description="Most snapshots that are kept, a count; the oldest one makes room."
    )
    snapshot_every: int | None = Field(
        default=10,
        ge=1,
        le=10**9,
        description="Iterations between two snapshots, a count; null: by the win rate alone.",
    )
    win_rate: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="A snapshot is also taken once the policy won this share of at least 50 episodes since the last "
        "one; an episode is won where its reward is above 0; null: never for that.",
    )
    latest_probability: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="Probability that an opponent is the newest snapshot; else it is any of them, all equally likely.",
    )


class MultiAgentSpec(ApiModel):
    """Policies by name and the function that gives each agent one of them."""

    policies: Annotated[dict[PolicyName, PolicySpec], Field(min_length=1, max_length=64)] = Field(
        description="The policies by name."
    )
    mapping: ModuleReference | None = Field(
        default=None,
        description="\"module:function\"; called with an agent's id, it returns the name of the agent's policy; null: "
        "a single policy is every agent's, else the one called like the agent, with or without its last _number.",
    )
    train: Annotated[list[PolicyName], Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="Names of the policies to train, the others only act; null: all of them."
    )

    self_play: SelfPlaySpec | None = Field(
        default=None, description="Training against past snapshots of a trained policy; null: none."
    )

    @property
    def trained(self) -> list[str]:
        """Names of the policies that learn: those of `train`, or all that are no opponents of self-play."""
        opponents = self.self_play.opponents if self.self_play else []
        return self.train or [name for name in self.policies if name not in opponents]

    @model_validator(mode="after")
    def _check(self) -> MultiAgentSpec:
        known = ", ".join(self.policies)
        conflicts = [
            Conflict(("train", index), name, f'"{name}" is not one of the policies: {known}')
            for index, name in enumerate(self.train or ())
            if name not in self.policies
        ]
        raise_conflicts("MultiAgentSpec", conflicts + self._self_play_conflicts())
        return self

    def _self_play_conflicts(self) -> list[Conflict]:
        play = self.self_play
        if play is None:
            return []
        path, known = ("selfPlay", "opponents"), ", ".join(self.policies)
        conflicts = []
        if self.trained != [play.policy]:
            message = (
                f'"{play.policy}" must be the one policy that is trained, and these are: {", ".join(self.trained)}'
            )
            conflicts.append(Conflict(("selfPlay", "policy"), play.policy, message))
        own = self.policies.get(play.policy)
        for index, name in enumerate(play.opponents):
            if name not in self.policies:
                conflicts.append(Conflict((*path, index), name, f'"{name}" is not one of the policies: {known}'))
            elif name in self.trained:
                conflicts.append(
                    Conflict((*path, index), name, f'"{name}" is trained; an opponent is a frozen snapshot')
                )
            elif own is not None and self.policies[name].model != own.model:
                message = f'"{name}" has another model than "{play.policy}", whose snapshots it plays'
                conflicts.append(Conflict((*path, index), name, message))
        if play.snapshot_every is None and play.win_rate is None:
            conflicts.append(Conflict(("selfPlay", "winRate"), None, "one of snapshotEvery and winRate must be set"))
        return conflicts
