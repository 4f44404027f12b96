"""What offline algorithms learn from: all recorded transitions, and batches of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rlcore.errors import UserError
from rlcore.offline import minari_records
from rlcore.offline.records import read_info, read_rows
from rlcore.offline.transitions import TERMINATED, TRUNCATED, require_same_spaces, returns_to_go, space_text
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    DISCOUNTS,
    FINAL_OBSERVATIONS,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    RETURNS,
    REWARDS,
    SampleBatch,
)


def require_fitting_input(source: str | None, spaces: tuple[gym.spaces.Box, gym.Space[Any]], environment: str) -> None:
    """Looks at the head of `spec.config.input`, before anything is started.

    Raises:
        UserError: it is missing, cannot be read, or is of other spaces than the environment's.
    """
    if source is None:
        raise UserError(
            "spec.config.input is missing",
            hint="name the folder that `rlcore record` wrote, or minari:DATASET",
            permanent=True,
        )
    if source.startswith(minari_records.PREFIX):
        found = minari_records.dataset_spaces(minari_records.open_dataset(source.removeprefix(minari_records.PREFIX)))
    else:
        found = read_info(Path(source)).spaces
    require_same_spaces(source, found, (space_text(spaces[0]), space_text(spaces[1])), environment)


class OfflineDataset:
    """Transitions in memory.

    Args:
        rows: see `rlcore.offline.transitions`.
        gamma: discount of the returns.
    """

    def __init__(self, rows: SampleBatch, gamma: float) -> None:
        self.rows = rows
        self._returns, self._last = returns_to_go(rows[REWARDS], rows[TERMINATED] | rows[TRUNCATED], gamma)
        steps_left = self._last - np.arange(rows.size) + 1
        # What comes after a trajectory's last step is worth the value of its last observation, unless it terminated.
        self._discounts = (gamma**steps_left * ~rows[TERMINATED][self._last]).astype(np.float32)

    @classmethod
    def read(cls, source: str, gamma: float) -> OfflineDataset:
        """All of `spec.config.input`.

        Raises:
            UserError: it cannot be read, or does not fit in memory.
        """
        if source.startswith(minari_records.PREFIX):
            name = source.removeprefix(minari_records.PREFIX)
            return cls(minari_records.dataset_rows(name, minari_records.open_dataset(name)), gamma)
        folder = Path(source)
        return cls(read_rows(folder, read_info(folder)), gamma)

    @property
    def size(self) -> int:
        """Timesteps."""
        return self.rows.size

    def batch(self, indices: np.ndarray, *, with_returns: bool) -> SampleBatch:
        """Rows to learn from.

        Args:
            indices: of the rows.
            with_returns: also what came after each: `returns` to the trajectory's end, and `discounts` of the value of
                its `final_observations`.
        """
        rows = self.rows
        names = [OBSERVATIONS, ACTIONS, *([ACTION_MASK] if ACTION_MASK in rows else [])]
        columns = {name: rows[name][indices] for name in names}
        if with_returns:
            columns[RETURNS] = self._returns[indices]
            columns[DISCOUNTS] = self._discounts[indices]
            columns[FINAL_OBSERVATIONS] = rows[NEXT_OBSERVATIONS][self._last[indices]]
        return SampleBatch(columns)
