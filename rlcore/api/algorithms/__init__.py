"""The algorithms an RLJob can name: for each its hyper-parameters and the optimizers it can train with.

To add one: a config class in a file of its own, and a line in ALGORITHMS. The CRD, `rlcore validate` and the
messages follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rlcore.api.algorithms.config import AlgorithmConfig
from rlcore.api.algorithms.ppo import PPOConfig

__all__ = ["ALGORITHMS", "OPTIMIZERS", "AlgorithmConfig", "AlgorithmInfo", "PPOConfig"]


@dataclass(frozen=True)
class AlgorithmInfo:
    """What the API knows of an algorithm.

    Attributes:
        name: as the manifest spells it.
        config: the model of spec.config.
        optimizers: names of the policy optimizers it can train with, the default first.
    """

    name: str
    config: type[AlgorithmConfig]
    optimizers: tuple[str, ...]

    @property
    def default_optimizer(self) -> str:
        """The optimizer of a manifest that names none."""
        return self.optimizers[0]


ALGORITHMS: Mapping[str, AlgorithmInfo] = MappingProxyType(
    {info.name: info for info in (AlgorithmInfo("PPO", PPOConfig, ("LocalMultiGPU", "SyncSamples")),)}
)

OPTIMIZERS: tuple[str, ...] = tuple(dict.fromkeys(name for info in ALGORITHMS.values() for name in info.optimizers))
"""Every optimizer of any algorithm, each once."""
