"""V-trace: value targets and policy-gradient advantages from samples of an older policy.

Source: Espeholt et al. 2018, arXiv 1802.01561, equation 1 and section 4.2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class VTrace(NamedTuple):
    """What `vtrace` gives, each [T, S].

    Attributes:
        targets: v_s of equation 1, what values are regressed on; `values` themselves where the row is no transition.
        advantages: r_s + gamma v_(s+1) - V(x_s), not yet weighted by rho; 0 where the row is no transition.
        rhos: clipped importance weights min(rho_clip, pi / mu).
    """

    targets: Tensor
    advantages: Tensor
    rhos: Tensor


def vtrace(
    log_ratios: Tensor,
    rewards: Tensor,
    values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor,
    *,
    gamma: float,
    trace_lambda: float,
    rho_clip: float,
    trace_clip: float,
) -> VTrace:
    """V-trace on time-major sequences whose last row is no transition.

    The value after row t is `values[t + 1]`: under next-step autoreset row t + 1 of a truncated step shows its true
    last observation, and the last row of a sequence shows what came after it. A terminated step has no value after it.
    A row that is no transition has its plain value as target, so nothing is carried over the end of an episode.

    Args:
        log_ratios: log pi(a|x) - log mu(a|x), [T, S].
        rewards: [T, S].
        values: V(x) under the current parameters, [T, S].
        terminated: bool [T, S].
        truncated: bool [T, S].
        valid: bool [T, S], False in the last row.
        gamma: discount, 0..1.
        trace_lambda: lambda of the paper's remark 2, 0..1.
        rho_clip: the paper's rho-bar.
        trace_clip: the paper's c-bar.
    """
    with torch.no_grad():
        ratios = log_ratios.exp()
        rhos = ratios.clamp(max=rho_clip)
        real = valid.to(values.dtype)
        discounts = gamma * (~terminated).to(values.dtype)
        after = torch.cat([values[1:], torch.zeros_like(values[:1])])
        deltas = rhos * (rewards + discounts * after - values) * real
        goes_on = (valid & ~(terminated | truncated)).to(values.dtype)
        decays = gamma * trace_lambda * ratios.clamp(max=trace_clip) * goes_on
        corrections = torch.zeros_like(values)
        carry = torch.zeros_like(values[0])
        for t in range(len(values) - 1, -1, -1):
            carry = deltas[t] + decays[t] * carry
            corrections[t] = carry
        targets = values + corrections
        targets_after = torch.cat([targets[1:], torch.zeros_like(values[:1])])
        # What comes after a truncation is its value, never another episode's target.
        targets_after = torch.where(truncated, after, targets_after)
        advantages = (rewards + discounts * targets_after - values) * real
    return VTrace(targets, advantages, rhos)
