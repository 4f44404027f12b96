"""Population based training's decisions (Jaderberg et al. 2017, arXiv 1711.09846): pure functions of spec and scores.

Exploit: a trial in the worst quantile copies one in the best. Explore: the copy's hyper-parameters are perturbed, or
drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcore.api import RLJobSpec
from rlcore.api.algorithms import AlgorithmConfig
from rlcore.api.population import Mutation, PopulationSpec
from rlcore.errors import UserError

Values = dict[str, float]
"""Manifest names of hyper-parameters -> their values."""


def first_values(population: PopulationSpec, config: AlgorithmConfig, rng: np.random.Generator) -> list[Values]:
    """Each trial's first hyper-parameters, drawn from their ranges or lists."""
    return [
        {mutation.parameter: _draw(mutation, config, rng) for mutation in population.mutations}
        for _ in range(population.size)
    ]


def exploits(population: PopulationSpec, scores: Sequence[float | None], rng: np.random.Generator) -> dict[int, int]:
    """Which trial copies which: worst quantile -> a random one of the best.

    A trial without a score is worst of all. Trials that earn as much as the one they would copy stay as they are.

    Args:
        population: the spec.
        scores: mean episode reward of each trial, None before the first episode ended.
        rng: draws the source.
    """
    ranked = sorted(range(len(scores)), key=lambda trial: (_number(scores[trial]), trial))
    count = max(1, int(population.quantile * len(scores)))
    best = ranked[-count:]
    chosen = {loser: best[int(rng.integers(count))] for loser in ranked[:count]}
    return {loser: source for loser, source in chosen.items() if _number(scores[loser]) < _number(scores[source])}


def explored(
    population: PopulationSpec, config: AlgorithmConfig, values: Mapping[str, float], rng: np.random.Generator
) -> Values:
    """Hyper-parameters near `values`: each drawn anew with `resampleProbability`, else moved up or down."""
    found = {}
    for mutation in population.mutations:
        anew, up = rng.random() < population.resample_probability, bool(rng.integers(2))
        if anew:
            found[mutation.parameter] = _draw(mutation, config, rng)
        else:
            moved = _moved(mutation, values[mutation.parameter], population.perturbation_factor, up)
            found[mutation.parameter] = _as_field(mutation.parameter, moved, config)
    return found


def config_with(config: AlgorithmConfig, values: Mapping[str, float]) -> AlgorithmConfig:
    """The hyper-parameters with some of them replaced.

    Raises:
        ValueError: pydantic's, where they do not go together.
    """
    kept = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return type(config).model_validate({**kept, **values})


def require_possible(spec: RLJobSpec) -> None:
    """Looks at both ends of every mutation before anything is started.

    Raises:
        UserError: a value that the algorithm's config refuses.
    """
    for index, mutation in enumerate(spec.population.mutations if spec.population else ()):
        named = [("minimum", mutation.minimum), ("maximum", mutation.maximum)]
        named += [("values", value) for value in mutation.values or ()]
        for name, value in named:
            if value is None:
                continue
            try:
                config_with(spec.config, {mutation.parameter: _as_field(mutation.parameter, value, spec.config)})
            except ValueError as error:
                reason = str(error).splitlines()[-1 if len(str(error).splitlines()) < 3 else 2].strip()
                raise UserError(
                    f"spec.population.mutations[{index}].{name}: {mutation.parameter} cannot be {value:g}: {reason}",
                    permanent=True,
                ) from error


def _draw(mutation: Mutation, config: AlgorithmConfig, rng: np.random.Generator) -> float:
    if mutation.values is not None:
        value = mutation.values[int(rng.integers(len(mutation.values)))]
    else:
        low, high = _ends(mutation)
        if mutation.scale == "log":
            value = math.exp(rng.uniform(math.log(low), math.log(high)))
        else:
            value = rng.uniform(low, high)
    return _as_field(mutation.parameter, float(value), config)


def _moved(mutation: Mutation, value: float, factor: float, up: bool) -> float:
    if mutation.values is not None:
        ordered = sorted(mutation.values)
        nearest = min(range(len(ordered)), key=lambda i: abs(ordered[i] - value))
        return ordered[min(len(ordered) - 1, nearest + 1) if up else max(0, nearest - 1)]
    low, high = _ends(mutation)
    return min(high, max(low, value * factor if up else value / factor))


def _ends(mutation: Mutation) -> tuple[float, float]:
    assert mutation.minimum is not None
    assert mutation.maximum is not None
    return mutation.minimum, mutation.maximum


def _as_field(parameter: str, value: float, config: AlgorithmConfig) -> Any:
    """A whole number where the hyper-parameter is one."""
    for info in type(config).model_fields.values():
        if info.alias == parameter and info.annotation is int:
            return round(value)
    return value


def _number(score: float | None) -> float:
    return -math.inf if score is None or math.isnan(score) else score
