"""Advantage actor-critic, synchronous (A2C) and asynchronous (A3C; Mnih et al. 2016, arXiv 1602.01783)."""

from __future__ import annotations

from rlcore.algorithms.algorithm import Algorithm
from rlcore.api.algorithms.a2c import A2CConfig, A3CConfig
from rlcore.optimizers import AsyncGradientsConfig, OptimizerConfig
from rlcore.policy.a2c import A2CPolicyGraph


def _a2c_optimizer_config(config: A2CConfig, fragment_size: int) -> OptimizerConfig:
    return OptimizerConfig(
        train_batch_size=config.train_batch_size,
        fragment_size=fragment_size,
        updates_per_step=config.updates_per_iteration,
    )


def _a3c_optimizer_config(config: A3CConfig, fragment_size: int) -> AsyncGradientsConfig:
    return AsyncGradientsConfig(
        train_batch_size=config.train_batch_size,
        fragment_size=fragment_size,
        updates_per_step=config.updates_per_iteration,
        max_staleness=config.max_staleness,
        parameter_shards=config.parameter_shards,
        adam_epsilon=config.adam_epsilon,
    )


A2C = Algorithm(graph=A2CPolicyGraph, optimizer_config=_a2c_optimizer_config)
A3C = Algorithm(graph=A2CPolicyGraph, optimizer_config=_a3c_optimizer_config)
