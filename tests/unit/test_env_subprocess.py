"""Worker processes: the same trajectories as the loop, and no crash, hang or kill that leaves anything behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from rlcore.api import EnvironmentSpec
from rlcore.env.base import Step
from rlcore.env.factory import make_sync_env
from rlcore.env.subprocess_env import SubprocessVectorEnv
from rlcore.errors import EnvironmentFailure
from tests.envs import EXIT, GO, HANG, RAISE, TERMINATE, TRUNCATE

OBEYING = EnvironmentSpec(id="tests.envs:ObeyingEnv")


# One for all tests: it mends itself, and starting processes is most of the time.
@pytest.fixture(scope="module")
def env() -> Iterator[SubprocessVectorEnv]:
    made = SubprocessVectorEnv(OBEYING, 5, num_workers=2)
    yield made
    made.close()


def copied(step: Step) -> list[np.ndarray]:
    return [part.copy() for part in step[:5]]


def process_ids(env: SubprocessVectorEnv) -> list[int]:
    return [worker.process.pid for worker in env._workers]


def has_ended(pid: int) -> bool:
    """Gone, or a zombie that only waits to be collected."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(pids: list[int], deadline_s: float = 20.0) -> bool:
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if all(has_ended(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def test_trajectories_are_those_of_the_loop_through_ends_and_failures(env: SubprocessVectorEnv) -> None:
    loop = make_sync_env(OBEYING, 5)
    np.testing.assert_array_equal(env.reset(11)[0], loop.reset(11)[0])
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.choice([GO, TERMINATE, TRUNCATE, RAISE], 5, p=[0.7, 0.1, 0.1, 0.1])
        for ours, theirs in zip(copied(env.step(actions)), copied(loop.step(actions)), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert loop.failures
    assert env.drain_failures() == loop.drain_failures()


def test_its_state_continues_in_the_loop_and_back() -> None:
    spec = EnvironmentSpec(id="CartPole-v1", vectorization="subprocess", max_episode_steps=12)
    processes, loop = SubprocessVectorEnv(spec, 5, num_workers=2), make_sync_env(spec, 5)
    processes.reset(1)
    actions = np.random.default_rng(0).integers(0, 2, (80, 5))
    for t in range(30):
        processes.step(actions[t])
    state = processes.get_state()
    assert state is not None
    loop.set_state(state)
    for t in range(30, 60):
        for ours, theirs in zip(copied(processes.step(actions[t])), copied(loop.step(actions[t])), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    state = loop.get_state()
    assert state is not None
    processes.set_state(state)
    for t in range(60, 80):
        for ours, theirs in zip(copied(processes.step(actions[t])), copied(loop.step(actions[t])), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    processes.close()


def check_lost_slice(env: SubprocessVectorEnv, action: int, reason: str) -> None:
    env.reset(0)
    before = copied(env.step(np.full(5, GO)))
    lost = env.step(np.array([action, GO, GO, GO, GO]))
    assert lost.valid.tolist() == [False, False, True, True, True]
    assert lost.truncated.tolist() == [True, True, False, False, False]
    assert lost.rewards.tolist() == [0, 0, 2, 2, 2]
    np.testing.assert_array_equal(lost.observations[:2], before[0][:2])
    (failure,) = env.drain_failures()
    assert (failure.env_index, failure.phase) == (0, "worker")
    assert reason in failure.error
    reset = copied(env.step(np.full(5, GO)))
    assert reset[4].tolist() == [False, False, True, True, True]
    assert reset[0][:2, 1].tolist() == [0, 0]
    assert not set(reset[0][:2, 0]) & set(before[0][:, 0]), "new seeds"
    assert env.step(np.full(5, GO)).valid.all()
    assert not env.failures


def test_a_worker_that_exits_is_replaced(env: SubprocessVectorEnv) -> None:
    check_lost_slice(env, EXIT, "exited with status 3")


def test_a_worker_that_hangs_is_stopped_and_replaced(env: SubprocessVectorEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "_step_timeout_s", 1.5)
    hung = process_ids(env)[0]
    check_lost_slice(env, HANG, "did not answer in time")
    assert has_ended(hung)


def test_a_worker_that_is_killed_between_steps_is_replaced(env: SubprocessVectorEnv) -> None:
    env.reset(0)
    os.kill(process_ids(env)[1], signal.SIGKILL)
    assert wait_until(process_ids(env)[1:])
    assert env.step(np.full(5, GO)).valid.tolist() == [True, True, False, False, False]
    assert "sub-environments 2 to 4 was killed by SIGKILL" in env.failures[0].error
    assert env.step(np.full(5, GO)).valid.tolist() == [True, True, False, False, False]
    assert env.step(np.full(5, GO)).valid.all()


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "dropped"])
def test_nothing_is_left_behind(closed: bool) -> None:
    before = set(os.listdir("/proc/self/fd"))
    env = SubprocessVectorEnv(OBEYING, 1)
    pids = process_ids(env)
    if closed:
        env.close()
        env.close()
        assert all(has_ended(pid) for pid in pids)
    del env  # the arrays map the memory as long as someone holds them
    gc.collect()
    assert wait_until(pids)
    assert set(os.listdir("/proc/self/fd")) == before


def test_workers_end_with_a_parent_that_is_killed() -> None:
    script = (
        "import sys; sys.path[:0] = sys.argv[2].split(':')\n"
        "import numpy as np\n"
        "from rlcore.api import EnvironmentSpec\n"
        "from rlcore.env.subprocess_env import SubprocessVectorEnv\n"
        "env = SubprocessVectorEnv(EnvironmentSpec(id='tests.envs:ObeyingEnv'), 2, num_workers=2)\n"
        "env.reset(0)\n"
        "print(*[worker.process.pid for worker in env._workers], flush=True)\n"
        "env.step(np.array([int(action) for action in sys.argv[1]]))\n"
    )
    actions = f"{GO}{HANG}"  # one worker waits for its next request, the other is in an endless step
    command = [sys.executable, "-c", script, actions, ":".join(path or os.getcwd() for path in sys.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()
    assert wait_until(pids)


def test_what_is_wrong_with_the_environment_is_said_as_in_the_loop() -> None:
    with pytest.raises(EnvironmentFailure, match="no floor to stand on"):
        SubprocessVectorEnv(EnvironmentSpec(id="tests.envs:broken_factory"), 1)
