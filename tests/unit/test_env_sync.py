"""The in-process loop: autoreset, time limits, seeds, and failures that stay with their own sub-environment."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rlcore.env.base import Step
from rlcore.env.sync import SyncVectorEnv
from tests.envs import (
    BAD_SHAPE,
    GO,
    RAISE,
    RAISE_ON_RESET,
    TERMINATE,
    TERMINATE_AND_TRUNCATE,
    TRUNCATE,
    ObeyingEnv,
)


def step(env: SyncVectorEnv, *actions: int) -> Step:
    return Step(*(None if part is None else part.copy() for part in env.step(np.array(actions, np.int64))))


def flags(result: Step) -> list[tuple[bool, bool, bool]]:
    return list(zip(result.terminated.tolist(), result.truncated.tolist(), result.valid.tolist(), strict=True))


def test_termination_and_truncation_are_told_apart() -> None:
    env = SyncVectorEnv(ObeyingEnv, 4)
    env.reset(0)
    result = step(env, GO, TERMINATE, TRUNCATE, TERMINATE_AND_TRUNCATE)
    assert flags(result) == [(False, False, True), (True, False, True), (False, True, True), (True, True, True)]


def test_the_row_that_ends_an_episode_holds_its_final_observation_and_the_next_row_only_resets() -> None:
    env = SyncVectorEnv(ObeyingEnv, 2)
    first = env.reset(0)[0].copy()
    ended = step(env, TERMINATE, GO)
    np.testing.assert_array_equal(ended.observations, [[first[0, 0], 1], [first[1, 0], 1]])
    assert ended.rewards.tolist() == [1, 1]
    reset = step(env, RAISE, GO)  # the first row's action is ignored
    assert flags(reset) == [(False, False, False), (False, False, True)]
    assert reset.rewards.tolist() == [0, 2]
    assert reset.observations[0, 1] == 0
    assert reset.observations[0, 0] != first[0, 0], "a new episode, not the old one again"
    assert step(env, GO, GO).observations[:, 1].tolist() == [1, 3]
    assert not env.failures


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_time_limit_truncates_and_counts_each_episode_on_its_own(wrapped: bool) -> None:
    def make() -> gym.Env:
        return gym.wrappers.TimeLimit(ObeyingEnv(), 3) if wrapped else ObeyingEnv()

    env = SyncVectorEnv(make, 2, max_episode_steps=None if wrapped else 3)
    env.reset(0)
    results = [step(env, *actions) for actions in ((GO, GO), (GO, TERMINATE), (TERMINATE, GO), (GO, GO), (GO, GO))]
    assert [result.truncated.tolist() for result in results] == [[False, False]] * 2 + [[True, False]] + [
        [False] * 2
    ] * 2
    assert [result.terminated.tolist() for result in results][2] == [True, False]
    assert step(env, GO, GO).truncated.tolist() == [False, True]


def test_the_manifests_time_limit_replaces_the_environments_own() -> None:
    env = SyncVectorEnv(lambda: gym.wrappers.TimeLimit(ObeyingEnv(), 2), 1, max_episode_steps=4)
    env.reset(0)
    assert [step(env, GO).truncated[0] for _ in range(4)] == [False, False, False, True]


def test_one_seed_gives_the_same_episodes_again_and_different_ones_to_every_sub_environment() -> None:
    def draws(seed: int | None, worker_index: int = 0) -> list[float]:
        env = SyncVectorEnv(ObeyingEnv, 3, worker_index=worker_index)
        seen = env.reset(seed)[0][:, 0].tolist()
        step(env, TERMINATE, TERMINATE, TERMINATE)
        return seen + step(env, GO, GO, GO).observations[:, 0].tolist()

    assert draws(7) == draws(7)
    assert len(set(draws(7))) == 6
    assert not set(draws(7)) & set(draws(8))
    assert not set(draws(7)) & set(draws(7, worker_index=1))
    assert draws(None) != draws(None)


def test_an_environment_that_raises_in_step_is_replaced_and_the_others_go_on() -> None:
    env = SyncVectorEnv(ObeyingEnv, 3)
    env.reset(5)
    before = step(env, GO, GO, GO)
    failed = step(env, GO, RAISE, GO)
    assert flags(failed) == [(False, False, True), (False, True, False), (False, False, True)]
    assert failed.rewards.tolist() == [2, 0, 2]
    np.testing.assert_array_equal(failed.observations[1], before.observations[1])
    (failure,) = env.drain_failures()
    assert (failure.env_index, failure.phase, failure.action) == (1, "step", str(RAISE))
    assert "ValueError: the robot fell over (envs.py:" in failure.error
    assert f"seed {failure.seed}" in str(failure)
    reset = step(env, GO, RAISE, GO)
    assert flags(reset)[1] == (False, False, False)
    assert reset.observations[1, 1] == 0
    assert reset.observations[1, 0] != before.observations[1, 0], "the new environment has another seed"
    assert step(env, GO, GO, GO).valid.all()
    assert env.drain_failures() == []


def test_the_seed_in_a_failure_reproduces_it() -> None:
    env = SyncVectorEnv(ObeyingEnv, 1)
    observations, _ = env.reset(None)
    step(env, RAISE)
    again = ObeyingEnv()
    np.testing.assert_array_equal(again.reset(seed=env.failures[0].seed)[0], observations[0] * [1, 0])


def test_an_environment_that_raises_in_reset_is_replaced_too() -> None:
    env = SyncVectorEnv(ObeyingEnv, 2)
    env.reset(0)
    step(env, RAISE_ON_RESET, GO)
    assert flags(step(env, GO, GO))[0] == (False, True, False)
    (failure,) = env.drain_failures()
    assert (failure.phase, failure.action) == ("reset", None)
    assert flags(step(env, GO, GO))[0] == (False, False, False)
    assert flags(step(env, GO, GO))[0] == (False, False, True)


def test_an_environment_that_cannot_be_made_again_is_tried_again() -> None:
    made = 0

    def make() -> gym.Env:
        nonlocal made
        made += 1
        if made == 3:
            raise OSError("no more licenses")
        return ObeyingEnv()

    env = SyncVectorEnv(make, 2)
    env.reset(0)
    step(env, RAISE, GO)
    assert [failure.phase for failure in env.drain_failures()] == ["step", "create"]
    assert flags(step(env, GO, GO)) == [(False, False, False), (False, False, True)]


def test_a_first_reset_that_raises_does_not_stop_the_others() -> None:
    class BornBroken(ObeyingEnv):
        count = 0

        def __init__(self) -> None:
            super().__init__()
            BornBroken.count += 1
            self.break_reset = BornBroken.count == 2

    env = SyncVectorEnv(BornBroken, 3)
    env.reset(0)
    assert [failure.env_index for failure in env.failures] == [1]
    assert step(env, GO, GO, GO).valid.tolist() == [True, False, True]
    assert step(env, GO, GO, GO).valid.all()


def test_an_observation_that_does_not_fit_its_space_is_a_failure_of_that_environment() -> None:
    env = SyncVectorEnv(ObeyingEnv, 2)
    env.reset(0)
    assert step(env, BAD_SHAPE, GO).valid.tolist() == [False, True]
    assert "ValueError" in env.failures[0].error


def test_a_first_observation_of_another_shape_is_not_broadcast() -> None:
    class Lying(ObeyingEnv):
        def observe(self) -> np.ndarray:
            return np.zeros(1, np.float32)

    env = SyncVectorEnv(Lying, 1)
    env.reset(0)
    assert "the observation has shape (1,), the observation space (2,)" in env.failures[0].error


@pytest.mark.parametrize("result", [(np.zeros(2), 1.0, False, {}), (np.zeros(2), None, False, False, {}), None])
def test_a_step_that_does_not_keep_to_the_interface_is_a_failure(result: object) -> None:
    class Old(ObeyingEnv):
        def step(self, action: int) -> object:
            return result

    env = SyncVectorEnv(Old, 1)
    env.reset(0)
    assert step(env, GO).valid.tolist() == [False]
    assert env.failures[0].phase == "step"
