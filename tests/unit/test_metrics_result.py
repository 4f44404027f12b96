"""One iteration's result: JSON without NaN, and one true sentence about where the time goes."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

import numpy as np
import pytest

from rlcore.metrics.bottleneck import bottleneck_sentence, shares_text, time_shares
from rlcore.metrics.result import IterationResult


def make_result(**changes: Any) -> IterationResult:
    values: dict[str, Any] = {
        "iteration": 3,
        "timesteps": 12_000,
        "timesteps_this_iteration": 4_000,
        "episodes": 80,
        "timesteps_per_s": 4_100.0,
        "sample_time_s": 0.4,
        "learn_time_s": 0.5,
        "wait_time_s": 0.1,
        "elapsed_s": 3.0,
    }
    return IterationResult(**(values | changes))


def test_every_field_is_in_the_json_and_survives_strict_json() -> None:
    result = make_result(
        episode_reward_mean=float("nan"),
        learner={"kl": np.float32(0.5), "entropy": math.inf},
        optimizer={"late_timesteps": np.int64(7)},
        evaluation={"episode_reward_mean": np.float64(2.5), "episodes": 10, "timesteps": 8_000},
        checkpoint_timesteps=8_000,
    )
    values = json.loads(json.dumps(result.to_json_dict(), allow_nan=False))
    assert set(values) == {field.name for field in dataclasses.fields(IterationResult)}
    assert values["episode_reward_mean"] is None
    assert values["learner"] == {"kl": 0.5, "entropy": None}
    assert values["optimizer"] == {"late_timesteps": 7}
    assert values["evaluation"] == {"episode_reward_mean": 2.5, "episodes": 10, "timesteps": 8_000}


def test_names_of_times_and_rates_hold_their_unit() -> None:
    names = [field.name for field in dataclasses.fields(IterationResult)]
    assert all(
        name.endswith("_s") for name in names if "time_" in name or "elapsed" in name or "per" in name.split("_")
    )


def test_a_result_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_result().timesteps = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (
            {"sample": 2.0, "learn": 7.1, "wait": 0.9},
            "learning-bound: 71 % of the time in SGD; more evaluators will not help",
        ),
        ({"sample": 6.0, "learn": 3.0, "wait": 1.0}, "sampling-bound: 60 % of the time in sampling; more evaluators"),
        ({"sample": 2.0, "learn": 2.0, "wait": 6.0}, "waiting-bound: 60 % of the time waiting for evaluators"),
        ({"sample": 1.0, "learn": 1.0, "checkpoint": 8.0}, "checkpoint-bound: 80 % .* raise spec.checkpoint.every"),
        ({"sample": 1.0, "learn": 1.0, "evaluate": 8.0}, "evaluation-bound: 80 % .* raise spec.evaluation.every"),
        ({"sample": 4.0, "learn": 4.5, "wait": 1.5}, "balanced: 40 % sampling, 45 % learning, 15 % waiting"),
        ({"sample": 0.0, "learn": 0.0}, "no time measured yet"),
        ({}, "no time measured yet"),
    ],
)
def test_the_bottleneck_sentence_follows_the_time(times: dict[str, float], sentence: str) -> None:
    assert re.match(sentence, bottleneck_sentence(time_shares([times])))


def test_a_result_says_its_own_bottleneck() -> None:
    assert (
        make_result(learn_time_s=1.5, sample_time_s=0.4, wait_time_s=0.1)
        .bottleneck()
        .startswith("learning-bound: 75 %")
    )


def test_shares_of_several_iterations_weigh_long_ones_more() -> None:
    shares = time_shares([{"sample": 1.0, "learn": 0.0}, {"sample": 0.0, "learn": 3.0}])
    assert shares == {"sample": 0.25, "learn": 0.75}
    assert shares_text({"sample": 0.998, "wait": 0.002}) == "100 % sampling"
