"""spec.model: the neural network of a policy."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, model_validator

from rlcore.api.base import ApiModel, Conflict, from_manifest, raise_conflicts
from rlcore.api.fields import FreeForm, ModuleReference

Width = Annotated[int, Field(ge=1, le=16_384)]


class ConvLayer(ApiModel):
    """One convolution."""

    filters: int = Field(ge=1, le=4096, description="Output channels, a count.")
    kernel: int = Field(ge=1, le=64, description="Height and width of the kernel, in pixels.")
    stride: int = Field(default=1, ge=1, le=64, description="Step of the kernel, in pixels.")


class ModelSpec(ApiModel):
    """A network: convolutions where the observation is an image, then hidden layers, then an optional LSTM."""

    hiddens: list[Width] = Field(
        default_factory=lambda: [64, 64], max_length=16, description="Widths of the fully connected layers, in units."
    )
    activation: Literal["tanh", "relu", "elu", "silu"] = Field(
        default="tanh", description="Nonlinearity of hidden layers."
    )
    conv_preset: Literal["none", "nature", "small"] | None = Field(
        default=None,
        description="Convolutions before the hidden layers: nature is DQN's three for 84x84 frames, small one layer "
        "for 10x10 grids; null: chosen by the observation's shape.",
    )
    conv_layers: list[ConvLayer] | None = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Convolutions of your own in place of convPreset; null: the preset.",
    )
    lstm_size: int | None = Field(
        default=None, ge=1, le=8192, description="Units of an LSTM after the layers; null: no LSTM."
    )
    share_value_layers: bool | None = Field(
        default=None,
        description="Let policy and value function share their layers; null: shared with convolutions or an LSTM, "
        "separate otherwise.",
    )
    initial_log_std: float = Field(
        default=0.0,
        ge=-20,
        le=5,
        description="First value of the log standard deviation of continuous actions, in nats.",
    )
    custom: ModuleReference | None = Field(
        default=None,
        description='A torch module of your own, "module:Class", in place of all of the above; null: none.',
    )
    custom_kwargs: FreeForm = Field(
        default_factory=dict[str, Any], description="Keyword arguments of the custom model; only together with custom."
    )

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> ModelSpec:
        conflicts = []
        if self.conv_layers is not None and self.conv_preset is not None:
            conflicts.append(Conflict(("convPreset",), self.conv_preset, "cannot be used with convLayers: remove one"))
        given = "custom_kwargs" in self.model_fields_set if from_manifest(info) else self.custom_kwargs
        if given and self.custom is None:
            conflicts.append(Conflict(("customKwargs",), self.custom_kwargs, "is used only with custom; set that too"))
        raise_conflicts("ModelSpec", conflicts)
        return self
