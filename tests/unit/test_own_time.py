"""Turn-based rows become transitions in each agent's own time, whatever the fragments' borders are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.env import MultiAgentVectorEnv
from rlcore.errors import UnsupportedError
from rlcore.evaluation.own_time import OwnTime
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.policy.advantages import generalized_advantages
from rlcore.policy.n_step import n_step_returns
from rlcore.sample_batch import Fragment
from tests.jobs import make_evaluator_config
from tests.multi_agent_envs import CountdownGame
from tests.runs import assert_equal_trees

Transition = tuple[float, float, float, bool, bool]


def raw_fragment(events: list[list[str]], first_row: int = 0) -> Fragment:
    """Rows of one slot a column: "m" its move, "-" another's, "t"/"c" an end without a move, "T"/"C" one by its move.

    Observations, actions and extras hold the number of their row; a row pays its number plus one.
    """
    table = np.array(events)
    length, slots = table.shape
    numbers = np.arange(first_row, first_row + length + 1, dtype=np.float32)
    column = np.repeat(numbers[:, None], slots, axis=1)
    return Fragment(
        observations=column[..., None],
        actions=column[:-1].astype(np.int64),
        rewards=column[:-1] + 1,
        terminated=np.isin(table, ["t", "T"]),
        truncated=np.isin(table, ["c", "C"]),
        valid=np.isin(table, ["m", "T", "C"]),
        extras={"row": column[:-1]},
    )


def transitions(fragment: Fragment) -> list[list[Transition]]:
    """Of each slot: (observation, what follows it, reward, terminated, truncated), in order."""
    found: list[list[Transition]] = [[] for _ in range(fragment.slots)]
    for t, n in np.argwhere(fragment.valid):
        assert fragment.actions[t, n] == fragment.observations[t, n, 0] == fragment.extras["row"][t, n]
        seen, after = fragment.observations[t, n, 0], fragment.observations[t + 1, n, 0]
        found[n].append((seen, after, fragment.rewards[t, n], fragment.terminated[t, n], fragment.truncated[t, n]))
    return found


def test_a_transition_runs_from_a_turn_to_the_next_or_to_the_end() -> None:
    # Two players; the game ends by the first one's move in row 3, and row 4 is the reset.
    raw = raw_fragment([["m", "-"], ["-", "m"], ["m", "-"], ["T", "t"], ["-", "-"], ["m", "-"], ["-", "m"]])
    own = OwnTime(2).take(raw)
    assert transitions(own) == [
        [(0, 2, 1 + 2, False, False), (2, 3, 3, False, False), (3, 4, 4, True, False)],
        [(1, 4, 2 + 3 + 4, True, False)],
    ]


def test_the_last_turn_waits_for_what_follows_in_the_next_fragment() -> None:
    own_time = OwnTime(1)
    first = own_time.take(raw_fragment([["m"], ["-"], ["m"], ["-"]]))
    assert transitions(first) == [[(0, 2, 3, False, False)]]
    second = own_time.take(raw_fragment([["-"], ["t"], ["-"], ["m"]], first_row=4))
    assert transitions(second) == [[(2, 6, 3 + 4 + 5 + 6, True, False)]]
    assert second.policy_version == 0


def test_rewards_before_the_first_turn_belong_to_no_transition() -> None:
    own = OwnTime(1).take(raw_fragment([["-"], ["-"], ["T"]]))
    assert transitions(own) == [[(2, 3, 3, True, False)]]


def test_new_episodes_everywhere_forget_what_waits() -> None:
    own_time = OwnTime(1)
    own_time.take(raw_fragment([["m"], ["-"]]))
    own_time.forget()
    assert transitions(own_time.take(raw_fragment([["-"], ["m"], ["T"]]))) == [
        [(1, 2, 2, False, False), (2, 3, 3, True, False)]
    ]


EVENTS = st.lists(st.sampled_from(["m", "-", "-", "T", "C", "t", "c"]), min_size=1, max_size=40)


def with_resets(events: list[str]) -> list[str]:
    """Nobody moves or ends in the row after an end, and who has not moved has no end of its own here."""
    rows: list[str] = []
    for event in events:
        moved = "m" in rows[max((i for i, e in enumerate(rows) if e in "tTcC"), default=-1) + 1 :]
        rows.append("-" if event in "tc" and not moved else event)
        if event in "tTcC" and rows[-1] != "-":
            rows.append("-")
    return rows


@settings(max_examples=200, deadline=None)
@given(EVENTS, st.integers(1, 7))
def test_fragments_of_any_length_give_the_same_transitions(events: list[str], length: int) -> None:
    rows = with_resets(events)
    rows += ["-"] * (-len(rows) % length)
    whole = transitions(OwnTime(1).take(raw_fragment([[event] for event in rows])))[0]
    own_time, parts = OwnTime(1), []
    for begin in range(0, len(rows), length):
        part = [[event] for event in rows[begin : begin + length]]
        if begin % 2:
            restored = OwnTime(1)
            restored.set_state(own_time.get_state())
            own_time = restored
        parts += transitions(own_time.take(raw_fragment(part, first_row=begin)))[0]
    assert parts == whole
    moves = [i for i, event in enumerate(rows) if event in "mTC"]
    assert len(whole) in (len(moves), len(moves) - 1), "each move once, but for one that may wait"


def test_advantages_and_n_step_returns_see_through_the_gaps() -> None:
    # Slot 0 moves in every second row, slot 1 in every row: with the same rewards they are the same agent.
    sparse, dense = ["m", "-", "m", "-", "m", "-", "m"], ["m", "m", "m", "m"]
    own = OwnTime(1).take(raw_fragment([[event] for event in sparse]))
    plain = OwnTime(1).take(raw_fragment([[event] for event in dense]))
    rewards = np.array([[1.0], [2.0], [3.0]], np.float32)
    values = np.array([[0.5], [0.4], [0.3], [0.2]], np.float32)
    for fragment in (own, plain):
        assert fragment.valid.tolist() == [[True]] * 3
    ends = (own.terminated, own.truncated, own.valid)
    advantages = generalized_advantages(rewards, values, *ends, gamma=0.9, gae_lambda=0.8)
    delta = [1 + 0.9 * 0.4 - 0.5, 2 + 0.9 * 0.3 - 0.4, 3 + 0.9 * 0.2 - 0.3]
    assert advantages[0, 0] == pytest.approx(delta[0] + 0.72 * (delta[1] + 0.72 * delta[2]))
    steps = n_step_returns(rewards, *ends, gamma=0.5, n=2)
    assert steps.returns[0, 0] == pytest.approx(1 + 0.5 * 2)


def by_the_book(game: CountdownGame) -> dict[str, list[Transition]]:
    """One episode as PettingZoo's documentation plays it: `last()` before each step, None after an end."""
    found: dict[str, list[Transition]] = {agent: [] for agent in game.possible_agents}
    seen: dict[str, float] = {}
    game.reset()
    while game.agents:
        agent = game.agent_selection
        observation, reward, terminated, truncated, _ = game.last()
        if agent in seen:
            found[agent].append((seen.pop(agent), observation[1], reward, terminated, truncated))
        if terminated or truncated:
            game.step(None)
            continue
        seen[agent] = observation[1]
        game.step(0)
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 12), max_size=2),
    st.booleans(),
    st.integers(1, 9),
)
def test_the_adapter_gives_what_the_loop_of_the_documentation_gives(
    script: list[str], leaving: dict[str, int], truncate: bool, length: int
) -> None:
    def make() -> CountdownGame:
        return CountdownGame(tuple(script), leaving, truncate)

    expected = by_the_book(make())
    env = MultiAgentVectorEnv(make, 2, lambda agent: agent)
    observed = {key: pair[0].copy() for key, pair in env.reset(0).items()}
    own_times = {key: OwnTime(2) for key in env.policies}
    found: dict[str, list[Transition]] = {key: [] for key in env.policies}
    actions = {key: slots.actions.zeros(2) for key, slots in env.policies.items()}
    for _ in range(-(-40 // length)):
        steps = []
        for _ in range(length):
            steps.append({key: [part.copy() for part in step[:5]] for key, step in env.step(actions).items()})  # type: ignore[union-attr]
        for key, own_time in own_times.items():
            columns = [np.stack([step[key][part] for step in steps]) for part in range(5)]
            observations = np.concatenate([observed[key][None], columns[0]])
            observed[key] = columns[0][-1]
            raw = Fragment(observations, np.zeros((length, 2), np.int64), *columns[1:])
            own = own_time.take(raw)
            for t in np.flatnonzero(own.valid[:, 1]):
                seen, after = own.observations[t, 1, 1], own.observations[t + 1, 1, 1]
                ends = own.terminated[t, 1], own.truncated[t, 1]
                found[key].append((seen, after, own.rewards[t, 1], *ends))
    for agent, once in expected.items():
        # All episodes are alike, and the first ones are complete.
        assert found[agent][: len(once)] == once
        assert len(found[agent]) >= len(once)


def game_config(**changes: Any) -> Any:
    return make_evaluator_config(
        environment={"id": "tests.multi_agent_envs:CountdownGame", "kwargs": {"script": ["a", "b", "a", "b", "b"]}},
        multiAgent={"policies": {"a": {}, "b": {}}},
        **changes,
    )


@pytest.mark.parametrize("mode", ["truncate", "completeEpisodes"])
def test_an_evaluator_counts_whole_returns_and_own_turns(mode: str) -> None:
    config = {"trainBatchSize": 64, "minibatchSize": 32, "batchMode": mode}
    evaluator = PolicyEvaluator(game_config(config=config))
    batches = [evaluator.sample() for _ in range(3)]
    played = evaluator._counters.episodes
    assert {(episode.episode_return, episode.length) for episode in played["a"]} == {(1 + 10 + 1 + 20, 2)}
    assert {(episode.episode_return, episode.length) for episode in played["b"]} == {(1 + 10 + 1 + 1, 3)}
    rows = batches[-1].policy_batches["a"]
    assert set(rows["observations"][:, 1]) == {0, 2}, "what it sees when it is its turn, and nothing else"
    if mode == "truncate":
        assert batches[0].count == 4 * 14, "moves of four games in 16 steps, of which two are resets"


def test_evaluation_counts_them_too() -> None:
    evaluator = PolicyEvaluator(game_config())
    assert [episode.episode_return for episode in evaluator.evaluate(5, seed=1)] == [32.0] * 5


def test_saved_sampling_goes_on_with_the_waiting_turns() -> None:
    config = game_config(config={"trainBatchSize": 28, "minibatchSize": 28})
    evaluator, twin = PolicyEvaluator(config), PolicyEvaluator(config)
    evaluator.sample()
    state = evaluator.tracks["a"].get_state()
    assert state["own_time"]["waiting"].any()
    twin.tracks["a"].set_state(state)
    assert_equal_trees(twin.tracks["a"].get_state(), state)


def test_recurrent_policies_cannot_take_turns() -> None:
    from rlcore.driver.build import probe_spaces

    with pytest.raises(UnsupportedError, match="take turns"):
        probe_spaces(game_config(model={"lstmSize": 8}))
