"""REINFORCE with rewards-to-go (Williams 1992)."""

from __future__ import annotations

from rlcore.algorithms.algorithm import Algorithm
from rlcore.api.algorithms.pg import PGConfig
from rlcore.optimizers import OptimizerConfig
from rlcore.policy.a2c import PGPolicyGraph


def _optimizer_config(config: PGConfig, fragment_size: int) -> OptimizerConfig:
    return OptimizerConfig(train_batch_size=config.train_batch_size, fragment_size=fragment_size)


PG = Algorithm(graph=PGPolicyGraph, optimizer_config=_optimizer_config)
