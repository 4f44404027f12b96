"""Turn-based environments: whose turn is a valid row, who is paid when, and what breaks the protocol."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcore.api import EnvironmentSpec
from rlcore.env import MultiAgentVectorEnv
from rlcore.env.base import Step
from rlcore.errors import EnvironmentFailure
from tests.multi_agent_envs import CountdownGame


def own(agent: str) -> str:
    return agent


def play(env: MultiAgentVectorEnv, steps: int) -> dict[str, list[Step]]:
    """Copies of steps with action 0 everywhere."""
    found: dict[str, list[Step]] = {key: [] for key in env.policies}
    for _ in range(steps):
        actions = {key: slots.actions.zeros(slots.num_slots) for key, slots in env.policies.items()}
        for key, step in env.step(actions).items():
            found[key].append(Step(*(None if part is None else part.copy() for part in step[:6])))
    return found


def column(steps: list[Step], name: str) -> list[Any]:
    return [getattr(step, name)[0].item() for step in steps]


def test_only_the_mover_has_a_valid_row_and_rewards_come_before_the_next_own_turn() -> None:
    env = MultiAgentVectorEnv(CountdownGame, 1, own)
    assert env.turn_based
    env.reset(0)
    steps = play(env, 6)
    # Moves a b a b, then a reset, then a again.
    assert column(steps["a"], "valid") == [True, False, True, False, False, True]
    assert column(steps["b"], "valid") == [False, True, False, True, False, False]
    assert column(steps["a"], "rewards") == [0, 11, 0, 11, 0, 0], "own 1 and 10 of the other's move"
    # What b has before its first turn is of no action of its own; own_time leaves it out.
    assert column(steps["b"], "rewards") == [10, 0, 11, 1, 0, 10]
    assert column(steps["a"], "terminated") == column(steps["b"], "terminated") == [False] * 3 + [True, False, False]
    assert steps["a"][1].observations[0].tolist() == [0, 2], "what it is to move on"
    assert steps["a"][3].observations[0].tolist() == [0, 4], "its last observation"
    assert env.env_steps == 1


def test_an_agent_that_ends_early_is_out_while_the_others_go_on() -> None:
    env = MultiAgentVectorEnv(lambda: CountdownGame(("a", "b", "a", "a"), leaving={"b": 2}), 1, own)
    env.reset(0)
    steps = play(env, 5)
    assert column(steps["b"], "terminated") == [False, True, False, False, False]
    assert column(steps["b"], "rewards")[1] == 1
    assert column(steps["a"], "valid") == [True, False, True, True, False]
    assert column(steps["a"], "terminated") == [False, False, False, True, False]


def test_truncation_is_not_termination() -> None:
    env = MultiAgentVectorEnv(lambda: CountdownGame(truncate=True), 1, own)
    env.reset(0)
    steps = play(env, 4)
    assert column(steps["b"], "truncated") == [False] * 3 + [True]
    assert not any(column(steps["b"], "terminated"))


def test_the_time_limit_cuts_all_agents_off_with_what_they_are_owed() -> None:
    env = MultiAgentVectorEnv(CountdownGame, 1, own, max_episode_steps=3)
    env.reset(0)
    steps = play(env, 4)
    assert column(steps["a"], "truncated") == column(steps["b"], "truncated") == [False, False, True, False]
    assert steps["a"][2].observations[0].tolist() == [0, 3]
    assert not any(column(steps["a"], "terminated"))


@pytest.mark.parametrize("where", ["dict", "info"])
def test_the_movers_mask_comes_with_its_observation(where: str) -> None:
    env = MultiAgentVectorEnv(lambda: CountdownGame(masks=where), 1, own)
    assert env.reset(0)["a"][1] is not None
    assert env.policies["a"].buffers.mask[0].tolist() == [True, False, False]
    play(env, 1)
    assert env.policies["b"].buffers.mask[0].tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("selection", "agent_selection is 'nobody', who is not among env.agents"),
        ("observation", "last\\(\\) gave no observation for agent 'a'"),
        ("stays", "stays in env.agents after its end: step\\(None\\) must remove it"),
    ],
)
def test_what_breaks_the_protocol_is_named(fault: str, said: str) -> None:
    env = MultiAgentVectorEnv(lambda: CountdownGame(fault=fault), 1, own)
    env.reset(0)
    play(env, 4)
    failures = env.drain_failures()
    assert failures
    assert all(np.char.find(str(failure), "ProtocolError") >= 0 for failure in failures)
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(str(failures[0]))


def test_an_agent_that_vanishes_has_come_to_its_end() -> None:
    env = MultiAgentVectorEnv(lambda: CountdownGame(("a", "b", "a", "a"), fault="vanishes"), 1, own)
    env.reset(0)
    steps = play(env, 4)
    assert column(steps["b"], "terminated") == [False, True, False, False]
    assert not env.drain_failures()


def test_pettingzoo_ids_name_modules() -> None:
    pytest.importorskip("pettingzoo")
    env = MultiAgentVectorEnv.make(EnvironmentSpec(id="pettingzoo/classic/tictactoe_v3"), 2, own)
    assert env.turn_based
    env.reset(0)
    assert env.policies["player_1"].buffers.mask.all()
    env.close()
    parallel = MultiAgentVectorEnv.make(EnvironmentSpec(id="mpe2/simple_spread_v3", kwargs={"N": 2}), 1, lambda _: "x")
    assert not parallel.turn_based
    assert parallel.num_slots == {"x": 2}
    assert parallel.state_size == 24
    parallel.close()


@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        ("mpe2/simple_spred_v3", "did you mean mpe2/simple_spread_v3"),
        ("mpe2/simple_spread_v1", "did you mean mpe2/simple_spread_v3"),
        ("pettingzoo/clasic/tictactoe_v3", "there is no pettingzoo/clasic"),
        ("nosuchpackage/thing_v1", "there is no package 'nosuchpackage' here\n  -> pip install nosuchpackage"),
    ],
)
def test_an_unknown_pettingzoo_id_is_explained(env_id: str, said: str) -> None:
    pytest.importorskip("mpe2")
    with pytest.raises(EnvironmentFailure) as caught:
        MultiAgentVectorEnv.make(EnvironmentSpec(id=env_id), 1, own)
    assert said in str(caught.value)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentFailure, match="rlcore\\[pettingzoo\\]"):
        MultiAgentVectorEnv.make(EnvironmentSpec(id="mpe2/simple_spread_v3"), 1, own)
