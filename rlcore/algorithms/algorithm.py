"""What makes an algorithm: how it acts and learns, and how much it samples and trains in one round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rlcore.api import RLJobSpec
from rlcore.evaluation.world import Spaces
from rlcore.optimizers import OptimizerConfig
from rlcore.policy.torch_policy_graph import TorchPolicyGraph


@dataclass(frozen=True)
class Algorithm:
    """An algorithm that a manifest can name.

    Attributes:
        graph: its policy graph.
        optimizer_config: (hyper-parameters, timesteps of one sample) -> what its optimizer needs to know.
        joint: all agents act as one, and their graph sees the global state of the environment too, or not; None: each
            policy acts for itself.
        check: (manifest, spaces of each policy) raises a UserError for what cannot be run, before anything is started.
    """

    graph: type[TorchPolicyGraph]
    optimizer_config: Callable[[Any, int], OptimizerConfig]
    check: Callable[[RLJobSpec, dict[str, Spaces]], None] = lambda spec, spaces: None
    joint: Literal["withState", "withoutState"] | None = None
