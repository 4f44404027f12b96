"""Board games: rules, symmetries, and games as environments."""

import gymnasium as gym
import numpy as np
import pytest

from rlcore.api import EnvironmentSpec
from rlcore.env.factory import load_game, make_vector_env
from rlcore.env.games import GameEnv, GameVectorEnv, register_games
from rlcore.env.games.connect_four import ConnectFour
from rlcore.env.games.tic_tac_toe import TicTacToe
from rlcore.errors import EnvironmentFailure, UnsupportedError
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from tests.board_games import Nim
from tests.jobs import make_evaluator_config, pools

BOARDS = {
    "tic-tac-toe": TicTacToe(),
    "connect-four": ConnectFour(),
    "4 x 5": ConnectFour(rows=4, columns=5),
    "7 x 8": ConnectFour(rows=7, columns=8),
}


def play_line(game, actions):
    """The position after these actions, whether it is over, and the outcome of the last."""
    positions, over, outcome = game.initial(1), np.array([False]), np.array([0.0])
    for action in actions:
        assert not over[0]
        positions, over, outcome = game.play(positions, np.array([action]))
    return positions, bool(over[0]), float(outcome[0])


@pytest.mark.parametrize(
    ("actions", "over", "outcome"),
    [
        ([0, 3, 1, 4, 2], True, 1.0),  # a row
        ([0, 1, 3, 4, 6], True, 1.0),  # a column
        ([2, 1, 4, 3, 6], True, 1.0),  # a diagonal
        ([0, 2, 1, 4, 8, 6], True, 1.0),  # the second player's
        ([0, 1, 2, 4, 3, 5, 7, 6, 8], True, 0.0),  # a full board
        ([0, 1, 2, 4, 3, 5, 7, 6], False, 0.0),
    ],
)
def test_tic_tac_toe_ends_with_three_in_a_row_or_a_full_board(actions, over, outcome):
    assert play_line(TicTacToe(), actions)[1:] == (over, outcome)


def test_the_last_stone_can_win_on_a_full_board():
    assert play_line(TicTacToe(), [0, 1, 2, 3, 5, 6, 4, 7, 8])[1:] == (True, 1.0)


@pytest.mark.parametrize(
    ("actions", "over"),
    [
        ([3, 0, 3, 0, 3, 0, 3], True),  # up
        ([0, 0, 1, 1, 2, 2, 3], True),  # across
        ([0, 1, 1, 2, 2, 3, 2, 3, 3, 6, 3], True),  # rising
        ([6, 5, 5, 4, 4, 3, 4, 3, 3, 0, 3], True),  # falling
        ([5, 0, 6, 0, 4, 0], False),  # three at the edge do not go on in the next row
    ],
)
def test_connect_four_ends_with_four_in_a_line(actions, over):
    assert play_line(ConnectFour(), actions)[1:] == (over, float(over))


def naive_winner(board, length):
    """Whether a bool board [rows, columns] has a line, field by field."""
    rows, columns = board.shape
    for row in range(rows):
        for column in range(columns):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                fields = [(row + i * down, column + i * right) for i in range(length)]
                if all(0 <= r < rows and 0 <= c < columns and board[r, c] for r, c in fields):
                    return True
    return False


@pytest.mark.parametrize("name", BOARDS)
def test_bit_boards_agree_with_a_look_at_every_field_in_random_games(name):
    game, rng = BOARDS[name], np.random.default_rng(0)
    drops = isinstance(game, ConnectFour)
    for _ in range(60):
        positions = game.initial(1)
        board = np.zeros((2, *game.observation_space.shape[1:]), bool)  # the first player's stones, the second's
        for ply in range(board[0].size):
            legal = game.legal(positions)[0]
            taken = board.any(axis=0)
            assert np.array_equal(legal, ~taken[0] if drops else ~taken.reshape(-1))
            action = rng.choice(np.flatnonzero(legal))
            row = np.flatnonzero(~taken[:, action]).max() if drops else action // 3
            board[ply % 2, row, action if drops else action % 3] = True
            positions, over, outcome = game.play(positions, np.array([action]))
            assert game.mover(positions)[0] == (ply + 1) % 2
            assert np.array_equal(game.observe(positions)[0], board[[(ply + 1) % 2, ply % 2]])
            won = naive_winner(board[ply % 2], 4 if drops else 3)
            assert outcome[0] == won
            assert over[0] == (won or board.any(axis=0).all())
            if over[0]:
                break


