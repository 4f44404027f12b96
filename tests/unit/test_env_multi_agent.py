"""Several agents: fixed slots by policy, agents that leave and join, and failures that stay with one environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlcore.api import EnvironmentSpec
from rlcore.env import MultiAgentVectorEnv
from rlcore.env.base import Step
from rlcore.errors import EnvironmentFailure, UnsupportedError
from tests.envs import ObeyingEnv, RelayEnv
from tests.multi_agent_envs import LingeringGame


def mapping(agent: str) -> str:
    return "boss" if agent == "boss" else "team"


def step(env: MultiAgentVectorEnv, **actions: Any) -> dict[str, Step]:
    """One step with action 0 everywhere, but for those given; copies."""
    chosen: dict[str, np.ndarray] = {}
    for policy_id, slots in env.policies.items():
        chosen[policy_id] = slots.actions.zeros(slots.num_slots)
        if policy_id in actions:
            chosen[policy_id][:] = actions[policy_id]
    return {key: Step(*(None if p is None else p.copy() for p in s)) for key, s in env.step(chosen).items()}


def test_each_policy_sees_its_own_spaces_and_slots_environment_by_environment() -> None:
    env = MultiAgentVectorEnv(RelayEnv, 2, mapping)
    assert env.num_slots == {"team": 4, "boss": 2}
    assert env.env_index["team"].tolist() == [0, 0, 1, 1]
    assert env.env_index["boss"].tolist() == [0, 1]
    assert env.spaces["boss"][0].shape == (3,)
    assert env.spaces["team"][1].n == 5
    observed = env.reset(0)
    assert observed["team"][0].shape == (4, 2)
    assert observed["boss"][0][:, 2].tolist() == [7, 7]
    draws = observed["team"][0][:, 0]
    assert draws[0] == draws[1] != draws[2] == draws[3]
    assert observed["team"][1] is None


def test_actions_reach_their_agents_decoded() -> None:
    made: list[RelayEnv] = []

    def make() -> RelayEnv:
        made.append(RelayEnv())
        return made[-1]

    env = MultiAgentVectorEnv(make, 2, mapping)
    env.reset(0)
    step(env, team=[0, 1, 2, 3], boss=[[5, 0.5], [0, -5]])
    first, second = made[0].received[0], made[1].received[0]
    assert (first["a"], first["b"], second["a"], second["b"]) == (1, 2, 3, 4), "Discrete(5, start=1)"
    assert [first["boss"].tolist(), second["boss"].tolist()] == [[1, 0.5], [0, -1]], "clipped"


def test_an_agent_that_ends_rests_until_all_are_gone_and_then_all_begin_anew() -> None:
    env = MultiAgentVectorEnv(RelayEnv, 1, mapping)
    first = env.reset(0)["team"][0].copy()
    steps = [step(env) for _ in range(6)]
    team, boss = [s["team"] for s in steps], [s["boss"] for s in steps]
    # "a" leaves at timestep 2, "b" at 3, "boss" at 4; then the environment is reset.
    assert [row.valid.tolist() for row in team] == [
        [True, True], [True, True], [False, True], [False, False], [False, False], [True, True],
    ]  # fmt: skip
    assert [bool(row.valid[0]) for row in boss] == [True, True, True, True, False, True]
    assert [row.terminated.tolist() for row in team][:4] == [[False, False], [True, False], [False, True], [False] * 2]
    assert [bool(row.terminated[0]) for row in boss] == [False, False, False, True, False, False]
    assert team[1].observations[0].tolist() == [first[0, 0], 2], "the agent's own final observation"
    assert team[3].observations[0].tolist() == [first[0, 0], 2], "and again while it rests"
    assert team[2].rewards.tolist() == [0, 3]
    assert team[4].observations[:, 1].tolist() == [0, 0]
    assert team[4].observations[0, 0] != first[0, 0]


def test_environment_steps_are_counted_without_resets() -> None:
    env = MultiAgentVectorEnv(RelayEnv, 3, mapping)
    env.reset(0)
    counts = []
    for _ in range(6):
        step(env)
        counts.append(env.env_steps)
    assert counts == [3, 3, 3, 3, 0, 3]


def test_an_agent_that_joins_later_begins_with_an_invalid_row() -> None:
    env = MultiAgentVectorEnv(lambda: RelayEnv(("a", "boss"), late=True), 1, mapping)
    assert not env.reset(0)["team"][0][1].any(), "it is not there yet"
    joined, acted = step(env)["team"], step(env)["team"]
    assert joined.valid.tolist() == [True, False]
    assert joined.observations[1, 1] == 1
    assert acted.valid.tolist() == [True, True]


def test_an_agent_that_is_told_of_its_end_again_and_again_does_not_come_back() -> None:
    env = MultiAgentVectorEnv(LingeringGame, 1, lambda agent: "x")
    env.reset(0)
    steps = []
    for _ in range(7):
        found = env.step({"x": np.zeros(2, np.int64)})["x"]
        steps.append((found.valid.tolist(), found.terminated.tolist(), found.truncated.tolist()))
    both, none = [True, True], [False, False]
    assert steps[:2] == [(both, none, none), (both, [False, True], none)]
    assert steps[2:5] == [([True, False], none, none)] * 3
    assert steps[5:] == [([True, False], none, [True, False]), (none, none, none)]


def test_the_time_limit_truncates_all_agents() -> None:
    env = MultiAgentVectorEnv(RelayEnv, 2, mapping, max_episode_steps=1)
    env.reset(0)
    ended = step(env)
    assert ended["team"].truncated.all()
    assert ended["boss"].truncated.all()
    assert not ended["team"].terminated.any()
    assert ended["team"].valid.all()
    assert not step(env)["team"].valid.any()


def test_the_same_seed_gives_the_same_episodes() -> None:
    def play(seed: int) -> list[np.ndarray]:
        env = MultiAgentVectorEnv(RelayEnv, 2, mapping)
        first = env.reset(seed)["team"][0].copy()
        return [first] + [step(env)["team"].observations for _ in range(12)]

    assert all((one == two).all() for one, two in zip(play(3), play(3), strict=True))
    assert (play(3)[0] != play(4)[0]).any()


def test_an_environment_that_raises_truncates_its_agents_and_leaves_the_others_alone() -> None:
    made: list[RelayEnv] = []

    def make() -> RelayEnv:
        made.append(RelayEnv())
        return made[-1]

    env = MultiAgentVectorEnv(make, 2, mapping)
    env.reset(0)
    before = step(env)["team"]
    failed = step(env, team=[4, 0, 0, 0])
    assert failed["team"].valid.tolist() == [False, False, True, True]
    assert failed["team"].truncated.tolist() == [True, True, False, False]
    assert failed["boss"].valid.tolist() == [False, True]
    np.testing.assert_array_equal(failed["team"].observations[:2], before.observations[:2])
    (failure,) = env.drain_failures()
    assert (failure.env_index, failure.phase) == (0, "step")
    assert "ValueError: the relay was dropped" in failure.error
    assert failure.action is not None
    assert "'a': 5" in failure.action
    assert made[0].closed
    assert env.env_steps == 1
    assert step(env)["team"].valid.tolist()[:2] == [False, False]
    assert step(env)["team"].valid.tolist()[:2] == [True, True]


def test_agents_with_different_spaces_cannot_share_a_policy() -> None:
    with pytest.raises(UnsupportedError, match="policy 'all' cannot serve both agents 'a' and 'boss'") as caught:
        MultiAgentVectorEnv(RelayEnv, 1, lambda _: "all")
    assert "spec.multiAgent.mapping" in str(caught.value)


def test_it_is_made_from_a_manifests_factory() -> None:
    spec = EnvironmentSpec(id="tests.envs:make_relay", kwargs={"agents": ["x"]}, max_episode_steps=1)
    env = MultiAgentVectorEnv.make(spec, 3, mapping)
    env.reset(0)
    assert env.num_slots == {"team": 3}
    assert step(env)["team"].truncated.all()
    assert env.get_state() is None


@pytest.mark.parametrize(
    ("env_id", "reason"),
    [
        ("CartPole-v1", "is neither a PettingZoo id nor a factory"),
        ("tests.envs:ObeyingEnv", "is parallel or turn-based, but ObeyingEnv has no possible_agents"),
        ("tests.envs:broken_factory", "no floor to stand on"),
    ],
)
def test_anything_else_is_refused(env_id: str, reason: str) -> None:
    with pytest.raises(EnvironmentFailure, match=reason):
        MultiAgentVectorEnv.make(EnvironmentSpec(id=env_id), 1, mapping)


class MaskedRelay(RelayEnv):
    """Allows action t % 5 at timestep t; `in_info` says where the mask is."""

    def __init__(self, in_info: bool) -> None:
        super().__init__(("a", "b"))
        self.in_info = in_info

    def observation_space(self, agent: str) -> gym.Space:
        plain = super().observation_space(agent)
        masked = gym.spaces.Dict({"action_mask": gym.spaces.MultiBinary(5), "observation": plain})
        return plain if self.in_info else masked

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        return self._masked(super().reset(seed, options)[0])

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        observations, *rest, _ = super().step(actions)
        observations, infos = self._masked(observations)
        return observations, *rest, infos  # type: ignore[return-value]

    def _masked(self, observations: dict) -> tuple[dict, dict]:
        mask = np.eye(5, dtype=np.int8)[self.t % 5]
        if self.in_info:
            return observations, {agent: {"action_mask": mask} for agent in observations}
        return {agent: {"action_mask": mask, "observation": value} for agent, value in observations.items()}, {}


@pytest.mark.parametrize("in_info", [False, True])
def test_masks_come_with_the_observations_of_each_policy(in_info: bool) -> None:
    env = MultiAgentVectorEnv(lambda: MaskedRelay(in_info), 2, mapping)
    mask = env.reset(0)["team"][1]
    assert env.spaces["team"][0].shape == (2,)
    for t in range(2):
        assert mask is not None
        assert mask.tolist() == [[action == t for action in range(5)]] * 4
        mask = step(env)["team"].action_mask


class ResumableRelay(RelayEnv):
    def get_state(self) -> dict[str, Any]:
        return {"t": self.t, "draw": self.draw, "agents": list(self.agents), "rng": self.rng.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        self.t, self.draw, self.agents = state["t"], state["draw"], list(state["agents"])
        self.rng = np.random.default_rng()
        self.rng.bit_generator.state = state["rng"]


@pytest.mark.parametrize("interrupted_at", [1, 3, 4, 5])
def test_a_restored_environment_continues_bit_equal(interrupted_at: int) -> None:
    env = MultiAgentVectorEnv(ResumableRelay, 2, mapping)
    env.reset(0)
    for _ in range(interrupted_at):
        step(env)
    resumed = MultiAgentVectorEnv(ResumableRelay, 2, mapping)
    state = env.get_state()
    assert state is not None
    resumed.set_state(state)
    for _ in range(8):
        for one, two in zip(step(env).values(), step(resumed).values(), strict=True):
            for part, other in zip(one[:5], two[:5], strict=True):
                np.testing.assert_array_equal(part, other)


def test_an_ordinary_environment_is_no_multi_agent_one() -> None:
    with pytest.raises(EnvironmentFailure, match="PettingZoo's parallel or AEC interface"):
        MultiAgentVectorEnv(ObeyingEnv, 1, mapping)
