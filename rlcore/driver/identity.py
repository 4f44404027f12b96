"""What makes two jobs the same job, as far as a checkpoint is concerned."""

from __future__ import annotations

from typing import Any

from rlcore.api import RLJob


def identity(job: RLJob) -> dict[str, Any]:
    """What a checkpoint must agree on with a job to be loaded by it; each name appears in the error that refuses it."""
    spec = job.spec
    result: dict[str, Any] = {
        "algorithm": spec.algorithm,
        "environment": spec.environment.id,
        "environment kwargs": spec.environment.kwargs,
        "wrappers": spec.environment.wrappers,
        "observation filter": spec.config.observation_filter,
        "model": spec.model.model_dump(mode="json", by_alias=True),
    }
    if spec.environment.wrappers == "atari":
        result["atari"] = spec.environment.atari.model_dump(mode="json", by_alias=True)
    if spec.multi_agent is not None:
        multi = spec.multi_agent
        result["policies"] = {
            policy_id: None if policy.model is None else policy.model.model_dump(mode="json", by_alias=True)
            for policy_id, policy in sorted(multi.policies.items())
        }
        result["mapping"] = multi.mapping
        result["train"] = sorted(multi.trained)
        if multi.self_play is not None:
            result["self-play"] = [multi.self_play.policy, *sorted(multi.self_play.opponents)]
    return result
