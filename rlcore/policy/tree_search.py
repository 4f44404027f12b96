"""PUCT tree search over many games at once (Silver et al. 2018, "A general reinforcement learning algorithm that
masters chess, shogi, and Go through self-play", Science 362, methods; Silver et al. 2017, Nature 550).

From each root, so many times:

    select:  a = argmax_a Q(s,a) + C(s) P(s,a) sqrt(N(s)) / (1 + N(s,a)),  C(s) = log((N(s) + c_base) / c_base) + c_init
    expand:  P(s',.), v = network(s'), or v = the outcome where the game is over
    back up: N(s,a) += 1, W(s,a) += v as the player who moves at s sees it, Q = W / N     for all (s,a) on the way

N(s) is one for the visit that made s, and one for each that came through it; Q of an action without a visit is 0.
All N games make the same simulation in the same numpy calls, and their new leaves are one call of the network. A game's
nodes are rows of arrays; a row's position is whatever array the rules keep positions in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlcore.env.games import FIRST, Game

Network = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Observations [B, *obs] and legal actions bool [B, A] -> probabilities float32 [B, A], 0 where not legal, and values
float32 [B] in -1..1 for the player to move."""


@dataclass(frozen=True)
class SearchSettings:
    """How much is searched, and how widely.

    Attributes:
        simulations: from each root.
        c_init: weight of the network's probabilities against what was found.
        c_base: visits after which that weight begins to grow.
        noise_fraction: share of the root's probabilities that noise takes, where there is noise.
    """

    simulations: int
    c_init: float = 1.25
    c_base: float = 19_652.0
    noise_fraction: float = 0.25


class Found(NamedTuple):
    """What a search says of its N roots."""

    visits: np.ndarray  # float32 [N, A], N(s, a); a row's sum is the number of simulations
    action_values: np.ndarray  # float32 [N, A], Q(s, a) for the player to move; 0 where never visited
    priors: np.ndarray  # float32 [N, A], P(s, a) with the noise in it

    @property
    def values(self) -> np.ndarray:
        """float32 [N]: the mean of all simulations, for the player to move."""
        mean: np.ndarray = (self.visits * self.action_values).sum(axis=1) / self.visits.sum(axis=1)
        return mean


class _Edges(NamedTuple):
    """One level of the way down: the trees that went as deep, their nodes there, and the actions chosen."""

    trees: np.ndarray
    nodes: np.ndarray
    actions: np.ndarray


class _Ways(NamedTuple):
    """Every tree's way from its root: all edges by level, each tree's last edge, and the node it leads to or -1."""

    levels: list[_Edges]
    nodes: np.ndarray
    actions: np.ndarray
    ends: np.ndarray


def search(
    game: Game, network: Network, roots: np.ndarray, settings: SearchSettings, noise: np.ndarray | None = None
) -> Found:
    """Searches from N positions that are not over.

    Args:
        game: the rules.
        network: see `Network`; called once for the roots, and once a simulation for all new leaves.
        roots: [N, ...].
        settings: see there.
        noise: float32 [N, A], positive, to be mixed into the roots' probabilities (each row is normalised over the
            legal actions: of Gamma(alpha) numbers this makes Dirichlet(alpha) noise); None: none.
    """
    forest = _Forest(game, network, roots, settings)
    if noise is not None:
        forest.disturb(noise, settings.noise_fraction)
    for simulation in range(1, settings.simulations + 1):
        ways = forest.descend()
        forest.back_up(ways, forest.grow(ways, simulation))
    return forest.found()


