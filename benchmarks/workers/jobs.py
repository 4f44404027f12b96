"""Manifests and evaluators of the benchmarks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlcore.api import RLJob
from rlcore.driver.build import evaluator_config
from rlcore.driver.plan import Plan
from rlcore.evaluation.policy_evaluator import PolicyEvaluator


def job(environment: dict[str, Any], *, timesteps: int = 1_000_000, **spec: Any) -> RLJob:
    """A PPO manifest; what `spec` leaves out has its default."""
    return RLJob.model_validate(
        {
            "apiVersion": "rlcore.io/v1alpha1",
            "kind": "RLJob",
            "metadata": {"name": "benchmark"},
            "spec": {
                "algorithm": "PPO",
                "environment": environment,
                "seed": 1,
                "stop": {"timesteps": timesteps},
                **spec,
            },
        }
    )


def evaluator(manifest: RLJob, envs: int, fragment: int, threads: int) -> PolicyEvaluator:
    """A plain object that samples fragments of `fragment` steps from `envs` environments."""
    plan = Plan(0, envs, fragment, devices=("cpu",), remote_learner=False, notes=())
    return PolicyEvaluator(replace(evaluator_config(manifest.spec, plan, seed=1), torch_threads=threads))
