"""Evolution strategies (Salimans et al. 2017, arXiv 1703.03864) and augmented random search (Mania et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from rlcore.algorithms.algorithm import Algorithm
from rlcore.api.algorithms.evolution import ARSConfig, ESConfig
from rlcore.api.algorithms.evolution import EvolutionConfig as Declared
from rlcore.optimizers import EvolutionConfig, OptimizerConfig
from rlcore.optimizers.perturbed import NOISE_INDICES, PerturbedEpisodes
from rlcore.policy.evolution import ARSPolicyGraph, ESPolicyGraph
from rlcore.policy.evolution_weights import centred_ranks, mirrored_weights, top_direction_weights
from rlcore.policy.noise_table import weighted_sum
from rlcore.policy.policy_graph import Stats
from rlcore.sample_batch import RETURNS, SampleBatch

Weigh = Callable[[np.ndarray], np.ndarray]


def descent(rows: SampleBatch, noise: np.ndarray, parameters: int, *, weigh: Weigh) -> tuple[np.ndarray, Stats]:
    """The estimated gradient of minus the return, float32 [P]; `weigh` gives each direction's weight by its returns."""
    weights = weigh(rows[RETURNS])
    stats = {"directions_used": float(np.count_nonzero(weights))}
    return -weighted_sum(noise, rows[NOISE_INDICES], weights, parameters), stats


def _evolution(config: Declared, fragment_size: int, weigh: Weigh) -> OptimizerConfig:
    return EvolutionConfig(
        train_batch_size=config.train_batch_size,
        fragment_size=fragment_size,
        directions=config.num_directions,
        noise_table_size=config.noise_table_size,
        evaluators_per_aggregator=config.evaluators_per_aggregator,
        make_work=partial(PerturbedEpisodes, noise_std=config.noise_std),
        gradient=partial(descent, weigh=weigh),
    )


def _es(config: ESConfig, fragment_size: int) -> OptimizerConfig:
    return _evolution(config, fragment_size, lambda returns: mirrored_weights(centred_ranks(returns), config.noise_std))


def _ars(config: ARSConfig, fragment_size: int) -> OptimizerConfig:
    return _evolution(config, fragment_size, lambda returns: top_direction_weights(returns, config.num_top_directions))


ES = Algorithm(graph=ESPolicyGraph, optimizer_config=_es)
ARS = Algorithm(graph=ARSPolicyGraph, optimizer_config=_ars)
