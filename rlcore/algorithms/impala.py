"""IMPALA (Espeholt et al. 2018, arXiv 1802.01561), and APPO: the same with PPO's clipped objective."""

from __future__ import annotations

import sys

from rlcore.algorithms.algorithm import Algorithm
from rlcore.api.algorithms.impala import APPOConfig, IMPALAConfig
from rlcore.optimizers import AsyncSamplesConfig
from rlcore.policy.impala import APPOPolicyGraph, IMPALAPolicyGraph


def _impala_optimizer_config(config: IMPALAConfig | APPOConfig, fragment_size: int) -> AsyncSamplesConfig:
    return AsyncSamplesConfig(
        train_batch_size=config.train_batch_size,
        fragment_size=fragment_size,
        num_epochs=config.num_epochs,
        minibatch_size=config.minibatch_size if isinstance(config, APPOConfig) else sys.maxsize,
        updates_per_step=config.updates_per_iteration,
        samples_in_flight=config.samples_in_flight,
        learner_queue_size=config.learner_queue_size,
        updates_in_flight=config.updates_in_flight,
        broadcast_interval=config.broadcast_interval,
        replay_slots=config.replay_slots,
        replay_proportion=config.replay_proportion,
        num_aggregators=config.num_aggregators,
        evaluators_per_aggregator=config.evaluators_per_aggregator,
    )


IMPALA = Algorithm(graph=IMPALAPolicyGraph, optimizer_config=_impala_optimizer_config)
APPO = Algorithm(graph=APPOPolicyGraph, optimizer_config=_impala_optimizer_config)