@pytest.mark.parametrize("name", BOARDS)
def test_a_mirrored_game_has_mirrored_observations_and_the_same_end(name):
    game, rng = BOARDS[name], np.random.default_rng(1)
    assert len(game.symmetries) == (7 if name == "tic-tac-toe" else 1)
    for symmetry in game.symmetries:
        # Entry i of a mirrored policy is entry action[i] of the first: action a is mirrored to where a is.
        mirrored_action = np.argsort(symmetry.action)
        first, second, over = game.initial(1), game.initial(1), [False]
        while not over[0]:
            action = rng.choice(np.flatnonzero(game.legal(first)[0]))
            first, over, outcome = game.play(first, np.array([action]))
            second, also_over, same_outcome = game.play(second, mirrored_action[[action]])
            observation = game.observe(first)[0]
            expected = observation.reshape(-1)[symmetry.observation].reshape(observation.shape)
            assert np.array_equal(game.observe(second)[0], expected)
            assert np.array_equal(game.legal(second)[0], game.legal(first)[0][symmetry.action])
            assert (over, outcome) == (also_over, same_outcome)


def test_boards_print_as_people_know_them():
    assert TicTacToe().text(play_line(TicTacToe(), [4, 0])[0][0]) == "O 1 2\n3 X 5\n6 7 8"
    text = ConnectFour(rows=4, columns=4).text(play_line(ConnectFour(rows=4, columns=4), [1, 1, 3])[0][0])
    assert text == ". . . .\n. . . .\n. O . .\n. X . X\n0 1 2 3"


def test_a_board_that_fits_no_line_or_no_64_bits_is_refused():
    for rows, columns in ((3, 3), (8, 8), (0, 4)):
        with pytest.raises(EnvironmentFailure, match=f"{rows} rows and {columns} columns"):
            ConnectFour(rows=rows, columns=columns)


# as environments --------------------


def test_with_both_seats_every_step_is_a_move_and_the_end_pays_the_first_players_outcome():
    env = GameVectorEnv(Nim(stones=3), 2, seats="both")
    _, mask = env.reset(0)
    assert mask.all()
    step = env.step(np.array([2, 0]))  # all three stones; one
    assert step.rewards.tolist() == [1.0, 0.0]
    assert step.terminated.tolist() == [True, False]
    assert step.action_mask.tolist() == [[True] * 3, [True, True, False]]
    step = env.step(np.array([0, 1]))  # begins anew; the second player takes the last two
    assert step.valid.tolist() == [False, True]
    assert step.rewards.tolist() == [0.0, -1.0]
    assert step.terminated.tolist() == [False, True]
    assert env.moves.tolist() == [0, 2]


def test_an_illegal_action_is_an_error_that_shows_the_position():
    env = GameVectorEnv(TicTacToe(), 2, seats="both")
    env.reset(0)
    env.step(np.array([4, 0]))
    with pytest.raises(ValueError, match=r"action 0 is not legal; legal: \[1, 2, 3, 4, 5, 6, 7, 8\] in\nX 1 2"):
        env.step(np.array([0, 0]))
    with pytest.raises(ValueError, match="action 9 is not legal"):
        env.step(np.array([9, 1]))


def play_out(env, steps, choose=lambda mask: mask.argmax(axis=1)):
    """Observations, rewards and ends of so many steps."""
    _, mask = env.reset(None)
    seen = []
    for _ in range(steps):
        step = env.step(choose(mask))
        seen.append((step.observations.copy(), step.rewards.copy(), step.terminated.copy(), step.valid.copy()))
        mask = step.action_mask
    return seen


def test_with_one_seat_a_random_player_answers_and_seats_change_from_game_to_game():
    env = GameVectorEnv(TicTacToe(), 4, seats="one")
    env.reset(0)
    assert env.seat.tolist() == [0, 1, 0, 1]
    assert env.moves.tolist() == [0, 1, 0, 1]  # the random player opened where it is first
    seats, rewards, rng = [], [], np.random.default_rng(0)
    mask = env.game.legal(env.positions)
    for _ in range(120):
        before, playing = env.seat.copy(), ~env.done
        step = env.step((mask * rng.random(mask.shape)).argmax(axis=1))
        assert (env.done | (env.game.mover(env.positions) == env.seat)).all()
        seats += before[step.terminated & playing].tolist()
        rewards += step.rewards[step.terminated].tolist()
        mask = step.action_mask
    assert abs(np.mean(seats) - 0.5) < 0.15
    assert set(rewards) == {-1.0, 0.0, 1.0}


def test_the_seed_decides_what_the_random_player_does():
    def run(seed, worker_index=0):
        env = GameVectorEnv(ConnectFour(), 3, seats="one", worker_index=worker_index)
        env.reset(seed)
        return play_out(env, 40)

    def same(one, other):
        return all(np.array_equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))

    assert same(run(1), run(1))
    assert not same(run(1), run(2))
    assert not same(run(1), run(1, worker_index=1))


