"""A job's checkpoints, and whether it is complete already: answered before anything heavy is imported."""

from __future__ import annotations

from typing import Any

from rlcore.api import RLJob, StopSpec
from rlcore.checkpoint import CheckpointStore
from rlcore.driver.identity import identity
from rlcore.driver.run_directory import RunDirectory
from rlcore.driver.stop import stop_reason


def open_store(job: RLJob, directory: RunDirectory) -> CheckpointStore:
    """The job's checkpoints."""
    return CheckpointStore(directory.checkpoints, keep=job.spec.checkpoint.keep, identity=identity(job))


def is_complete(stop: StopSpec, completion: dict[str, Any]) -> bool:
    """Whether a finished run still satisfies the stop conditions (they may have been raised since)."""
    return (
        stop_reason(
            stop,
            timesteps=completion["timesteps"],
            iterations=completion["iterations"],
            episode_reward_mean=completion["episode_reward_mean"],
            elapsed_s=completion["elapsed_s"],
        )
        is not None
    )
