"""spec.environment: what the agent acts in, and how it is wrapped and vectorized."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationInfo, model_validator

from rlcore.api.base import ApiModel, Conflict, from_manifest, raise_conflicts
from rlcore.api.fields import ENVIRONMENT_ID, FreeForm

EnvironmentId = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=ENVIRONMENT_ID)]


class AtariSpec(ApiModel):
    """Preprocessing of Atari frames; the defaults are those of Machado et al. (2018) with DQN's frame stack."""

    frame_size: int = Field(default=84, ge=16, le=256, description="Height and width of an observation, in pixels.")
    frame_stack: int = Field(default=4, ge=1, le=16, description="Last frames that make one observation, in frames.")
    frame_skip: int = Field(
        default=4, ge=1, le=16, description="Frames that one action lasts; one timestep, in frames."
    )
    grayscale: bool = Field(default=True, description="One gray channel a frame in place of three colors.")
    noop_max: int = Field(
        default=30, ge=0, le=1000, description="Most no-op actions at the start of an episode, in frames."
    )
    episodic_life: bool = Field(default=False, description="End the learner's episode when a life is lost.")
    fire_reset: bool = Field(default=True, description="Press FIRE after a reset in games that wait for it.")
    sticky_action_probability: float = Field(
        default=0.25, ge=0, le=1, description="Probability that a frame repeats the action of the frame before."
    )
    reward_clipping: bool = Field(
        default=True, description="Train on the sign of the reward; reported rewards stay whole."
    )
    full_action_space: bool = Field(default=False, description="Offer all 18 actions in place of those the game uses.")
    max_frames_per_episode: int = Field(
        default=108_000,
        ge=1,
        le=100_000_000,
        description="An episode is truncated after this many frames (before frame skip).",
    )


class EnvironmentSpec(ApiModel):
    """The environment to train on."""

    id: EnvironmentId = Field(
        description="A Gymnasium id such as CartPole-v1 or ALE/Pong-v5, a PettingZoo id (its module with slashes) such "
        'as mpe2/simple_spread_v3, or "module:factory", a callable that makes one.'
    )
    kwargs: FreeForm = Field(
        default_factory=dict[str, Any], description="Keyword arguments of the environment, handed on as they stand."
    )
    wrappers: Literal["none", "atari"] = Field(
        default="none", description="Preprocessing to put around the environment."
    )
    atari: AtariSpec = Field(
        default_factory=AtariSpec, description="Atari preprocessing; only together with wrappers: atari."
    )
    vectorization: Literal["auto", "native", "sync", "subprocess", "envpool"] = Field(
        default="auto",
        description="How environments step together: native is the environment's own vector entry point, sync a loop, "
        "subprocess one process each, envpool that library's engine, auto the fastest there is.",
    )
    max_episode_steps: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="Episodes are truncated after this many timesteps; null: the environment's own limit.",
    )
    max_failures: int = Field(
        default=10,
        ge=0,
        le=1_000_000,
        description="Exceptions of the environment that one evaluator survives, a count; one more fails the run.",
    )

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> EnvironmentSpec:
        # A dump of a valid job holds every field; a manifest holds what its author wrote.
        given = "atari" in self.model_fields_set if from_manifest(info) else self.atari != AtariSpec()
        if given and self.wrappers != "atari":
            text = "is used only with wrappers: atari; set that, or remove this block"
            raise_conflicts("EnvironmentSpec", [Conflict(("atari",), self.atari, text)])
        return self
