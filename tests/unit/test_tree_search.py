"""The tree search: hand-worked positions, a second implementation node by node, and tic-tac-toe against minimax."""

import math
from functools import cache

import numpy as np
import pytest

from rlcore.env.games.connect_four import ConnectFour
from rlcore.env.games.tic_tac_toe import TicTacToe
from rlcore.policy.tree_search import SearchSettings, search
from tests.board_games import Nim


def uniform(observations, legal):
    """A network that knows nothing."""
    return (legal / legal.sum(axis=1, keepdims=True)).astype(np.float32), np.zeros(len(legal), np.float32)


def opinionated(observations, legal):
    """A network with an opinion about everything, the same for the same observation."""
    flat = observations.reshape(len(observations), -1).astype(np.float64)
    weights = np.sin(np.arange(1, flat.shape[1] + 1))
    odds = np.exp(np.sin(3.0 * (flat @ weights)[:, None] + np.arange(legal.shape[1]))) * legal
    values = np.tanh(np.sin(7.0 * flat @ weights))
    return (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32), values.astype(np.float32)


def after(game, actions):
    """The position [1, ...] after these actions."""
    positions = game.initial(1)
    for action in actions:
        positions = game.play(positions, np.array([action])).positions
    return positions


# hand-worked --------------------


def test_visits_add_up_to_the_simulations_and_illegal_actions_have_none():
    game = ConnectFour()
    roots = np.concatenate([game.initial(1), after(game, [3] * 6), after(game, [0, 1] * 3)])
    found = search(game, opinionated, roots, SearchSettings(40))
    assert (found.visits.sum(axis=1) == 40).all()
    assert (found.visits[~game.legal(roots)] == 0).all()
    assert found.visits[1, 3] == 0
    assert np.allclose(found.priors.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("game", "actions", "winning"),
    [
        (TicTacToe(), [0, 3, 1, 4], 2),
        (TicTacToe(), [8, 0, 3, 1, 5], 2),  # the second player's
        (ConnectFour(), [3, 0, 3, 0, 3, 0], 3),
        (ConnectFour(), [0, 3, 1, 3, 0, 3, 0], 3),
    ],
)
def test_a_game_won_in_one_is_won_with_a_network_that_knows_nothing(game, actions, winning):
    found = search(game, uniform, after(game, actions), SearchSettings(60))
    assert found.visits[0].argmax() == winning
    assert found.action_values[0, winning] == 1.0
    assert found.values[0] > 0.5


@pytest.mark.parametrize(
    ("game", "actions", "only"),
    [(TicTacToe(), [4, 0, 1], 7), (TicTacToe(), [0, 4, 8, 1], 7), (ConnectFour(), [3, 0, 3, 0, 3], 3)],
)
def test_a_game_lost_in_two_is_not_lost(game, actions, only):
    # All moves but one let the opponent win at once.
    found = search(game, uniform, after(game, actions), SearchSettings(200))
    assert found.visits[0].argmax() == only
    others = [a for a in np.flatnonzero(game.legal(after(game, actions))[0]) if a != only]
    assert (found.action_values[0, others] < found.action_values[0, only]).all()
    assert (found.action_values[0, others] < 0).all()


def test_two_simulations_by_hand():
    # Two stones: the first takes one (then the second wins) or both (and wins). The network gives taking one 0.75,
    # taking both 0.25, and a value of 0.4 to whoever moves at one stone left.
    def network(observations, legal):
        one_left = observations[:, 1] == 1
        priors = np.where(one_left[:, None], [1.0, 0.0, 0.0], [0.75, 0.25, 0.0])
        return priors.astype(np.float32), np.where(one_left, 0.4, 0.0).astype(np.float32)

    game, settings = Nim(stones=2), SearchSettings(2, c_init=1.25, c_base=1e9)
    first = search(game, network, game.initial(1), SearchSettings(1, c_init=1.25, c_base=1e9))
    assert first.visits.tolist() == [[1, 0, 0]]
    # What is good for the second player is bad for the first.
    assert first.action_values[0, 0] == pytest.approx(-0.4)
    # Then 1.25 sqrt(2) 0.75 / 2 - 0.4 = 0.26 for one, 1.25 sqrt(2) 0.25 = 0.44 for both.
    second = search(game, network, game.initial(1), settings)
    assert second.visits.tolist() == [[1, 1, 0]]
    assert second.action_values[0].tolist() == [pytest.approx(-0.4), 1.0, 0.0]
    assert second.values[0] == pytest.approx(0.3)


def test_who_moves_twice_sees_a_value_twice_the_same_way():
    # Two stones, and a single one gives another turn: the first player takes both, one way or the other.
    game = Nim(stones=2, again=True)
    found = search(game, uniform, game.initial(1), SearchSettings(50))
    assert found.action_values[0, 0] > 0.9
    assert found.action_values[0, 1] == 1.0


