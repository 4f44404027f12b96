"""A network and its slowly following copy, side by side in one parameter vector.

The copy travels, is saved and is replicated with the rest; following is one kernel on two halves of a vector.
"""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import nn

from rlcore.policy.flat_parameters import FlatParameters

Network = TypeVar("Network", bound=nn.Module)


class WithTarget(nn.Module, Generic[Network]):
    """`online` is trained; `target` is an equal network that no gradient reaches."""

    online: Network
    target: Network

    def __init__(self, online: Network) -> None:
        super().__init__()
        self.online = online
        self.target = copy.deepcopy(online)
        self.target.requires_grad_(False)


def online_half(flat: FlatParameters) -> slice:
    """Where the online network's parameters are."""
    return slice(0, len(flat.vector) // 2)


def follow(flat: FlatParameters, rate: float) -> None:
    """target <- target + rate (online - target); rate 1 is a copy."""
    half = len(flat.vector) // 2
    with torch.no_grad():
        flat.vector[half:].lerp_(flat.vector[:half], rate)
