"""Q-learning on sequences (Hausknecht & Stone 2015; stored states as in Kapturowski et al. 2019, R2D2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from rlcore.policy.distributions import MASKED_LOGIT
from rlcore.policy.q_network import QNetwork
from rlcore.policy.sequences import bootstrapped_sequences
from rlcore.policy.with_target import WithTarget
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    DISCOUNTS,
    OBSERVATIONS,
    REWARDS,
    STARTS,
    STATE_PREFIX,
    Fragment,
    SampleBatch,
)


def sequences_for_replay(
    fragment: Fragment, *, reward_scale: float, extra: Mapping[str, np.ndarray] | None = None
) -> SampleBatch:
    """Sequences [L + 1, S] with the state they began with; `discounts` is 0 at terminations, and else 1.

    `extra` columns are [T, N, ...].
    """
    columns = {
        OBSERVATIONS: fragment.observations,
        ACTIONS: fragment.actions,
        REWARDS: fragment.rewards * np.float32(reward_scale),
        DISCOUNTS: (~fragment.terminated).astype(np.float32),
        **(extra or {}),
    }
    if fragment.action_mask is not None:
        columns[ACTION_MASK] = fragment.action_mask
    return bootstrapped_sequences(columns, fragment, fragment.state_every)


def unrolled_td_errors(
    model: WithTarget[QNetwork], batch: Mapping[str, Tensor], *, gamma: float, double: bool
) -> tuple[Tensor, Tensor]:
    """TD errors and values of the actions taken, [L + 1, S]; the last row, which only bootstraps, holds zeros.

    Both networks begin with the stored state. The value after step t is row t + 1's: a truncated step's next row is its
    true last observation, still the same episode for the LSTM.
    """
    state = [batch[f"{STATE_PREFIX}_{i}"] for i in range(2)]
    values = model.online.unroll(batch[OBSERVATIONS], state, batch[STARTS])
    with torch.no_grad():
        following = model.target.unroll(batch[OBSERVATIONS], state, batch[STARTS])
        by = values.detach() if double else following
        if ACTION_MASK in batch:
            by = torch.where(batch[ACTION_MASK], by, MASKED_LOGIT)
        bootstrap = following.gather(-1, by.argmax(-1, keepdim=True)).squeeze(-1)[1:]
        targets = batch[REWARDS][:-1] + gamma * batch[DISCOUNTS][:-1] * bootstrap
    taken = values.gather(-1, batch[ACTIONS].unsqueeze(-1)).squeeze(-1)
    td = taken[:-1] - targets
    return torch.cat([td, torch.zeros_like(taken[:1])]), taken
