"""Distributions of returns on fixed atoms (Bellemare et al. 2017, arXiv 1707.06887, algorithm 1)."""

from __future__ import annotations

import torch
from torch import Tensor


def project(probabilities: Tensor, rewards: Tensor, discounts: Tensor, support: Tensor) -> Tensor:
    """The distribution of `rewards + discounts * z` put back on the atoms, [B, Z].

    Args:
        probabilities: [B, Z] of the atoms z.
        rewards: [B].
        discounts: [B].
        support: [Z], evenly spaced and increasing.
    """
    atoms = len(support)
    low, high = support[0], support[-1]
    moved = (rewards[:, None] + discounts[:, None] * support).clamp(low, high)
    place = ((moved - low) * ((atoms - 1) / (high - low))).clamp(0, atoms - 1)
    below = place.floor()
    # What falls onto an atom goes there as a whole: its share above is zero, wherever that would be.
    above_share = place - below
    below_index = below.long()
    above_index = (below_index + 1).clamp(max=atoms - 1)
    projected = torch.zeros_like(probabilities)
    projected.scatter_add_(1, below_index, probabilities * (1 - above_share))
    projected.scatter_add_(1, above_index, probabilities * above_share)
    return projected
