"""What comes from an evaluator beside or in place of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcore.env.base import EnvFailure
from rlcore.evaluation.episodes import Episode
from rlcore.policy.policy_graph import Stats


@dataclass(frozen=True)
class SampleInfo:
    """What the driver wants to know of a sample without fetching it.

    Attributes:
        worker_index: who sampled.
        timesteps: environment steps in the batch; with one agent these are its transitions.
        episodes: policy id -> episodes that ended.
        filter_deltas: policy id -> what the observation filter learned.
        failures: environments that raised.
        policy_version: of the weights that acted.
        sample_time_s: seconds that the call took.
        size_bytes: of the batch as it travels.
        gradient_time_s: seconds of it that went into gradients.
    """

    worker_index: int
    timesteps: int
    episodes: dict[str, list[Episode]]
    filter_deltas: dict[str, dict[str, Any]]
    failures: list[EnvFailure]
    policy_version: int
    sample_time_s: float
    size_bytes: int
    gradient_time_s: float = 0.0


@dataclass(frozen=True)
class Gradients:
    """Gradients as they travel.

    Attributes:
        gradients: policy id -> float32 [P].
        stats: policy id -> statistics of the loss.
        timesteps: agent steps behind them.
    """

    gradients: dict[str, np.ndarray]
    stats: dict[str, Stats]
    timesteps: int
