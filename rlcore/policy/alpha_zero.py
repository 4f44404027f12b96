"""AlphaZero's policy graph (Silver et al. 2018, Science 362; Silver et al. 2017, Nature 550).

    act:   pi(a|s) = N(s,a)^(1/tau) / sum_b N(s,b)^(1/tau), N from a search that is guided by the network (p, v)
    learn: L = (z - v)^2 - sum_a pi_a log p_a + c ||theta||^2

z is the game's outcome for the player who was to move, and pi the search's share of visits (tau = 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rlcore.env.games import FIRST
from rlcore.errors import EnvironmentFailure
from rlcore.policy.action_spaces import require_discrete
from rlcore.policy.actor_critic import ActorCriticPolicyGraph
from rlcore.policy.distributions import MASKED_LOGIT
from rlcore.policy.policy_graph import State
from rlcore.policy.sequences import flatten_rows
from rlcore.policy.torch_policy_graph import Loaded
from rlcore.policy.tree_search import Found, SearchSettings, search
from rlcore.sample_batch import ACTION_MASK, OBSERVATIONS, VALUE_TARGETS, Fragment, SampleBatch

if TYPE_CHECKING:
    from rlcore.env.base import VectorEnv
    from rlcore.env.games import GameVectorEnv

POLICY_TARGETS = "policy_targets"
SIDES = "sides"


class AlphaZeroPolicyGraph(ActorCriticPolicyGraph):
    """A network that guides a tree search, and learns from what the search finds; arguments as TorchPolicyGraph's."""

    stat_names = ("policy_loss", "value_loss", "entropy", "target_entropy")
    plays_both_seats = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = self.config
        self._settings = SearchSettings(
            config.simulations, config.puct_initial, config.puct_base, config.root_noise_fraction
        )
        self._env: VectorEnv | None = None

    @classmethod
    def require_action_space(cls, space: gym.Space[Any], algorithm: str) -> None:
        require_discrete(space, algorithm)

    def enter(self, env: VectorEnv) -> None:
        self._env = env

    # acting --------------------

    def draw_noise(self, length: int, slots: int) -> np.ndarray:
        """float32 [length, slots, A + 1]: Gamma(alpha) numbers for the roots, and a uniform one that draws the move."""
        actions = self.distribution.input_size
        noise = np.empty((length, slots, actions + 1), np.float32)
        noise[..., :actions] = self.rng.standard_gamma(self.config.dirichlet_alpha, (length, slots, actions))
        noise[..., actions] = self.rng.random((length, slots), np.float32)
        return noise

    def act(
        self,
        observations: np.ndarray,
        state: State,
        *,
        noise: np.ndarray | None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, State, dict[str, np.ndarray]]:
        games = self._games()
        slots, actions = len(observations), self.distribution.input_size
        chosen = np.zeros(slots, np.int64)
        shares = np.zeros((slots, actions), np.float32)
        sides = np.zeros(slots, np.float32)
        going = np.flatnonzero(~games.done)
        if len(going):
            positions = games.positions[going]
            found = self.look_ahead(positions, None if noise is None else noise[going, :actions])
            shares[going] = found.visits / found.visits.sum(axis=1, keepdims=True)
            sides[going] = np.where(games.game.mover(positions) == FIRST, 1.0, -1.0)
            chosen[going] = most_visited(found)
            if noise is not None:
                early = games.moves[going] < self.config.temperature_moves
                drawn = draw(found.visits, self.config.temperature, noise[going, actions])
                chosen[going] = np.where(early, drawn, chosen[going])
        return chosen, state, {POLICY_TARGETS: shares, SIDES: sides}

    def look_ahead(self, positions: np.ndarray, noise: np.ndarray | None = None) -> Found:
        """A search from positions [N, ...] that are not over; `noise` as `search` takes it."""
        settings = self._settings
        if noise is None and self.config.evaluation_simulations is not None:
            settings = replace(settings, simulations=self.config.evaluation_simulations)
        return search(self._games().game, self.judge, positions, settings, noise)

    def judge(self, observations: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The network's probabilities float32 [B, A] of legal actions, and its values float32 [B]: p and v."""
        if self.fast is not None:
            flat = observations.reshape(len(observations), -1).astype(np.float32)
            logits, values = self.fast.policy_inputs(flat), self.fast.values(flat)
        else:
            logits, values, _ = self._torch_act(observations, [])
        logits = np.where(legal, logits, np.float32(MASKED_LOGIT))
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True), np.tanh(values)

    def _games(self) -> GameVectorEnv:
        games = None if self._env is None else self._env.simulator
        if games is None:
            raise EnvironmentFailure("AlphaZero acts in games whose rules it can look ahead with, and here are none")
        return games

    # learning --------------------

    def postprocess(self, fragment: Fragment, others: Mapping[str, Fragment] | None = None) -> SampleBatch:
        outcomes, known = outcomes_of(fragment)
        assert fragment.action_mask is not None
        columns = {
            OBSERVATIONS: fragment.observations[:-1],
            ACTION_MASK: fragment.action_mask[:-1],
            POLICY_TARGETS: fragment.extras[POLICY_TARGETS],
            VALUE_TARGETS: outcomes * fragment.extras[SIDES],
        }
        rows = flatten_rows(columns, replace(fragment, valid=known))
        return self._with_mirror_images(rows) if self.config.symmetries else rows

    def _with_mirror_images(self, rows: SampleBatch) -> SampleBatch:
        """The rows, and the same positions in all mirror images that the game has."""
        images = [rows]
        flat = rows[OBSERVATIONS].reshape(rows.size, int(np.prod(self.observation_space.shape)))
        for symmetry in self._games().game.symmetries:
            columns = {
                OBSERVATIONS: flat[:, symmetry.observation].reshape(rows[OBSERVATIONS].shape),
                ACTION_MASK: rows[ACTION_MASK][:, symmetry.action],
                POLICY_TARGETS: rows[POLICY_TARGETS][:, symmetry.action],
            }
            images.append(rows.with_columns(**columns))
        return SampleBatch.concat(images)

    def minibatch_gradient(self, loaded: Loaded, indices: Any) -> np.ndarray | Tensor:
        batch = self.minibatch(loaded, indices)
        self.flat.gradient.zero_()
        logits, values = self.forward(batch)
        loss, stats = self.loss(logits, values, batch)
        loss.backward()
        # The gradient of c ||theta||^2.
        self.flat.gradient.add_(self.flat.vector, alpha=2.0 * self.config.weight_decay)
        return stats

    def loss(self, logits: Tensor, values: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The loss less its L2 part, and its statistics, from logits [B, A] (masked) and values [B] before the tanh."""
        targets, logp = batch[POLICY_TARGETS], functional.log_softmax(logits, -1)
        policy_loss = -(targets * logp).sum(-1).mean()
        value_loss = (batch[VALUE_TARGETS] - torch.tanh(values)).square().mean()
        entropy = -(logp.exp() * logp).sum(-1).mean()
        target_entropy = -torch.special.xlogy(targets, targets).sum(-1).mean()
        loss = policy_loss + self.config.value_loss_coefficient * value_loss
        return loss, torch.stack([policy_loss, value_loss, entropy, target_entropy]).detach()


def most_visited(found: Found) -> np.ndarray:
    """int64 [N]: the most visited action; of equals the one that the network prefers."""
    best: np.ndarray = (found.visits + 0.5 * found.priors).argmax(axis=1)
    return best


def draw(visits: np.ndarray, temperature: float, uniform: np.ndarray) -> np.ndarray:
    """Actions int64 [N] with probability N(s,a)^(1/temperature), by uniform random numbers [N] in 0..1."""
    # Relative to the largest, or a low temperature would overflow.
    weights = (visits / visits.max(axis=1, keepdims=True)) ** (1.0 / temperature)
    sums = np.cumsum(weights, axis=1)
    whole = sums[:, -1:]
    # Up to the first sum beyond the mark; where rounding takes the mark to the end, the last action with a visit.
    drawn: np.ndarray = ((sums > uniform[:, None] * whole) | (sums == whole)).argmax(axis=1)
    return drawn


def outcomes_of(fragment: Fragment) -> tuple[np.ndarray, np.ndarray]:
    """What became of the games in a fragment.

    Returns:
        float32 [T, N]: the outcome for the first player of the game that each move belongs to; and bool [T, N]: the
        move is one, and its game has ended within the fragment.
    """
    outcomes = np.zeros(fragment.rewards.shape, np.float32)
    known = np.zeros(fragment.valid.shape, np.bool_)
    outcome, ended = np.zeros(fragment.slots, np.float32), np.zeros(fragment.slots, np.bool_)
    for t in reversed(range(fragment.length)):
        done = fragment.done[t]
        outcome = np.where(done, fragment.rewards[t], outcome)
        ended = np.where(done, fragment.valid[t], ended)
        outcomes[t], known[t] = outcome, ended & fragment.valid[t]
    return outcomes, known
