"""Learning from records: behaviour cloning, and MARWIL (Wang et al. 2018)."""

from __future__ import annotations

from rlcore.algorithms.algorithm import Algorithm
from rlcore.api.algorithms.offline import OfflineConfig as Declared
from rlcore.optimizers import OfflineConfig, OptimizerConfig
from rlcore.policy.marwil import BCPolicyGraph, MARWILPolicyGraph


def _optimizer_config(config: Declared, fragment_size: int, *, with_returns: bool) -> OptimizerConfig:
    assert config.input is not None, "it was looked at before"
    return OfflineConfig(
        train_batch_size=config.train_batch_size,
        fragment_size=fragment_size,
        num_epochs=config.num_epochs,
        minibatch_size=config.minibatch_size,
        source=config.input,
        gamma=config.gamma,
        with_returns=with_returns,
    )


def _bc(config: Declared, fragment_size: int) -> OptimizerConfig:
    return _optimizer_config(config, fragment_size, with_returns=False)


def _marwil(config: Declared, fragment_size: int) -> OptimizerConfig:
    return _optimizer_config(config, fragment_size, with_returns=True)


BC = Algorithm(graph=BCPolicyGraph, optimizer_config=_bc)
MARWIL = Algorithm(graph=MARWILPolicyGraph, optimizer_config=_marwil)
