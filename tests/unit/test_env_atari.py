"""Atari: ale-py's C++ environment, ours for single games, and envpool's give the same kind of observation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlcore.api import AtariSpec, EnvironmentSpec
from rlcore.env import make_vector_env
from rlcore.env.atari import atari_single_maker, atari_vector_maker, episode_limit
from rlcore.env.native import NativeVectorEnv
from rlcore.env.registry import find_spec
from rlcore.env.reward_clipping import RewardClipping
from rlcore.env.sync import SyncVectorEnv
from rlcore.errors import EnvironmentFailure

BACKENDS = ["auto", "sync", "envpool"]


def spec(env_id: str = "ALE/Pong-v5", vectorization: Any = "auto", kwargs: Any = None, **atari: Any) -> EnvironmentSpec:
    return EnvironmentSpec(
        id=env_id, wrappers="atari", vectorization=vectorization, kwargs=kwargs or {}, atari=AtariSpec(**atari)
    )


@pytest.mark.parametrize("vectorization", BACKENDS)
def test_every_backend_gives_the_same_kind_of_frames_and_whole_rewards_beside(vectorization: Any) -> None:
    env = make_vector_env(spec(vectorization=vectorization), 2)
    first = env.reset(5)[0].copy()
    assert env.observation_space == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert env.action_space == gym.spaces.Discrete(6)
    assert first.shape == (2, 4, 84, 84)
    assert first.dtype == np.uint8
    rng = np.random.default_rng(0)
    lost = 0.0
    for _ in range(80):
        step = env.step(rng.integers(0, 6, 2))
        assert step.observations.shape == first.shape
        assert step.rewards.dtype == np.float32
        assert step.valid.all()
        assert env.raw_rewards is not None
        np.testing.assert_array_equal(step.rewards, np.clip(env.raw_rewards, -1, 1))
        lost -= step.rewards.sum()
    assert lost > 0, "Pong's opponent scores against random play"
    np.testing.assert_array_equal(env.reset(5)[0], first)
    assert not env.failures
    env.close()


@pytest.mark.parametrize(("game", "grayscale"), [("Pong", True), ("Breakout", False)])
def test_our_preprocessing_is_that_of_the_cpp_environment_to_the_pixel(game: str, grayscale: bool) -> None:
    made = spec(f"ALE/{game}-v5", grayscale=grayscale, noop_max=0, sticky_action_probability=0.0)
    gym_spec = find_spec(made.id)
    vector_maker = atari_vector_maker(made, gym_spec, 1, 1)
    assert vector_maker is not None
    theirs, ours = vector_maker(), atari_single_maker(made, gym_spec)()
    np.testing.assert_array_equal(ours.reset(seed=0)[0], theirs.reset(seed=np.array([0]))[0][0])
    rng = np.random.default_rng(0)
    for _ in range(150):
        action = rng.integers(0, theirs.single_action_space.n, 1)
        frame, reward, terminated, _, info = ours.step(action[0])
        their_frame, their_reward, their_terminated, _, their_info = theirs.step(action)
        np.testing.assert_array_equal(frame, their_frame[0])
        assert (reward, terminated, info["lives"]) == (their_reward[0], their_terminated[0], their_info["lives"][0])


@pytest.mark.parametrize("vectorization", BACKENDS)
def test_frames_run_out_as_truncation_in_every_backend(vectorization: Any) -> None:
    env = make_vector_env(spec(vectorization=vectorization, max_frames_per_episode=42, noop_max=3), 1)
    env.reset(0)
    truncated_at, invalid_at = [], []
    for t in range(1, 14):
        step = env.step(np.zeros(1, np.int64))
        truncated_at += [t] * bool(step.truncated.all())
        invalid_at += [t] * (not step.valid.any())
        assert not step.terminated.any()
    assert truncated_at == [11]
    assert invalid_at == [12]
    env.close()


@pytest.mark.parametrize("vectorization", ["auto", "sync"])
def test_a_lost_life_terminates_only_if_asked_for(vectorization: Any) -> None:
    def first_end(episodic_life: bool) -> int | None:
        made = spec("ALE/Breakout-v5", vectorization, episodic_life=episodic_life, sticky_action_probability=0.0)
        env = make_vector_env(made, 1)
        env.reset(3)
        for t in range(1, 60):
            step = env.step(np.array([0 if t > 1 else 1]))  # serve, and let the ball pass
            if step.terminated.any():
                return t
        return None

    assert first_end(episodic_life=False) is None
    assert first_end(episodic_life=True) is not None


def test_colors_are_stacked_as_channels_first() -> None:
    for vectorization in ("auto", "sync"):
        env = make_vector_env(spec(vectorization=vectorization, grayscale=False, frame_stack=2, frame_size=42), 1)
        assert env.observation_space.shape == env.reset(0)[0].shape[1:] == (6, 42, 42)
        env.close()


def test_settings_that_only_single_games_have_fall_back_to_the_loop() -> None:
    env = make_vector_env(spec("ALE/Breakout-v5", kwargs={"mode": 4}), 1)
    assert isinstance(env, RewardClipping)
    assert isinstance(env.env, SyncVectorEnv)
    env.close()


def test_older_ids_and_unclipped_rewards_use_the_cpp_environment_too() -> None:
    env = make_vector_env(spec("PongNoFrameskip-v4", reward_clipping=False), 1)
    assert isinstance(env, NativeVectorEnv)
    assert env.raw_rewards is None
    env.close()


def test_without_wrappers_the_screen_is_raw() -> None:
    env = make_vector_env(EnvironmentSpec(id="ALE/Pong-v5"), 1)
    assert env.observation_space.shape == (3, 210, 160)
    env.close()


def test_the_time_limit_is_the_smaller_of_frames_and_timesteps() -> None:
    assert episode_limit(spec(max_frames_per_episode=101)) == 26
    assert episode_limit(spec(max_frames_per_episode=101).model_copy(update={"max_episode_steps": 7})) == 7


def test_atari_preprocessing_of_something_else_is_refused() -> None:
    with pytest.raises(EnvironmentFailure, match="CartPole-v1 is not an Atari game"):
        make_vector_env(spec("CartPole-v1"), 1)
    with pytest.raises(EnvironmentFailure, match="is a factory"):
        make_vector_env(spec("tests.envs:ObeyingEnv"), 1)
