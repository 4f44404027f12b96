"""The RLJob models: defaults, names, immutability, algorithms."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, Field, ValidationError

from rlcore.api import (
    ALGORITHMS,
    AlgorithmConfig,
    AlgorithmInfo,
    EnvironmentSpec,
    EvaluatorPool,
    EvaluatorsSpec,
    ModelSpec,
    PPOConfig,
    RLJob,
    RLJobSpec,
    SchedulePoint,
    StopSpec,
    schedule_value,
)
from rlcore.api.schema import SchemaMergeError, merged_config
from rlcore.api.status import RLJobStatus


def make_spec(**changes: Any) -> RLJobSpec:
    required = {
        "algorithm": "PPO",
        "environment": EnvironmentSpec(id="CartPole-v1"),
        "stop": StopSpec(timesteps=1000),
    }
    return RLJobSpec(**{**required, **changes})


def models_below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The model and every model in its fields."""
    yield model
    for info in model.model_fields.values():
        yield from _models_in(info.annotation)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from models_below(annotation)
    for argument in get_args(annotation):
        yield from _models_in(argument)


def test_defaults_of_ppo() -> None:
    config = make_spec().config
    assert isinstance(config, PPOConfig)
    assert config.model_dump() == {
        "learning_rate": 3e-4,
        "learning_rate_schedule": None,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "train_batch_size": 4000,
        "minibatch_size": 128,
        "num_epochs": 10,
        "clip_range": 0.2,
        "clip_range_schedule": None,
        "value_clip_range": None,
        "value_loss_coefficient": 0.5,
        "entropy_coefficient": 0.0,
        "entropy_coefficient_schedule": None,
        "kl_coefficient": 0.0,
        "kl_target": None,
        "max_gradient_norm": 0.5,
        "normalize_advantages": True,
        "adam_epsilon": 1e-5,
        "fragment_length": None,
        "batch_mode": "truncate",
        "observation_filter": "none",
        "reward_scale": 1.0,
        "compression": "auto",
        "straggler_mitigation": False,
        "max_sequence_length": 32,
    }


def test_defaults_of_the_rest() -> None:
    spec = make_spec()
    assert spec.resolved_optimizer == "LocalMultiGPU"
    assert spec.environment.wrappers == "none"
    assert spec.environment.atari.sticky_action_probability == 0.25
    assert spec.model.hiddens == [64, 64]
    assert spec.evaluation.every == 0
    assert spec.seed is None
    assert spec.evaluators.envs_per_evaluator == 16
    assert [(pool.name, pool.min_replicas, pool.max_replicas) for pool in spec.evaluators.pools] == [
        ("evaluators", 1, 4)
    ]
    assert spec.checkpoint.every_s == 300
    assert spec.checkpoint.keep == 3
    assert (spec.head.resources.cpu_cores, spec.head.resources.memory_bytes) == (2.0, 4 * 2**30)


def test_part_of_the_heads_resources_leaves_the_other_defaults() -> None:
    job_spec = RLJobSpec.model_validate(
        {"algorithm": "PPO", "environment": {"id": "a"}, "stop": {"iterations": 1}, "head": {"resources": {"cpu": 4}}}
    )
    assert (job_spec.head.resources.cpu, job_spec.head.resources.memory) == ("4", "4Gi")


@pytest.mark.parametrize("model", [*dict.fromkeys([*models_below(RLJob), *models_below(RLJobStatus), PPOConfig])])
def test_every_model_is_frozen_strict_and_described(model: type[BaseModel]) -> None:
    assert model.model_config["frozen"]
    assert model.model_config["strict"]
    assert model.__doc__
    for name, info in model.model_fields.items():
        assert info.description, name
        assert info.description.rstrip()[-1] in ".)", name
        if type(None) in get_args(info.annotation) and issubclass(model, RLJobSpec | AlgorithmConfig):
            assert "null" in info.description, f"{name} must say what null means"


def test_models_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        make_spec().stop.timesteps = 5  # type: ignore[misc]


