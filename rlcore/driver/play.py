"""Plays episodes with a saved policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlcore.api import RLJob, load_job
from rlcore.checkpoint import CheckpointStore
from rlcore.driver.build import evaluator_config
from rlcore.driver.evaluation import LARGEST_WIDTH, EvaluationResult
from rlcore.driver.identity import identity
from rlcore.driver.plan import Machine, make_plan
from rlcore.driver.run_directory import CHECKPOINTS, MANIFEST_FILE, run_directory
from rlcore.errors import UserError
from rlcore.evaluation.policy_evaluator import PolicyEvaluator


def play_checkpoint(path: Path, *, episodes: int, seed: int) -> EvaluationResult:
    """The deterministic policy of a run's newest checkpoint, on environments seeded with `seed`.

    Raises:
        UserError: the directory holds no run, or no usable checkpoint.
    """
    manifest = path / MANIFEST_FILE
    if not manifest.exists():
        raise UserError(
            f"{path} is no run directory: {MANIFEST_FILE} is missing", hint="give runs/NAME of `rlcore run`"
        )
    job = load_job(manifest)
    store = CheckpointStore(_location(path, job), identity=identity(job))
    found = store.latest()
    if found is None:
        raise UserError(f"{store.location} holds no usable checkpoint", hint=f"train first: rlcore run {manifest}")
    info, state = found
    assert isinstance(state, dict)
    learner = state["optimizer"]["learner"]
    weights = {policy_id: policy["weights"] for policy_id, policy in learner["policies"].items()}
    plan = make_plan(job.spec, Machine(cores=1, gpus=0))
    config = replace(evaluator_config(job.spec, plan, seed), num_envs=min(episodes, LARGEST_WIDTH), fragment_length=200)
    evaluator = PolicyEvaluator(config)
    try:
        evaluator.set_global_state(weights, learner["version"], info.timesteps, state["optimizer"]["filters"])
        played = evaluator.evaluate(episodes, seed)
    finally:
        evaluator.close()
    return EvaluationResult.of(played, info.timesteps)


def _location(path: Path, job: RLJob) -> str:
    """Where a run's checkpoints are: below its directory, among its files (a cluster's claim), or elsewhere."""
    # A run that was moved aside has another name than its job; its own checkpoints are beside its manifest.
    own = path / CHECKPOINTS
    if own.is_dir():
        return str(own)
    return str(path) if any(path.glob("ckpt-*")) else run_directory(job, path.parent).checkpoints
