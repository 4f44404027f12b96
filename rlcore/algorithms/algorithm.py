"""What makes an algorithm: how it acts and learns, and how much it samples and trains in one round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlcore.optimizers import OptimizerConfig
from rlcore.policy.torch_policy_graph import TorchPolicyGraph


@dataclass(frozen=True)
class Algorithm:
    """An algorithm that a manifest can name.

    Attributes:
        graph: its policy graph.
        optimizer_config: (hyper-parameters, timesteps of one sample) -> what its optimizer needs to know.
    """

    graph: type[TorchPolicyGraph]
    optimizer_config: Callable[[Any, int], OptimizerConfig]
