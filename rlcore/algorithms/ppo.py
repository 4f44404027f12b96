"""Proximal policy optimization (Schulman et al. 2017, arXiv 1707.06347)."""

from __future__ import annotations

from rlcore.algorithms.algorithm import Algorithm
from rlcore.api import PPOConfig
from rlcore.optimizers import OptimizerConfig
from rlcore.policy.ppo import PPOPolicyGraph


def _optimizer_config(config: PPOConfig, fragment_size: int) -> OptimizerConfig:
    return OptimizerConfig(
        train_batch_size=config.train_batch_size,
        fragment_size=fragment_size,
        num_epochs=config.num_epochs,
        minibatch_size=config.minibatch_size,
        straggler_mitigation=config.straggler_mitigation,
    )


PPO = Algorithm(graph=PPOPolicyGraph, optimizer_config=_optimizer_config)
