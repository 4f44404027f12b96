"""What every backend promises, on real environments: native, sync, subprocess and envpool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rlcore.api import EnvironmentSpec
from rlcore.env import Step, VectorEnv, make_vector_env
from rlcore.env.native import NativeVectorEnv, QuickMultiDiscrete, quick_to_check
from rlcore.env.reward_clipping import RewardClipping
from rlcore.env.sync import SyncVectorEnv
from rlcore.errors import EnvironmentFailure
from tests.envs import GO, RAISE, ChoosableVectorEnv, CountingVectorEnv, ObeyingEnv, SameStepVectorEnv

N = 6
BACKENDS = [
    ("CartPole-v1", "native"),
    ("CartPole-v1", "sync"),
    ("CartPole-v1", "subprocess"),
    ("CartPole-v1", "envpool"),
    ("Pendulum-v1", "sync"),
    ("Pendulum-v1", "envpool"),
    ("MinAtar/Breakout-v1", "sync"),
]
OWN_IDS = {
    "Counting-v0": CountingVectorEnv,
    "Choosable-v0": ChoosableVectorEnv,
    "SameStep-v0": SameStepVectorEnv,
}


@pytest.fixture(autouse=True)
def _own_ids() -> Iterator[None]:
    for env_id, entry_point in OWN_IDS.items():
        gym.register(env_id, entry_point=ObeyingEnv, vector_entry_point=entry_point)
    yield
    for env_id in OWN_IDS:
        del gym.registry[env_id]


# One environment for all tests of a backend: starting processes is most of the time, and every test resets.
@pytest.fixture(params=BACKENDS, ids="-".join, scope="module")
def env(request: pytest.FixtureRequest) -> Iterator[VectorEnv]:
    env_id, vectorization = request.param
    made = make_vector_env(EnvironmentSpec(id=env_id, vectorization=vectorization), N)
    yield made
    assert not made.failures
    made.close()


def play(env: VectorEnv, steps: int, seed: int | None = 3) -> list[Step]:
    """Steps of random play after a reset, which is put in front as a Step of its own."""
    rng = np.random.default_rng(0)
    observations, mask = env.reset(seed)
    none = np.zeros(env.num_envs, bool)
    played = [Step(observations.copy(), np.zeros(env.num_envs, np.float32), none, none, none, mask)]
    space = env.action_space
    for _ in range(steps):
        if isinstance(space, gym.spaces.Discrete):
            actions: Any = rng.integers(0, space.n, env.num_envs)
        else:
            actions = rng.uniform(-2, 2, (env.num_envs, *space.shape)).astype(np.float32)
        played.append(Step(*(None if part is None else part.copy() for part in env.step(actions))))
    return played


def test_shapes_and_dtypes_are_those_of_the_contract(env: VectorEnv) -> None:
    for step in play(env, 3)[1:]:
        assert step.observations.shape == (N, *env.observation_space.shape)
        assert step.observations.dtype == env.observation_space.dtype == np.float32
        assert step.rewards.dtype == np.float32
        for flag in (step.terminated, step.truncated, step.valid):
            assert (flag.shape, flag.dtype) == ((N,), np.bool_)
        assert step.action_mask is None
        assert all(env.observation_space.contains(row) for row in step.observations)


def test_a_row_is_invalid_exactly_where_the_row_before_ended_an_episode(env: VectorEnv) -> None:
    played = play(env, 250)
    ended = [step.terminated | step.truncated for step in played]
    assert any(done.any() for done in ended)
    for before, step in zip(ended, played[1:], strict=False):
        np.testing.assert_array_equal(step.valid, ~before)
        assert not (step.terminated | step.truncated)[before].any()
        assert not step.rewards[before].any()
    assert not env.failures


def test_the_same_seed_gives_the_same_trajectories_and_sub_environments_differ(env: VectorEnv) -> None:
    first, again, other = play(env, 30), play(env, 30), play(env, 30, seed=4)
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.observations, two.observations)
        np.testing.assert_array_equal(one.rewards, two.rewards)
    assert any((one.observations != three.observations).any() for one, three in zip(first, other, strict=True))
    last = first[-1].observations.reshape(N, -1)
    assert len(np.unique(last, axis=0)) > 1


def test_a_reset_without_a_seed_goes_on_with_new_episodes_that_can_be_repeated(env: VectorEnv) -> None:
    def observed() -> list[np.ndarray]:
        return [env.reset(seed)[0].copy() for seed in (6, None, None)]

    first, again = observed(), observed()
    np.testing.assert_array_equal(first, again)
    assert (np.array(first) != first[0]).any()


@pytest.mark.parametrize("vectorization", ["native", "sync", "envpool"])
def test_a_falling_pole_terminates_and_a_time_limit_truncates(vectorization: Any) -> None:
    spec = EnvironmentSpec(id="CartPole-v1", vectorization=vectorization, max_episode_steps=8)
    env = make_vector_env(spec, 16)
    env.reset(0)
    terminated = truncated = 0
    for t in range(1, 40):
        step = env.step(np.zeros(16, np.int64))  # always to the left: the pole falls after 8 to 10 timesteps
        fallen = np.abs(step.observations[:, 2]) > 12 * np.pi / 180
        truncated += int((step.truncated & ~fallen).sum())
        terminated += int((step.terminated & step.valid).sum())
        assert not (step.terminated & ~fallen).any()
        if t % 9 != 8:
            assert not step.truncated.any()
    env.close()
    assert not env.failures
    assert truncated > 0
    if vectorization != "envpool":  # which reports a fall in the very last timestep as truncated only
        assert terminated > 0


@pytest.mark.parametrize("vectorization", ["sync", "envpool"])
def test_pendulum_never_terminates_and_is_truncated_at_200(vectorization: Any) -> None:
    env = make_vector_env(EnvironmentSpec(id="Pendulum-v1", vectorization=vectorization), 2)
    played = play(env, 201)
    env.close()
    assert [t for t, step in enumerate(played) if step.truncated.all()] == [200]
    assert not any(step.terminated.any() for step in played)
    assert np.abs(played[201].observations - played[200].observations).max() > 1e-3, "a new episode began"
    assert not played[201].valid.any()


def test_the_final_observation_is_the_last_of_its_own_episode() -> None:
    env = make_vector_env(EnvironmentSpec(id="CartPole-v1", vectorization="native"), 16)
    for step in play(env, 60):
        upright = np.abs(step.observations[:, 2]) < 12 * np.pi / 180
        assert not upright[step.terminated].any() or np.abs(step.observations[step.terminated][:, 0]).max() > 2.4


def test_auto_takes_the_environments_own_vectorization_and_else_the_loop() -> None:
    assert isinstance(make_vector_env(EnvironmentSpec(id="CartPole-v1"), 2), NativeVectorEnv)
    assert isinstance(make_vector_env(EnvironmentSpec(id="Pendulum-v1"), 2), SyncVectorEnv)
    assert isinstance(make_vector_env(EnvironmentSpec(id="tests.envs:ObeyingEnv"), 2), SyncVectorEnv)


def test_auto_leaves_a_native_environment_that_loses_final_observations() -> None:
    assert isinstance(make_vector_env(EnvironmentSpec(id="SameStep-v0"), 2), SyncVectorEnv)
    with pytest.raises(EnvironmentFailure, match="resets by SameStep") as caught:
        make_vector_env(EnvironmentSpec(id="SameStep-v0", vectorization="native"), 2)
    assert "sync or subprocess" in str(caught.value)


def test_a_native_environment_that_lets_us_choose_is_asked_for_next_step() -> None:
    env = make_vector_env(EnvironmentSpec(id="Choosable-v0", vectorization="native"), 2)
    assert isinstance(env, NativeVectorEnv)
    env.reset(0)
    assert [env.step(np.zeros(2, np.int64)).valid.all() for _ in range(4)] == [True, True, False, True]


def test_native_is_refused_where_there_is_none() -> None:
    with pytest.raises(EnvironmentFailure, match="has no vector environment of its own"):
        make_vector_env(EnvironmentSpec(id="Pendulum-v1", vectorization="native"), 2)


def test_a_native_environment_that_raises_is_replaced_as_a_whole() -> None:
    made: list[CountingVectorEnv] = []

    def make() -> CountingVectorEnv:
        made.append(CountingVectorEnv(3, AutoresetMode.NEXT_STEP))
        return made[-1]

    env = NativeVectorEnv(make)
    env.reset(0)
    before = env.step(np.full(3, GO))
    failed = env.step(np.full(3, RAISE))
    assert failed.truncated.all()
    assert not failed.valid.any()
    assert not failed.terminated.any()
    assert not failed.rewards.any()
    np.testing.assert_array_equal(failed.observations, before.observations)
    (failure,) = env.drain_failures()
    assert (failure.phase, failure.action) == ("step", str(RAISE))
    assert "ValueError: the simulator fell over" in failure.error
    assert env.get_state() is None
    reset = env.step(np.full(3, RAISE))
    assert not reset.valid.any()
    assert not reset.truncated.any()
    assert made[0].seeds != made[1].seeds
    assert env.step(np.full(3, GO)).valid.all()


def test_rewards_are_clipped_for_training_and_kept_for_reporting() -> None:
    env = RewardClipping(SyncVectorEnv(ObeyingEnv, 2))
    env.reset(0)
    for t in (1, 2, 3):
        step = env.step(np.array([GO, GO]))
        assert step.rewards.tolist() == [1, 1]
        assert env.raw_rewards is not None
        assert env.raw_rewards.tolist() == [t, t]
    env.step(np.array([RAISE, GO]))
    assert [failure.env_index for failure in env.drain_failures()] == [0]
    assert env.failures == env.env.failures == []


def test_the_quick_check_of_actions_says_what_gymnasiums_says():
    space = gym.spaces.MultiDiscrete([2, 3, 2], start=[0, 1, 0])
    quick = QuickMultiDiscrete(space.nvec, start=space.start)
    assert quick == space
    for actions in ([0, 1, 0], [1, 3, 1], [2, 1, 0], [0, 0, 0], [0, 4, 1], [-1, 1, 0], [0, 1], [[0, 1, 0]]):
        assert quick.contains(np.array(actions)) == space.contains(np.array(actions)), actions


def test_cartpoles_own_vectorization_is_quick_to_check_and_still_refuses_a_wrong_action():
    env = quick_to_check(gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point"))
    assert type(env.unwrapped.action_space) is QuickMultiDiscrete
    env.reset(seed=0)
    env.step(np.array([0, 1, 1]))
    with pytest.raises(AssertionError, match="invalid"):
        env.step(np.array([0, 1, 2]))
    env.close()
