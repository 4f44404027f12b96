"""Agents as one: what is where in a joint observation, and what happens to agents that leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlcore.env import MultiAgentVectorEnv
from rlcore.env.base import Step
from rlcore.env.joint import JointVectorEnv
from rlcore.errors import EnvironmentFailure, UnsupportedError
from tests.envs import RelayEnv
from tests.multi_agent_envs import CountdownGame, MatchingGame


def joint(make: Callable[[], Any], mapping: Callable[[str], str], num_envs: int = 1, **options: Any) -> JointVectorEnv:
    return JointVectorEnv(MultiAgentVectorEnv(make, num_envs, mapping), with_state=options.get("with_state", False))


def step(env: JointVectorEnv, *actions: float) -> Step:
    columns = sum(group.size * group.action_columns for group in env.layout.groups)
    row = np.zeros((env.num_envs, columns), np.float32)
    row[:, : len(actions)] = actions
    return env.step(row)


def test_agents_lie_side_by_side_policy_by_policy() -> None:
    env = joint(RelayEnv, lambda agent: "boss" if agent == "boss" else "team", num_envs=2)
    team, boss = env.layout.groups
    assert (team.agents, team.observation_size, team.action_columns, team.mask_columns) == (("a", "b"), 2, 1, 5)
    assert (boss.agents, boss.observation_size, boss.action_columns, boss.mask_columns) == (("boss",), 3, 2, 0)
    observations, mask = env.reset(0)
    assert mask is None
    assert observations.shape == (2, 7) == (2, env.observation_space.shape[0])
    draws = observations[:, 0]
    assert observations.tolist() == [[d, 0, d, 0, d, 0, 7] for d in draws.tolist()]
    assert isinstance(env.action_space, gym.spaces.Tuple)
    assert len(env.action_space) == 3


def test_actions_reach_their_agents_decoded() -> None:
    made: list[RelayEnv] = []

    def make() -> RelayEnv:
        made.append(RelayEnv())
        return made[-1]

    env = joint(make, lambda agent: "boss" if agent == "boss" else "team")
    env.reset(0)
    step(env, 0, 3, 5, 0.5)
    received = made[0].received[0]
    assert (received["a"], received["b"]) == (1, 4)
    assert received["boss"].tolist() == [1, 0.5]


def test_an_agent_that_leaves_is_zeros_and_goes_on_no_more() -> None:
    env = joint(RelayEnv, lambda agent: "boss" if agent == "boss" else "team")
    env.reset(0)
    steps = []
    for _ in range(6):
        found = step(env)
        assert found.agents is not None
        steps.append((found.agents.acted[0].tolist(), found.agents.goes_on[0].tolist(), found.valid.item()))
        ended = (found.terminated.item(), found.truncated.item())
        assert ended == ((True, False) if len(steps) == 4 else (False, False))
    # "a" leaves at timestep 2, "b" at 3, "boss" at 4; then the environment is reset.
    assert steps == [
        ([True, True, True], [True, True, True], True),
        ([True, True, True], [False, True, True], True),
        ([False, True, True], [False, False, True], True),
        ([False, False, True], [False, False, False], True),
        ([False, False, False], [True, True, True], False),
        ([True, True, True], [True, True, True], True),
    ]


def test_observations_of_who_is_gone_are_zeros() -> None:
    env = joint(RelayEnv, lambda agent: "boss" if agent == "boss" else "team")
    env.reset(0)
    step(env)
    seen = step(env).observations[0]
    assert seen[:2].tolist() == [0, 0]
    assert seen[3] == 2


def test_the_reward_is_the_mean_and_each_agents_own_is_beside_it() -> None:
    env = joint(lambda: RelayEnv(("a", "b")), lambda _: "team")
    env.reset(0)
    step(env)
    step(env)
    found = step(env)
    assert found.agents is not None
    assert found.agents.rewards.tolist() == [[0, 3]]
    assert found.rewards.tolist() == [1.5]


def test_a_cut_off_goes_on_at_the_last_observation() -> None:
    env = joint(MatchingGame, lambda _: "x")
    env.reset(0)
    found = [step(env) for _ in range(6)][-1]
    assert found.agents is not None
    assert (found.truncated.item(), found.terminated.item()) == (True, False)
    assert found.agents.goes_on.tolist() == [[True, True]]
    assert np.abs(found.observations).tolist() == [[1, 1]], "the true last observation, not zeros"


def test_the_global_state_comes_last_where_it_is_asked_for_and_there() -> None:
    env = joint(lambda: MatchingGame(state=True), lambda _: "x", with_state=True)
    assert (env.layout.observation_size, env.layout.state_size) == (2, 2)
    seen, _ = env.reset(0)
    assert seen[0].tolist() == [2 * seen[0, 2] - 1, 2 * seen[0, 2] - 1, seen[0, 2], 0]
    assert step(env).observations[0, 3] == 1
    assert joint(lambda: MatchingGame(state=True), lambda _: "x").layout.state_size == 0
    assert joint(MatchingGame, lambda _: "x", with_state=True).layout.state_size == 0


def test_an_environment_that_raises_is_cut_off_and_no_transition() -> None:
    env = joint(RelayEnv, lambda agent: agent, num_envs=2)
    env.reset(0)
    actions = np.zeros((2, 4), np.float32)
    actions[0, 0] = 4
    found = env.step(actions)
    assert found.valid.tolist() == [False, True]
    assert found.truncated.tolist() == [True, False]
    assert step(env).valid.tolist() == [False, True]


def test_who_takes_turns_cannot_act_as_one() -> None:
    with pytest.raises(UnsupportedError, match="take turns"):
        joint(CountdownGame, lambda agent: agent)


class WrongState(MatchingGame):
    """Its state is `found`: an error to raise, or something of another shape than its space."""

    def __init__(self, found: Any) -> None:
        super().__init__(state=True)
        self.found = found

    def state(self) -> np.ndarray:
        if isinstance(self.found, Exception):
            raise self.found
        return np.asarray(self.found)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (ValueError("no state yet"), r"state\(\) of environment 0: ValueError: no state yet"),
        ([1.0], r"it gave shape \[1\], and state_space has \[2\]"),
        (3.0, r"it gave shape \[\], and state_space has \[2\]"),
        (["a", "b"], r"state\(\) of environment 0: ValueError"),
    ],
)
def test_a_state_that_is_none_is_an_error_that_names_it(found: Any, message: str) -> None:
    with pytest.raises(EnvironmentFailure, match=message):
        joint(lambda: WrongState(found), lambda _: "x", with_state=True).reset(0)
