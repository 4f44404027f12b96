"""One long array of normal numbers that all random directions are cut from.

A direction is then named by the one number where it begins, which is all that has to travel (Salimans et al. 2017,
arXiv 1703.03864, section 2.1). The array is the same in every process: it depends on its length alone.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rlcore.errors import UserError

TABLE_SEED = 42
# Directions that are added up at once; bounds the memory of the copies.
ROWS_AT_ONCE = 256


@lru_cache(maxsize=1)
def make_noise(size: int) -> np.ndarray:
    """Standard normal numbers float32 [size], read-only; made once a process."""
    noise = np.random.default_rng(TABLE_SEED).standard_normal(size, dtype=np.float32)
    noise.setflags(write=False)
    return noise


def require_room(noise_size: int, parameters: int) -> None:
    """Refuses a table that holds too few different directions.

    Raises:
        UserError: fewer than one direction fits beside another one.
    """
    if noise_size < 2 * parameters:
        raise UserError(
            f"spec.config.noiseTableSize: {noise_size:,} numbers are too few for a policy of {parameters:,} parameters",
            hint=f"make it 100 times as large or more: {100 * parameters:,}",
            permanent=True,
        )


def draw_indices(rng: np.random.Generator, count: int, noise_size: int, parameters: int) -> np.ndarray:
    """Where `count` random directions begin: int64 [count]."""
    return rng.integers(0, noise_size - parameters + 1, count)


def direction(noise: np.ndarray, index: int, parameters: int) -> np.ndarray:
    """The direction that begins at `index`: a view, float32 [P]."""
    return noise[index : index + parameters]


def weighted_sum(noise: np.ndarray, indices: np.ndarray, weights: np.ndarray, parameters: int) -> np.ndarray:
    """The sum of weight times direction: float32 [P]."""
    total = np.zeros(parameters, np.float32)
    used = np.flatnonzero(weights)
    for begin in range(0, len(used), ROWS_AT_ONCE):
        part = used[begin : begin + ROWS_AT_ONCE]
        rows = np.stack([direction(noise, int(indices[i]), parameters) for i in part])
        total += weights[part].astype(np.float32) @ rows
    return total
