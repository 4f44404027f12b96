"""The PPO loss (Schulman et al. 2017, arXiv 1707.06347, equations 7 and 9), by autograd and in closed form.

    L = -E[min(r A, clip(r, 1 - e, 1 + e) A)] + c_v E[(V - R)^2] / 2 - c_e E[H] + c_k E[KL(old || new)]

`ppo_loss` is the definition. `closed_form_gradient` is its derivative with respect to the network's outputs, written
out for the two commonest distributions; tests hold it to the definition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlcore.policy.distributions import (
    LOG_STD_RANGE,
    MASKED_LOGIT,
    ActionDistribution,
    Categorical,
    DiagonalGaussian,
)
from rlcore.policy.fast_mlp import FastMLP

STAT_NAMES = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction")
_HALF_LOG_2PI = np.float32(0.5 * np.log(2 * np.pi))


@dataclass
class PPOCoefficients:
    """The loss's coefficients at one moment of training; None switches value clipping off."""

    clip_range: float
    value_clip_range: float | None
    value_coefficient: float
    entropy_coefficient: float
    kl_coefficient: float


def ppo_loss(
    distribution: ActionDistribution,
    inputs: Tensor,
    values: Tensor,
    batch: dict[str, Tensor],
    coefficients: PPOCoefficients,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The scalar loss and its statistics [5] (STAT_NAMES).

    Args:
        distribution: the policy's.
        inputs: [..., A] new distribution inputs, masks already applied.
        values: [...] new values.
        batch: actions, behaviour_logp, advantages, value_targets; values where value clipping is on, dist_inputs where
            the KL term is on.
        coefficients: see PPOCoefficients.
        weights: [...] 1 for real timesteps and 0 for padding; None for all real.
    """

    def mean(x: Tensor) -> Tensor:
        return x.mean() if weights is None else (x * weights).sum() / weights.sum()

    log_ratio = distribution.logp(inputs, batch["actions"]) - batch["behaviour_logp"]
    if weights is not None:
        log_ratio = log_ratio * weights
    ratio = log_ratio.exp()
    advantages = batch["advantages"]
    clipped = ratio.clamp(1 - coefficients.clip_range, 1 + coefficients.clip_range)
    policy_loss = mean(-torch.minimum(ratio * advantages, clipped * advantages))
    error = (values - batch["value_targets"]).square()
    if coefficients.value_clip_range is not None:
        reach = coefficients.value_clip_range
        near = batch["values"] + (values - batch["values"]).clamp(-reach, reach)
        error = torch.maximum(error, (near - batch["value_targets"]).square())
    value_loss = 0.5 * mean(error)
    entropy = mean(distribution.entropy(inputs))
    loss = policy_loss + coefficients.value_coefficient * value_loss - coefficients.entropy_coefficient * entropy
    if coefficients.kl_coefficient:
        loss = loss + coefficients.kl_coefficient * mean(distribution.kl(batch["dist_inputs"], inputs))
    with torch.no_grad():
        kl = mean(ratio - 1 - log_ratio)
        clip_fraction = mean(((ratio - 1).abs() > coefficients.clip_range).float())
    return loss, torch.stack([policy_loss, value_loss, entropy, kl, clip_fraction]).detach()


def has_closed_form(distribution: ActionDistribution) -> bool:
    """Whether `closed_form_gradient` covers a distribution."""
    return isinstance(distribution, Categorical | DiagonalGaussian)


def closed_form_gradient(
    network: FastMLP,
    distribution: ActionDistribution,
    batch: dict[str, np.ndarray],
    coefficients: PPOCoefficients,
) -> np.ndarray:
    """Writes the loss's gradient into the network's parameters' gradients; returns the statistics [5].

    Args:
        network: the policy and value networks.
        distribution: Categorical or DiagonalGaussian.
        batch: as `ppo_loss`, with observations [B, obs], in numpy.
        coefficients: see PPOCoefficients.
    """
    observations = batch["observations"]
    activations = network.forward(observations.reshape(len(observations), -1))
    value_loss, value_delta = _value_terms(activations.values, batch, coefficients)
    if isinstance(distribution, Categorical):
        policy_stats, delta = _categorical_terms(activations.policy, batch, coefficients)
    else:
        assert network.log_std is not None
        assert network.log_std_gradient is not None
        policy_stats, delta, log_std_delta = _gaussian_terms(activations.policy, network.log_std, batch, coefficients)
        network.log_std_gradient[:] = log_std_delta
    network.backward(activations, delta, value_delta)
    policy_loss, entropy, kl, clip_fraction = policy_stats
    return np.array([policy_loss, value_loss, entropy, kl, clip_fraction])


def _value_terms(
    values: np.ndarray, batch: dict[str, np.ndarray], coefficients: PPOCoefficients
) -> tuple[float, np.ndarray]:
    errors = values - batch["value_targets"]
    delta = errors
    squared = errors * errors
    if coefficients.value_clip_range is not None:
        reach = np.float32(coefficients.value_clip_range)
        change = values - batch["values"]
        near_errors = batch["values"] + _clip(change, -reach, reach) - batch["value_targets"]
        near_squared = near_errors * near_errors
        # Where the clipped error is the larger one and the value was clipped, nothing flows back.
        stopped = (near_squared > squared) & (np.abs(change) > reach)
        delta = np.where(stopped, np.float32(0.0), errors)
        squared = np.maximum(squared, near_squared)
    scale = np.float32(coefficients.value_coefficient / len(values))
    return 0.5 * _mean(squared), delta * scale


def _surrogate(
    logp: np.ndarray, batch: dict[str, np.ndarray], clip_range: float
) -> tuple[float, float, float, np.ndarray]:
    """Policy loss, mean KL estimate, clip fraction, and d policy loss / d logp [B]."""
    log_ratio = logp - batch["behaviour_logp"]
    ratio = np.exp(log_ratio)
    advantages = batch["advantages"]
    plain = ratio * advantages
    off = ratio - np.float32(1.0)
    reach = np.float32(clip_range)
    clipped = (_clip(off, -reach, reach) + np.float32(1.0)) * advantages
    size = len(logp)
    # Where the clipped term is the smaller one it is constant in logp: nothing flows back.
    d_logp = np.where(plain <= clipped, plain, np.float32(0.0)) * np.float32(-1.0 / size)
    loss = -_mean(np.minimum(plain, clipped))
    kl = _mean(off - log_ratio)
    clip_fraction = float(np.count_nonzero(np.abs(off) > reach)) / size
    return loss, kl, clip_fraction, d_logp


def _categorical_terms(
    logits: np.ndarray, batch: dict[str, np.ndarray], coefficients: PPOCoefficients
) -> tuple[tuple[float, float, float, float], np.ndarray]:
    size = len(logits)
    if "action_mask" in batch:
        logits = np.where(batch["action_mask"], logits, np.float32(MASKED_LOGIT))
    # Actions come first here, [A, B]: numpy reduces over a first axis several times faster than over a short last one.
    log_p, p = _log_softmax(logits.T)
    taken = batch["actions"] * size + np.arange(size)
    loss, kl, clip_fraction, d_logp = _surrogate(log_p.reshape(-1)[taken], batch, coefficients.clip_range)
    delta = p * -d_logp
    delta.reshape(-1)[taken] += d_logp
    entropies = -np.add.reduce(p * log_p)
    if coefficients.entropy_coefficient:
        scale = np.float32(coefficients.entropy_coefficient / size)
        delta += scale * p * (log_p + entropies)
    if coefficients.kl_coefficient:
        old_p = _log_softmax(batch["dist_inputs"].T)[1]
        delta += np.float32(coefficients.kl_coefficient / size) * (p - old_p)
    return (loss, _mean(entropies), kl, clip_fraction), delta.T


def _gaussian_terms(
    means: np.ndarray, log_std: np.ndarray, batch: dict[str, np.ndarray], coefficients: PPOCoefficients
) -> tuple[tuple[float, float, float, float], np.ndarray, np.ndarray]:
    bounded = np.clip(log_std, *LOG_STD_RANGE)
    inverse_std = np.exp(-bounded)
    z = (batch["actions"] - means) * inverse_std
    squares = z * z
    logp = (-0.5 * squares - bounded - _HALF_LOG_2PI).sum(-1)
    loss, kl, clip_fraction, d_logp = _surrogate(logp, batch, coefficients.clip_range)
    delta = z * inverse_std
    delta *= d_logp[:, None]
    log_std_delta = ((squares - np.float32(1.0)) * d_logp[:, None]).sum(0)
    log_std_delta -= np.float32(coefficients.entropy_coefficient)
    if coefficients.kl_coefficient:
        scale = np.float32(coefficients.kl_coefficient / len(means))
        old_means, old_log_std = np.split(batch["dist_inputs"], 2, axis=-1)
        shift = (means - old_means) * inverse_std
        delta += scale * shift * inverse_std
        spread = np.exp(2 * (np.clip(old_log_std, *LOG_STD_RANGE) - bounded)) + shift * shift
        log_std_delta += scale * (np.float32(1.0) - spread).sum(0)
    log_std_delta *= bounded == log_std
    entropy = float((bounded + np.float32(0.5) + _HALF_LOG_2PI).sum())
    return (loss, entropy, kl, clip_fraction), delta, log_std_delta


def _log_softmax(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p and p, [A, B] each, in memory in that order."""
    logits = np.ascontiguousarray(logits)
    shifted = logits - np.maximum.reduce(logits)
    p = np.exp(shifted)
    total = np.add.reduce(p)
    p /= total
    shifted -= np.log(total)
    return shifted, p


# np.mean and np.clip spend more in Python than on a minibatch.


def _mean(x: np.ndarray) -> float:
    return float(np.add.reduce(x)) / len(x)


def _clip(x: np.ndarray, low: np.float32, high: np.float32) -> np.ndarray:
    clipped = np.maximum(x, low)
    return np.minimum(clipped, high, out=clipped)