def test_noise_takes_its_share_of_the_roots_probabilities_over_legal_actions_alone():
    game = ConnectFour()
    roots = after(game, [3] * 6)
    noise = np.array([[1, 2, 3, 100, 0, 0, 4]], np.float32)
    plain = search(game, opinionated, roots, SearchSettings(8)).priors[0]
    noisy = search(game, opinionated, roots, SearchSettings(8, noise_fraction=0.25), noise).priors[0]
    assert noisy == pytest.approx(0.75 * plain + 0.25 * np.array([1, 2, 3, 0, 0, 0, 4]) / 10)


def test_noise_that_underflows_to_nothing_is_no_division_by_zero():
    game = TicTacToe()
    found = search(game, uniform, game.initial(2), SearchSettings(8), np.zeros((2, 9), np.float32))
    assert np.isfinite(found.priors).all()


# a second implementation --------------------


class Node:
    """One node of a search written down straight from the paper, with a position [1, ...]."""

    def __init__(self, game, network, position, over=False, worth=0.0):
        self.game, self.network, self.position, self.over = game, network, position, over
        self.mover = int(game.mover(position)[0])
        self.value = worth
        self.count, self.children, self.edges = 1, {}, {}
        if not over:
            legal = game.legal(position)
            priors, values = network(game.observe(position), legal)
            self.value = float(values[0])
            self.edges = {int(a): [0, 0.0, float(priors[0, a])] for a in np.flatnonzero(legal[0])}

    def simulate(self, settings):
        """One simulation from here; what it found, for the player to move here."""
        if self.over:
            return self.value
        weight = math.log((self.count + settings.c_base) / settings.c_base) + settings.c_init
        weight *= math.sqrt(self.count)
        scores = {a: total / max(1, n) + weight * prior / (1 + n) for a, (n, total, prior) in self.edges.items()}
        action = max(scores, key=scores.__getitem__)
        if action not in self.children:
            played = self.game.play(self.position, np.array([action]))
            child = Node(self.game, self.network, played.positions, bool(played.over[0]))
            if child.over:
                child.value = float(played.outcome[0]) * (1 if child.mover == self.mover else -1)
            self.children[action] = child
            value = child.value
        else:
            child = self.children[action]
            value = child.simulate(settings)
        value = value if child.mover == self.mover else -value
        self.count += 1
        self.edges[action][0] += 1
        self.edges[action][1] += value
        return value


@pytest.mark.parametrize("game", [TicTacToe(), ConnectFour(rows=4, columns=5), Nim(9), Nim(9, again=True)])
def test_a_batch_of_searches_is_the_same_as_each_written_down_node_by_node(game):
    rng, roots = np.random.default_rng(0), []
    for plies in range(4):  # positions of different depth, so that ways through the trees differ
        position = game.initial(1)
        for _ in range(plies):
            moved = game.play(position, rng.choice(np.flatnonzero(game.legal(position)[0]), 1))
            if not moved.over[0]:
                position = moved.positions
        roots.append(position)
    settings = SearchSettings(60, c_base=30.0)
    found = search(game, opinionated, np.concatenate(roots), settings)
    for row, position in enumerate(roots):
        node = Node(game, opinionated, position)
        for _ in range(60):
            node.simulate(settings)
        edges = [node.edges.get(action, (0, 0.0, 0.0)) for action in range(game.num_actions)]
        visits, values = [n for n, _, _ in edges], [total / max(1, n) for n, total, _ in edges]
        assert found.visits[row].tolist() == visits
        assert found.action_values[row] == pytest.approx(values, abs=1e-5)


# against perfect play --------------------


@cache
def minimax(own, other):
    """The outcome of perfect play for whoever moves, from two bit boards; written without the package."""
    lines = (0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100)
    if any(other & line == line for line in lines):
        return -1
    if own | other == 0b111111111:
        return 0
    return max(-minimax(other, own | 1 << field) for field in range(9) if not (own | other) >> field & 1)


def test_minimax_itself_knows_that_tic_tac_toe_is_a_draw():
    assert minimax(0, 0) == 0


@pytest.mark.parametrize("seat", [0, 1])
def test_enough_simulations_never_lose_to_anyone_not_even_to_perfect_play(seat):
    # The search answers every line of play that the other side could choose, the perfect ones among them.
    game, positions, met_perfection = TicTacToe(), TicTacToe().initial(1), False
    for ply in range(9):
        if ply % 2 == seat:
            actions = search(game, uniform, positions, SearchSettings(3000)).visits.argmax(axis=1)
            played = game.play(positions, actions)
            assert (played.outcome >= 0).all()
        else:
            rows, actions = np.nonzero(game.legal(positions))
            played = game.play(positions[rows], actions)
            assert (played.outcome == 0).all(), "the other side won"
            # Whoever plays on perfectly from here may at best draw.
            worth = [minimax(int(p[1]), int(p[0])) for p in played.positions]
            met_perfection |= any(w == 0 for w in worth)
        positions = np.unique(played.positions[~played.over], axis=0)
        if not len(positions):
            break
    assert met_perfection
