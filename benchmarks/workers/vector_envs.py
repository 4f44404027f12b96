"""Vector environments as their own libraries make them."""

from __future__ import annotations

from typing import Any

import gymnasium


def vector_env(env_id: str, envs: int, vectorization: str) -> Any:
    """`envs` environments: "native" or "sync" by gymnasium, "envpool" by envpool, "atari" by ale-py; one thread."""
    if vectorization == "envpool":
        import envpool

        return envpool.make(env_id, env_type="gymnasium", num_envs=envs, num_threads=1, seed=1)
    if vectorization == "atari":
        from ale_py.vector_env import AtariVectorEnv

        # rlcore's defaults (Machado et al. 2018), in ale-py's words.
        return AtariVectorEnv(env_id, envs, num_threads=1, repeat_action_probability=0.25)
    mode = "sync" if vectorization == "sync" else "vector_entry_point"
    return gymnasium.make_vec(env_id, envs, mode)
