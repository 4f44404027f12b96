"""The algorithms an RLJob can name: for each its hyper-parameters and the optimizers it can train with.

To add one: a config class in a file of its own, and a line in ALGORITHMS. The CRD, `rlcore validate` and the
messages follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from rlcore.api.algorithms.a2c import A2CConfig, A3CConfig
from rlcore.api.algorithms.alpha_zero import AlphaZeroConfig
from rlcore.api.algorithms.config import AlgorithmConfig
from rlcore.api.algorithms.ddpg import ApexDDPGConfig, DDPGConfig, TD3Config
from rlcore.api.algorithms.dqn import ApexDQNConfig, DQNConfig
from rlcore.api.algorithms.evolution import ARSConfig, ESConfig
from rlcore.api.algorithms.impala import APPOConfig, IMPALAConfig
from rlcore.api.algorithms.maddpg import MADDPGConfig
from rlcore.api.algorithms.offline import BCConfig, MARWILConfig
from rlcore.api.algorithms.pg import PGConfig
from rlcore.api.algorithms.ppo import PPOConfig
from rlcore.api.algorithms.ppo_es import PPOESConfig
from rlcore.api.algorithms.qmix import QMIXConfig
from rlcore.api.algorithms.sac import SACConfig

__all__ = ["ALGORITHMS", "OPTIMIZERS", "AlgorithmConfig", "AlgorithmInfo", "PPOConfig"]


@dataclass(frozen=True)
class AlgorithmInfo:
    """What the API knows of an algorithm.

    Attributes:
        name: as the manifest spells it.
        config: the model of spec.config.
        optimizers: names of the policy optimizers it can train with, the default first.
        agents: "one" trains one policy without spec.multiAgent, "many" needs spec.multiAgent, "any" does either.
    """

    name: str
    config: type[AlgorithmConfig]
    optimizers: tuple[str, ...]
    agents: Literal["one", "any", "many"] = "any"

    @property
    def default_optimizer(self) -> str:
        """The optimizer of a manifest that names none."""
        return self.optimizers[0]


ALGORITHMS: Mapping[str, AlgorithmInfo] = MappingProxyType(
    {
        info.name: info
        for info in (
            AlgorithmInfo("PPO", PPOConfig, ("LocalMultiGPU", "SyncSamples", "Allreduce")),
            AlgorithmInfo("PG", PGConfig, ("SyncSamples",)),
            AlgorithmInfo("A2C", A2CConfig, ("SyncSamples",)),
            AlgorithmInfo("A3C", A3CConfig, ("AsyncGradients", "ShardedParameterServer", "SyncSamples")),
            AlgorithmInfo("IMPALA", IMPALAConfig, ("AsyncSamples", "SyncSamples")),
            AlgorithmInfo("APPO", APPOConfig, ("AsyncSamples",)),
            AlgorithmInfo("ES", ESConfig, ("Evolution",), agents="one"),
            AlgorithmInfo("ARS", ARSConfig, ("Evolution",), agents="one"),
            AlgorithmInfo("PPOES", PPOESConfig, ("Evolution",), agents="one"),
            AlgorithmInfo("BC", BCConfig, ("OfflineSamples",), agents="one"),
            AlgorithmInfo("MARWIL", MARWILConfig, ("OfflineSamples",), agents="one"),
            AlgorithmInfo("DQN", DQNConfig, ("SyncReplay", "AsyncReplay", "SyncBatchReplay")),
            AlgorithmInfo("DDPG", DDPGConfig, ("SyncReplay", "AsyncReplay")),
            AlgorithmInfo("TD3", TD3Config, ("SyncReplay", "AsyncReplay")),
            AlgorithmInfo("SAC", SACConfig, ("SyncReplay", "AsyncReplay")),
            AlgorithmInfo("ApexDQN", ApexDQNConfig, ("AsyncReplay",)),
            AlgorithmInfo("ApexDDPG", ApexDDPGConfig, ("AsyncReplay",)),
            AlgorithmInfo("MADDPG", MADDPGConfig, ("SyncReplay", "AsyncReplay"), agents="many"),
            AlgorithmInfo("QMIX", QMIXConfig, ("SyncReplay", "AsyncReplay", "SyncBatchReplay"), agents="many"),
            AlgorithmInfo("AlphaZero", AlphaZeroConfig, ("SyncReplay", "AsyncReplay"), agents="one"),
        )
    }
)

OPTIMIZERS: tuple[str, ...] = tuple(dict.fromkeys(name for info in ALGORITHMS.values() for name in info.optimizers))
"""Every optimizer of any algorithm, each once."""