def test_a_job_survives_being_dumped_and_read() -> None:
    job = RLJob.model_validate(
        {
            "apiVersion": "rlcore.io/v1alpha1",
            "kind": "RLJob",
            "metadata": {"name": "x", "uid": "1", "managedFields": [{}]},
            "spec": {
                "algorithm": "PPO",
                "environment": {"id": "a:b", "kwargs": {"n": [1, {"x": None}]}},
                "stop": {"wallClock": "1h30m"},
                "config": {"gamma": 1, "learningRateSchedule": [{"timesteps": 0, "value": 0.1}]},
            },
        }
    )
    assert RLJob.model_validate(job.model_dump(by_alias=True)) == job
    assert RLJob.model_validate(job.model_dump()) == job
    assert RLJob.model_validate_json(job.model_dump_json(by_alias=True)) == job


def test_an_explicit_null_means_what_the_description_says() -> None:
    spec = RLJobSpec.model_validate(
        {
            "algorithm": "PPO",
            "environment": {"id": "a", "kwargs": None, "maxFailures": None},
            "stop": {"iterations": 1},
            "stallTimeout": None,
        }
    )
    assert spec.environment.max_failures == 10, "null has no meaning there: the default, as in the API server"
    assert spec.stall_timeout is None, "null has a meaning there: never"


def test_an_optimizer_the_algorithm_does_not_know_is_refused() -> None:
    assert make_spec(optimizer="SyncSamples").resolved_optimizer == "SyncSamples"
    with pytest.raises(ValidationError, match="optimizer"):
        make_spec(optimizer="AsyncReplay")


def test_evaluators_of_a_pod_are_its_whole_cores() -> None:
    def pool(cpu: str) -> EvaluatorPool:
        return EvaluatorPool.model_validate({"name": "a", "maxReplicas": 1, "resources": {"cpu": cpu}})

    assert [pool(cpu).evaluators_per_pod for cpu in ("250m", "1", "1500m", "4")] == [1, 1, 1, 4]


def test_evaluators_accept_python_names() -> None:
    spec = EvaluatorsSpec(envs_per_evaluator=2, pools=[EvaluatorPool(name="a", min_replicas=0, max_replicas=0)])
    assert spec.pools[0].idle_timeout_s == 60


def test_a_schedule_is_linear_between_its_corners() -> None:
    corners = [SchedulePoint(timesteps=100, value=1.0), SchedulePoint(timesteps=200, value=0.0)]
    values = [schedule_value(corners, timesteps) for timesteps in (0, 100, 125, 150, 200, 10_000)]
    assert values == [1.0, 1.0, 0.75, 0.5, 0.0, 0.0]


class OtherConfig(AlgorithmConfig):
    """Another algorithm: a default of its own, a wider range, a field of its own."""

    gamma: float = Field(default=0.9, ge=-1, le=1, description="Discount per timestep.")
    replay_capacity: int = Field(default=5, ge=1, le=10, description="Timesteps kept.")


def test_the_schema_of_config_merges_all_algorithms() -> None:
    both = [ALGORITHMS["PPO"], AlgorithmInfo("OTHER", OtherConfig, ("AsyncReplay",))]
    properties = merged_config(both)["properties"]
    assert properties["gamma"]["minimum"] == -1
    assert properties["gamma"]["description"].endswith("Range: -1 to 1. Default: 0.99 (PPO), 0.9 (OTHER).")
    assert properties["replayCapacity"]["description"] == "Timesteps kept. Only for OTHER. Range: 1 to 10. Default: 5."
    assert properties["rewardScale"]["description"].endswith("Default: 1.")


def test_one_name_cannot_have_two_types() -> None:
    class Clash(AlgorithmConfig):
        gamma: str = "x"  # type: ignore[assignment]

    with pytest.raises(SchemaMergeError, match=r"spec\.config\.gamma"):
        merged_config([*ALGORITHMS.values(), AlgorithmInfo("CLASH", Clash, ("SyncSamples",))])


def test_a_custom_model_takes_no_other_layers_along() -> None:
    with pytest.raises(ValidationError, match="convPreset"):
        ModelSpec.model_validate({"convPreset": "nature", "convLayers": [{"filters": 1, "kernel": 1}]})


def test_the_api_imports_nothing_heavy() -> None:
    heavy = ("ray", "torch", "numpy", "gymnasium", "click", "rich")
    code = f"import sys, rlcore.api, rlcore.api.crd; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
