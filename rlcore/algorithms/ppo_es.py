"""PPO-ES: evolution whose evaluations are PPO runs (RLlib paper, arXiv 1712.09381, hierarchical control).

The weights that the better half of the runs ended with are averaged, by rank; that is where the next runs begin.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from rlcore.algorithms.algorithm import Algorithm
from rlcore.api.algorithms.ppo_es import PPOESConfig
from rlcore.optimizers import EvolutionConfig, OptimizerConfig
from rlcore.optimizers.nested_ppo import CHANGES, PPORuns
from rlcore.policy.evolution_weights import centred_ranks
from rlcore.policy.policy_graph import Stats
from rlcore.policy.ppo_es import PPOESPolicyGraph
from rlcore.sample_batch import RETURNS, SampleBatch


def joined_runs(rows: SampleBatch, noise: np.ndarray, parameters: int) -> tuple[np.ndarray, Stats]:
    """Minus the mean change of the better half of the runs, by rank, float32 [P]; of all where they earned the same."""
    weights = np.maximum(centred_ranks(rows[RETURNS]), 0.0).reshape(-1)
    weights = weights / weights.sum() if weights.any() else np.full(len(weights), 1 / len(weights))
    changes = rows[CHANGES].reshape(-1, parameters)
    return -(weights.astype(np.float32) @ changes), {"runs_used": float(np.count_nonzero(weights))}


def _optimizer_config(config: PPOESConfig, fragment_size: int) -> OptimizerConfig:
    ppo = OptimizerConfig(config.train_batch_size, fragment_size, config.num_epochs, config.minibatch_size)
    make_runs = partial(
        PPORuns,
        noise_std=config.noise_std,
        iterations=config.inner_iterations,
        ppo=ppo,
        fitness_episodes=config.fitness_episodes,
        evaluators=config.inner_evaluators,
    )
    return EvolutionConfig(
        train_batch_size=1,
        fragment_size=fragment_size,
        directions=config.num_directions,
        noise_table_size=config.noise_table_size,
        make_work=make_runs,
        gradient=joined_runs,
    )


PPOES = Algorithm(graph=PPOESPolicyGraph, optimizer_config=_optimizer_config)
