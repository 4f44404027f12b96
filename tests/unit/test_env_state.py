"""An environment that goes on from its saved state is equal to the last bit to one that was never interrupted."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlcore.api import AtariSpec, EnvironmentSpec
from rlcore.checkpoint.tree import join, split
from rlcore.env import VectorEnv, make_vector_env
from rlcore.env.state import get_env_state, set_rng_state
from rlcore.env.sync import SyncVectorEnv
from tests.envs import GO, RAISE, ObeyingEnv, ResumableEnv

SPECS = {
    "cartpole native": EnvironmentSpec(id="CartPole-v1", max_episode_steps=13),
    "cartpole": EnvironmentSpec(id="CartPole-v1", vectorization="sync", max_episode_steps=13),
    "pendulum": EnvironmentSpec(id="Pendulum-v1", max_episode_steps=13),
    "mountain car": EnvironmentSpec(id="MountainCar-v0", max_episode_steps=13),
    "continuous mountain car": EnvironmentSpec(id="MountainCarContinuous-v0", max_episode_steps=13),
    "acrobot": EnvironmentSpec(id="Acrobot-v1", max_episode_steps=13),
    "own state": EnvironmentSpec(id="tests.envs:ResumableEnv", max_episode_steps=13),
    "asterix": EnvironmentSpec(id="MinAtar/Asterix-v1"),
    "breakout": EnvironmentSpec(id="MinAtar/Breakout-v1"),
    "freeway": EnvironmentSpec(id="MinAtar/Freeway-v1", max_episode_steps=13),
    "seaquest": EnvironmentSpec(id="MinAtar/Seaquest-v1"),
    "space invaders": EnvironmentSpec(id="MinAtar/SpaceInvaders-v1"),
    "sticky pong": EnvironmentSpec(
        id="ALE/Pong-v5", wrappers="atari", vectorization="sync", atari=AtariSpec(max_frames_per_episode=52)
    ),
    "raw pong": EnvironmentSpec(id="ALE/Pong-v5", max_episode_steps=13),
}


def random_actions(env: VectorEnv, steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    if isinstance(env.action_space, gym.spaces.Discrete):
        most = min(int(env.action_space.n), RAISE)
        return [rng.integers(0, most, env.num_envs) for _ in range(steps)]
    return [rng.uniform(-2, 2, (env.num_envs, 1)).astype(np.float32) for _ in range(steps)]


def record(env: VectorEnv, actions: list[np.ndarray]) -> list[np.ndarray]:
    return [part.copy() for action in actions for part in env.step(action)[:5]]


@pytest.mark.parametrize("name", SPECS)
def test_a_restored_environment_continues_bit_equal(name: str) -> None:
    spec = SPECS[name]
    # Atari games take long to load.
    num_envs, interruptions = (1, (13,)) if "pong" in name else (3, (12, 13, 14, 20))
    env = make_vector_env(spec, num_envs)
    env.reset(2)
    actions = random_actions(env, 60)
    for interrupted_at in interruptions:  # before, at and after the step that resets the sub-environments
        env.reset(None if num_envs == 1 else 2)
        record(env, actions[:interrupted_at])
        state = env.get_state()
        assert state is not None
        saved = join(*split(state))  # what a checkpoint makes of it; nothing is pickled
        expected = record(env, actions[interrupted_at:])
        resumed = make_vector_env(spec, num_envs)
        resumed.set_state(saved)
        for one, two in zip(expected, record(resumed, actions[interrupted_at:]), strict=True):
            np.testing.assert_array_equal(one, two)
        assert not env.failures
        assert not resumed.failures
        resumed.close()
    env.close()


def test_saving_does_not_disturb_the_run() -> None:
    plain, saving = (make_vector_env(SPECS["cartpole native"], 3) for _ in range(2))
    for env in (plain, saving):
        env.reset(0)
    for action in random_actions(plain, 40):
        expected = record(plain, [action])
        saving.get_state()
        for one, two in zip(expected, record(saving, [action]), strict=True):
            np.testing.assert_array_equal(one, two)


def test_an_environment_that_offers_no_state_says_so() -> None:
    env = SyncVectorEnv(ObeyingEnv, 2)
    env.reset(0)
    assert env.get_state() is None
    pool = make_vector_env(EnvironmentSpec(id="Pendulum-v1", vectorization="envpool"), 2)
    pool.reset(0)
    assert pool.get_state() is None
    pool.close()


def test_a_wrapper_that_may_hold_something_makes_the_state_unknown() -> None:
    known = gym.wrappers.TimeLimit(gym.wrappers.OrderEnforcing(ResumableEnv()), 5)
    known.reset(seed=0)
    assert get_env_state(known) is not None
    assert get_env_state(gym.wrappers.TimeAwareObservation(known)) is None


def test_a_sub_environment_that_was_just_replaced_continues_with_the_same_new_seed() -> None:
    env, resumed = SyncVectorEnv(ResumableEnv, 2), SyncVectorEnv(ResumableEnv, 2)
    env.reset(0)
    env.step(np.array([RAISE, GO]))
    state = env.get_state()
    assert state is not None
    resumed.set_state(join(*split(state)))
    actions = [np.array([GO, GO])] * 3
    for one, two in zip(record(env, actions), record(resumed, actions), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", ["PCG64", "MT19937", "Philox", "SFC64"])
def test_a_random_generator_continues_from_its_state(name: str) -> None:
    rng = np.random.Generator(getattr(np.random, name)(5))
    rng.random(3)
    saved: Any = join(*split(dict(rng.bit_generator.state)))
    np.testing.assert_array_equal(set_rng_state(saved).random(5), rng.random(5))


def test_a_state_cannot_name_just_any_attribute_as_its_generator() -> None:
    with pytest.raises(ValueError, match="unknown bit generator 'os'"):
        set_rng_state({"bit_generator": "os"})
