"""Environments: any Gymnasium id or factory, vectorized, with one convention for autoreset and truncation."""

from __future__ import annotations

from rlcore.env.base import EnvFailure, Step, VectorEnv
from rlcore.env.factory import make_vector_env

__all__ = ["EnvFailure", "Step", "VectorEnv", "make_vector_env"]