class _Forest:
    """N trees of the same capacity. Node k of tree n is row n * capacity + k; node 0 is the root."""

    def __init__(self, game: Game, network: Network, roots: np.ndarray, settings: SearchSettings) -> None:
        self._game, self._network, self._settings = game, network, settings
        self._trees = len(roots)
        nodes = self._trees * (settings.simulations + 1)
        self._roots = np.arange(self._trees) * (settings.simulations + 1)
        shape = (nodes, game.num_actions)
        self._positions = np.empty((nodes, *roots.shape[1:]), roots.dtype)
        self._children = np.full(shape, -1, np.int64)
        self._priors = np.zeros(shape, np.float32)
        self._visits = np.zeros(shape, np.float32)
        # W(s, a); what is not legal starts with minus infinity, and so never is the best.
        self._totals = np.zeros(shape, np.float32)
        # N(s): the visit that made the node counts too, or the first choice below it would ignore the probabilities.
        self._counts = np.ones(nodes, np.float32)
        # +1 where the first player moves, -1 where the second does: turns values from one's view into the other's.
        self._sides = np.zeros(nodes, np.float32)
        self._over = np.zeros(nodes, np.bool_)
        # What a node is worth to the first player: the outcome of a finished game, else the network's value.
        self._worth = np.zeros(nodes, np.float32)
        self._positions[self._roots] = roots
        self._evaluate(self._roots)

    def disturb(self, noise: np.ndarray, fraction: float) -> None:
        """P(s, a) = (1 - fraction) p_a + fraction eta_a at the roots."""
        eta = np.where(np.isneginf(self._totals[self._roots]), 0.0, np.maximum(noise, 1e-30))
        eta /= eta.sum(axis=1, keepdims=True)
        self._priors[self._roots] = (1.0 - fraction) * self._priors[self._roots] + fraction * eta

    def descend(self) -> _Ways:
        """From each root along the best actions to one that has no node yet, or to the end of the game."""
        trees, nodes = np.arange(self._trees), self._roots
        last_nodes, last_actions, ends = (np.empty(self._trees, np.int64) for _ in range(3))
        levels = []
        while len(trees):
            actions = self._best(nodes)
            children = self._children[nodes, actions]
            levels.append(_Edges(trees, nodes, actions))
            last_nodes[trees], last_actions[trees], ends[trees] = nodes, actions, children
            inner = (children >= 0) & ~self._over[children]
            trees, nodes = trees[inner], children[inner]
        return _Ways(levels, last_nodes, last_actions, ends)

    def grow(self, ways: _Ways, number: int) -> np.ndarray:
        """Gives a node, its tree's `number`th, to last edges that have none; returns the ends' worth, float32 [N]."""
        ends = ways.ends
        lacking = ends < 0
        if lacking.any():
            parents, actions = ways.nodes[lacking], ways.actions[lacking]
            ends[lacking] = nodes = self._roots[lacking] + number
            self._children[parents, actions] = nodes
            played = self._game.play(self._positions[parents], actions)
            self._positions[nodes] = played.positions
            self._over[nodes] = played.over
            self._worth[nodes] = played.outcome * self._sides[parents]
            if not played.over.all():
                self._evaluate(nodes[~played.over])
        return self._worth[ends]

    def back_up(self, ways: _Ways, worth: np.ndarray) -> None:
        """Counts a simulation on all edges of its way; `worth` float32 [N] is the first player's."""
        for trees, nodes, actions in ways.levels:
            self._counts[nodes] += 1.0
            self._visits[nodes, actions] += 1.0
            self._totals[nodes, actions] += worth[trees] * self._sides[nodes]

    def found(self) -> Found:
        """What the roots' edges hold."""
        visits = self._visits[self._roots]
        totals = np.where(visits > 0, self._totals[self._roots], 0.0)
        return Found(visits, totals / np.maximum(visits, 1.0), self._priors[self._roots])

    def _best(self, nodes: np.ndarray) -> np.ndarray:
        """argmax_a of the PUCT score at each node; the first of equals."""
        count, visits = self._counts[nodes], self._visits[nodes]
        base = self._settings.c_base
        weight = (np.log((count + base) / base) + self._settings.c_init) * np.sqrt(count)
        score = self._totals[nodes] / np.maximum(visits, 1.0)
        score += weight[:, None] * self._priors[nodes] / (1.0 + visits)
        best: np.ndarray = score.argmax(axis=1)
        return best

    def _evaluate(self, nodes: np.ndarray) -> None:
        """Asks the network about positions that are not over."""
        positions = self._positions[nodes]
        legal = self._game.legal(positions)
        self._priors[nodes], values = self._network(self._game.observe(positions), legal)
        self._totals[nodes] = np.where(legal, 0.0, -np.inf)
        self._sides[nodes] = np.where(self._game.mover(positions) == FIRST, 1.0, -1.0)
        self._worth[nodes] = values * self._sides[nodes]
