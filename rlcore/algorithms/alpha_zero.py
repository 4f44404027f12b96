"""AlphaZero (Silver et al. 2018, Science 362): self-play guided by a tree search, replayed into the network."""

from __future__ import annotations

import numpy as np

from rlcore.algorithms.algorithm import Algorithm
from rlcore.algorithms.replay_settings import replaying
from rlcore.api import RLJobSpec
from rlcore.api.algorithms.alpha_zero import AlphaZeroConfig
from rlcore.errors import UnsupportedError
from rlcore.evaluation.world import Spaces
from rlcore.policy.alpha_zero import AlphaZeroPolicyGraph
from rlcore.replay.memory import free_bytes, require_room


def _check(spec: RLJobSpec, spaces: dict[str, Spaces]) -> None:
    config = spec.config
    assert isinstance(config, AlphaZeroConfig)
    if spec.model.lstm_size:
        raise UnsupportedError(
            f"spec.model.lstmSize: {spec.model.lstm_size} is not supported by AlphaZero: a position says it all",
            hint="leave lstmSize out",
        )
    ((observations, actions),) = spaces.values()
    # A row: the observation, a share of visits and a bit for each action, the outcome.
    each = int(np.prod(observations.shape)) * observations.dtype.itemsize + 5 * int(actions.n) + 4
    require_room(config.replay_capacity, each, free_bytes())


ALPHA_ZERO = Algorithm(graph=AlphaZeroPolicyGraph, optimizer_config=replaying, check=_check)