def test_a_games_state_is_all_that_it_takes_to_go_on():
    first, second = (GameVectorEnv(ConnectFour(), 3, seats="one") for _ in range(2))
    first.reset(3)
    for _ in range(9):
        step = first.step(first.game.legal(first.positions).argmax(axis=1))
    second.set_state(first.get_state())
    for _ in range(20):
        actions = step.action_mask.argmax(axis=1)
        step, other = first.step(actions), second.step(actions)
        assert all(np.array_equal(a, b) for a, b in zip(step, other, strict=True))


def test_a_time_limit_truncates_a_game():
    env = make_vector_env(EnvironmentSpec(id="rlcore/TicTacToe-v0", max_episode_steps=2), 1, seats="both")
    env.reset(0)
    assert not env.step(np.array([0])).truncated[0]
    step = env.step(np.array([1]))
    assert (step.truncated[0], step.terminated[0], step.rewards[0]) == (True, False, 0.0)
    assert not env.step(np.array([0])).valid[0]


def test_gymnasium_knows_the_games_by_id():
    from gymnasium.utils.env_checker import check_env

    register_games()
    env = gym.make("rlcore/ConnectFour-v0", rows=4, columns=5, render_mode="ansi")
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    assert env.render().splitlines()[-1] == "0 1 2 3 4"
    with pytest.raises(ValueError, match="action 7 is not legal"):
        env.unwrapped.step(7)


@pytest.mark.parametrize("vectorization", ["auto", "sync"])
@pytest.mark.parametrize("env_id", ["rlcore/TicTacToe-v0", "tests.board_games:Nim"])
def test_any_algorithm_plays_one_seat_with_the_mask(env_id, vectorization):
    environment = {"id": env_id, "vectorization": vectorization, "maxFailures": 0}
    config = make_evaluator_config(environment=environment, evaluators=pools(0, envs=4))
    evaluator = PolicyEvaluator(config)
    batch = evaluator.sample().policy_batches["default"]
    assert not batch["action_mask"].all()
    assert evaluator.failures_total == 0


def test_an_unknown_game_names_the_nearest():
    with pytest.raises(EnvironmentFailure) as caught:
        make_vector_env(EnvironmentSpec(id="rlcore/ConnectFor-v0"), 1)
    assert "rlcore/ConnectFour-v0" in str(caught.value)


@pytest.mark.parametrize(
    ("env_id", "what"),
    [
        ("CartPole-v1", "not a game"),
        ("tests.jobs:CountingEnv", "is a CountingEnv, not a game"),
        ("tests.board_games:InPlaceNim", "play changed the positions"),
        ("tests.board_games:NumberedNim", r"legal gave int64\[2, 3\] for 2 positions, not bool\[2, 3\]"),
        ("tests.board_games:RaisingNim", "raised RuntimeError: the board fell off the table"),
        ("tests.board_games:StuckNim", "not over allows no action"),
        ("tests.board_games:ImpatientNim", r"outcome \[1.0, 1.0\] where over is \[False, False\]"),
        ("tests.board_games:LoneNim", r"over of shape \[1\] for 2 positions"),
        ("tests.board_games:TrapdoorNim", "raised RuntimeError: the board fell off the table"),
        ("tests.board_games:Chess", "has no callable 'Chess'"),
    ],
)
def test_what_is_no_sound_game_cannot_be_searched(env_id, what):
    with pytest.raises(EnvironmentFailure, match=what):
        load_game(EnvironmentSpec(id=env_id))


def test_games_that_are_searched_step_as_one_array():
    with pytest.raises(UnsupportedError, match="subprocess does not fit"):
        load_game(EnvironmentSpec(id="rlcore/TicTacToe-v0", vectorization="subprocess"))


def test_games_have_no_wrappers():
    with pytest.raises(UnsupportedError, match="wrappers: atari does not fit games"):
        load_game(EnvironmentSpec(id="rlcore/TicTacToe-v0", wrappers="atari"))


def test_wrong_arguments_of_a_game_are_the_users_mistake():
    with pytest.raises(EnvironmentFailure, match=r"with kwargs \{'width': 3\}"):
        load_game(EnvironmentSpec(id="rlcore/ConnectFour-v0", kwargs={"width": 3}))


def test_a_finished_game_env_wants_a_reset():
    env = GameEnv(Nim(stones=1))
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(ValueError, match="the game is over"):
        env.step(0)
