"""Environments: any Gymnasium id or factory, vectorized, with one convention for autoreset and truncation."""

from __future__ import annotations

from rlcore.env.actions import ActionLayout, ActionLeaf, action_leaves, mask_size
from rlcore.env.base import EnvFailure, Step, VectorEnv
from rlcore.env.factory import make_vector_env
from rlcore.env.multi_agent import MultiAgentVectorEnv
from rlcore.env.normalize import MeanStdFilter

__all__ = [
    "ActionLayout",
    "ActionLeaf",
    "EnvFailure",
    "MeanStdFilter",
    "MultiAgentVectorEnv",
    "Step",
    "VectorEnv",
    "action_leaves",
    "make_vector_env",
    "mask_size",
]
