"""How much each direction counts, from the returns of its two mirrored episodes.

The estimate of the gradient of the expected return is the sum of weight times direction.
"""

from __future__ import annotations

import numpy as np


def centred_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks of all entries, from -0.5 (lowest) to 0.5 (highest), float32 in the shape of `values`.

    Equal values share their mean rank, so that episodes that are all alike point nowhere.
    """
    flat = values.reshape(-1)
    if len(flat) < 2:
        return np.zeros(values.shape, np.float32)
    _, group, counts = np.unique(flat, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank = last - (counts + 1) / 2
    return (mean_rank[group] / (len(flat) - 1) - 0.5).astype(np.float32).reshape(values.shape)


def mirrored_weights(fitness: np.ndarray, noise_std: float) -> np.ndarray:
    """Weights float32 [n] of the antithetic estimate: (F(θ+σε) - F(θ-σε)) / 2nσ.

    Args:
        fitness: [n, 2], forwards and backwards.
        noise_std: σ.

    Source: Salimans et al. 2017 (arXiv 1703.03864), algorithm 1 with the mirrored sampling of section 2.1.
    """
    return ((fitness[:, 0] - fitness[:, 1]) / (2 * len(fitness) * noise_std)).astype(np.float32)


def top_direction_weights(returns: np.ndarray, top: int | None) -> np.ndarray:
    """Weights float32 [n] of the `top` directions: (r+ - r-) / (b σ_R); all others have none.

    Directions are compared by the larger one of their two returns; σ_R is the deviation of the 2b returns used.

    Args:
        returns: [n, 2], forwards and backwards.
        top: b; None: all n.

    Source: Mania et al. 2018 (arXiv 1803.07055), algorithm 2.
    """
    count = len(returns) if top is None else min(top, len(returns))
    # A stable order: of equals the first.
    best = np.argsort(-returns.max(axis=1), kind="stable")[:count]
    deviation = max(float(returns[best].std()), 1e-6)
    weights = np.zeros(len(returns), np.float32)
    weights[best] = (returns[best, 0] - returns[best, 1]) / (count * deviation)
    return weights
