"""The losses of deep Q-learning, by autograd and in closed form.

    td = Q(s, a) - (R + discount max_a' Q_target(s', a'))          (Mnih et al. 2015)
    double: the action is argmax Q(s', .), its value Q_target's     (van Hasselt et al. 2016)
    L = mean(w huber(td))                                          w: weights of prioritised replay, or 1

Distributional: L = mean(w KL(projected target || Z(s, a))), see `value_distribution`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rlcore.policy.value_distribution import project

STAT_NAMES = ("loss", "mean_q", "mean_td_error")


def huber_loss(td: Tensor, weights: Tensor | None) -> Tensor:
    """Mean of w * (td^2 / 2 up to 1, |td| - 1/2 beyond)."""
    losses = functional.huber_loss(td, torch.zeros_like(td), reduction="none")
    return losses.mean() if weights is None else (losses * weights).mean()


def distribution_loss(
    logits: Tensor,
    target_probabilities: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    support: Tensor,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The loss, and each row's KL divergence [B].

    Args:
        logits: [B, Z] of the actions taken.
        target_probabilities: [B, Z] of the next actions, without gradient.
        rewards: [B].
        discounts: [B].
        support: [Z].
        weights: [B] or None.
    """
    target = project(target_probabilities, rewards, discounts, support)
    log_p = functional.log_softmax(logits, -1)
    cross_entropy = -(target * log_p).sum(-1)
    # The target's entropy does not change the gradient; with it the loss of a perfect network is zero.
    divergence = cross_entropy + torch.special.xlogy(target, target).sum(-1)
    loss = divergence.mean() if weights is None else (divergence * weights).mean()
    return loss, divergence.detach().clamp(min=0.0)


def next_values(
    target_q: np.ndarray, online_q: np.ndarray | None, mask: np.ndarray | None, masked: float
) -> np.ndarray:
    """Values [B] of the next states: the target's, of the best action by `online_q` (None: by the target itself).

    Args:
        target_q: [B, A].
        online_q: [B, A] or None.
        mask: bool [B, A] or None, actions allowed there.
        masked: value that a forbidden action has.
    """
    by = target_q if online_q is None else online_q
    if mask is not None:
        by = np.where(mask, by, np.float32(masked))
    best = by.argmax(axis=1)
    picked: np.ndarray = target_q[np.arange(len(best)), best]
    return picked


def huber_delta(
    q: np.ndarray, actions: np.ndarray, targets: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """d loss / d q [B, A], the TD errors [B], and the statistics [3]; `huber_loss` differentiated."""
    rows = np.arange(len(q))
    taken = q[rows, actions]
    td = taken - targets
    size = np.float32(len(q))
    slope = np.clip(td, -1.0, 1.0)
    magnitude = np.abs(td)
    losses = np.where(magnitude <= 1.0, 0.5 * td * td, magnitude - 0.5)
    if weights is not None:
        slope, losses = slope * weights, losses * weights
    delta = np.zeros_like(q)
    delta[rows, actions] = slope / size
    return delta, td, np.array([losses.mean(), taken.mean(), magnitude.mean()])
