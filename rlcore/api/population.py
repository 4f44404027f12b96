"""spec.population: population based training (Jaderberg et al. 2017) over trials of the same job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from rlcore.api.base import ApiModel, Conflict, raise_conflicts
from rlcore.api.fields import PARAMETER_NAME

ParameterName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=PARAMETER_NAME)]


class Mutation(ApiModel):
    """One hyper-parameter that the population explores: either a range or a list of values."""

    parameter: ParameterName = Field(description="Name of a number in spec.config, such as learningRate.")
    minimum: float | None = Field(
        default=None,
        ge=-1e15,
        le=1e15,
        description="Lower end of the range, in the parameter's unit; null: values is used.",
    )
    maximum: float | None = Field(
        default=None,
        ge=-1e15,
        le=1e15,
        description="Upper end of the range, in the parameter's unit; null: values is used.",
    )
    scale: Literal["linear", "log"] = Field(default="linear", description="How first values are spread over the range.")
    values: Annotated[list[float], Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="Values to choose from, in the parameter's unit; null: the range is used."
    )

    @model_validator(mode="after")
    def _check(self) -> Mutation:
        if self.values is not None:
            if self.minimum is not None or self.maximum is not None:
                _refuse("values", self.values, "cannot be used with minimum and maximum: remove one or the other")
        elif self.minimum is None or self.maximum is None:
            missing = "minimum" if self.minimum is None else "maximum"
            _refuse(missing, None, "is missing: give minimum and maximum, or values")
        elif self.minimum >= self.maximum:
            _refuse("minimum", self.minimum, f"{self.minimum:g} is not less than maximum {self.maximum:g}")
        elif self.scale == "log" and self.minimum <= 0:
            _refuse("minimum", self.minimum, f"{self.minimum:g} has no logarithm: scale log needs a minimum above 0")
        return self


def _refuse(name: str, value: object, message: str) -> None:
    raise_conflicts("Mutation", [Conflict((name,), value, message)])


class PopulationSpec(ApiModel):
    """Trials that train side by side; from time to time the worst copy the best and change its hyper-parameters."""

    size: int = Field(default=8, ge=2, le=256, description="Trials in the population, a count.")
    concurrent_trials: int | None = Field(
        default=None, ge=1, le=256, description="Trials that run at once, a count; null: all of them."
    )
    interval: int = Field(
        default=10,
        ge=1,
        le=10**9,
        description="Iterations of a trial between two comparisons with the others, a count.",
    )
    quantile: float = Field(
        default=0.25, gt=0, le=0.5, description="Share of the trials that counts as best, and as worst."
    )
    resample_probability: float = Field(
        default=0.25, ge=0, le=1, description="Probability that a hyper-parameter is drawn anew and not perturbed."
    )
    perturbation_factor: float = Field(
        default=1.2, gt=1, le=10, description="A perturbed hyper-parameter is multiplied or divided by this; no unit."
    )
    mutations: Annotated[list[Mutation], Field(min_length=1, max_length=32)] = Field(
        description="The hyper-parameters to explore, each once."
    )

    @model_validator(mode="after")
    def _check(self) -> PopulationSpec:
        conflicts = []
        if self.concurrent_trials is not None and self.concurrent_trials > self.size:
            text = f"{self.concurrent_trials} is more than size {self.size}"
            conflicts.append(Conflict(("concurrentTrials",), self.concurrent_trials, text))
        names = [mutation.parameter for mutation in self.mutations]
        conflicts += [
            Conflict(("mutations", index, "parameter"), name, f'"{name}" is already in mutations[{names.index(name)}]')
            for index, name in enumerate(names)
            if names.index(name) < index
        ]
        raise_conflicts("PopulationSpec", conflicts)
        return self
