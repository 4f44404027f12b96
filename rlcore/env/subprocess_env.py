"""Sub-environments in worker processes: for slow environments, and for those that may crash or hang a process.

Workers are plain subprocesses that are told what to import, rather than multiprocessing's: nothing of the parent's
`__main__` is run again in them, so this is safe inside a Ray actor, a notebook, or a script without a main guard.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import weakref
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcore.env.actions import ActionLayout
from rlcore.env.base import EnvFailure, Step, VectorEnv, derive_seed, describe_action, fresh_seed
from rlcore.env.shared_arrays import ArraySpec, BlockSpec, create_memory_file, map_block
from rlcore.env.sync import join_states, slice_state
from rlcore.env.worker import GRACE_S, STEP, Description, Slice
from rlcore.errors import EnvironmentFailure, UserError

if TYPE_CHECKING:
    from rlcore.api import EnvironmentSpec

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from rlcore.env.worker import main; main(*map(int, sys.argv[2:]))"
)
# Sub-environments of a replaced worker take seeds from another range of generations than their predecessors.
_GENERATIONS_PER_RESTART = 1_000_000


class WorkerLostError(Exception):
    """A worker died, or did not answer in time; the text says which."""


class Worker:
    """One subprocess, and the two descriptors that lead to it."""

    def __init__(self, part: Slice, memory_fd: int) -> None:
        self.part = part
        ours, theirs = socket.socketpair()
        lifeline_read, self._lifeline = os.pipe()
        # An evaluator has one core: numerical libraries in its workers must not start threads of their own.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        path = json.dumps([entry or os.getcwd() for entry in sys.path])
        inherited = (theirs.fileno(), memory_fd, lifeline_read)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, path, *map(str, inherited)],
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
        theirs.close()
        os.close(lifeline_read)
        self.connection = Connection(ours.detach())
        with contextlib.suppress(WorkerLostError):  # receive() fails alike, and is where it is reported
            self.send(pickle.dumps(part))

    def request(self, name: str, argument: Any = None) -> None:
        """Send a request other than STEP; an answer follows."""
        self.send(pickle.dumps((name, argument)))

    def send(self, data: bytes) -> None:
        """Send bytes; raises WorkerLostError."""
        try:
            self.connection.send_bytes(data)
        except OSError as error:
            raise WorkerLostError(self._obituary()) from error

    def receive(self, deadline: float) -> bytes:
        """The next answer; raises WorkerLostError if the worker is dead or silent until the deadline (monotonic s)."""
        try:
            if self.connection.poll(max(0.0, deadline - time.monotonic())):
                return self.connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise WorkerLostError(self._obituary()) from error
        raise WorkerLostError("did not answer in time and was stopped")

    def stop(self, grace_s: float) -> None:
        """End the process: politely by closing the connection, by force after `grace_s`."""
        self.connection.close()
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _obituary(self) -> str:
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"


class SubprocessVectorEnv(VectorEnv):
    """N sub-environments spread over worker processes, results in shared memory.

    Same seeds, same trajectories as SyncVectorEnv, and the same state, which either can restore. A worker that dies
    or hangs is one recorded failure; it is replaced, and its rows are truncated.

    Args:
        num_workers: processes; by default one for each core that this process may use, at most N.
        step_timeout_s: a worker silent for this long is taken for hung.
        start_timeout_s: the same for making the environments.

    Raises:
        EnvironmentFailure, UnsupportedError: from the first worker, as SyncVectorEnv raises them.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        num_envs: int,
        *,
        worker_index: int = 0,
        num_workers: int | None = None,
        step_timeout_s: float = 60.0,
        start_timeout_s: float = 300.0,
    ) -> None:
        super().__init__()
        self.num_envs = num_envs
        self._worker_index = worker_index
        self._step_timeout_s, self._start_timeout_s = step_timeout_s, start_timeout_s
        self._seed = 0
        self._begun = False
        self._restarts = 0
        count = min(num_envs, available_cores() if num_workers is None else num_workers)
        bounds = [num_envs * i // count for i in range(count + 1)]
        parts = [Slice(spec, begin, end - begin, worker_index) for begin, end in itertools.pairwise(bounds)]
        self._memory_fd = create_memory_file()
        self._workers: list[Worker] = []
        # Also for a VectorEnv that is dropped without close(), and at interpreter exit.
        self._finalizer = weakref.finalize(self, _release, self._workers, self._memory_fd)
        try:
            for part in parts:
                self._workers.append(Worker(part, self._memory_fd))
            description = self._describe(spec)
        except BaseException:
            self.close()
            raise
        self.observation_space = description.observation_space
        self.action_space = description.action_space
        self.has_action_mask = description.has_action_mask
        actions = ActionLayout(self.action_space)
        self._block = BlockSpec(
            ArraySpec((num_envs, *self.observation_space.shape), self.observation_space.dtype.name),
            ArraySpec((num_envs, *actions.shape), actions.dtype.name),
            description.mask_size,
        )
        os.ftruncate(self._memory_fd, self._block.size_bytes)
        self._actions, self._buffers = map_block(self._memory_fd, self._block)
        self._buffers.mask[...] = True
        for worker in self._workers:
            worker.send(pickle.dumps(self._block))

    def reset(self, seed: int | None) -> tuple[np.ndarray, np.ndarray | None]:
        if seed is None and not self._begun:
            seed = fresh_seed()
        if seed is not None:
            self._seed, self._begun = seed, True
        self._ask_all("reset", [seed] * len(self._workers))
        return self._buffers.observations, self._mask()

    def step(self, actions: np.ndarray) -> Step:
        self._actions[...] = actions
        deadline = time.monotonic() + self._step_timeout_s
        lost: dict[int, WorkerLostError] = {}
        for worker in self._workers:
            with contextlib.suppress(WorkerLostError):  # receive() fails alike, and is where it is reported
                worker.send(STEP)
        for index, worker in enumerate(self._workers):
            try:
                answer = worker.receive(deadline)
                if answer:
                    self.failures += pickle.loads(answer)  # from our own child
            except WorkerLostError as error:
                lost[index] = error
        for index, reason in lost.items():
            part = self._workers[index].part
            self._replace(index, reason, describe_action(actions[part.first : part.first + part.count]))
        b = self._buffers
        return Step(b.observations, b.rewards, b.terminated, b.truncated, b.valid, self._mask())

    def get_state(self) -> dict[str, Any] | None:
        states = self._ask_all("get_state", [None] * len(self._workers))
        return None if any(state is None for state in states) else join_states(states)

    def set_state(self, state: dict[str, Any]) -> None:
        self._seed, self._begun = state["seed"], True
        parts = [worker.part for worker in self._workers]
        self._ask_all("set_state", [slice_state(state, part.first, part.first + part.count) for part in parts])

    def close(self) -> None:
        self._finalizer()

    def _mask(self) -> np.ndarray | None:
        return self._buffers.mask if self.has_action_mask else None

    def _describe(self, spec: EnvironmentSpec) -> Description:
        """Wait until every worker has made its environments."""
        deadline = time.monotonic() + self._start_timeout_s
        answers = []
        for worker in self._workers:
            try:
                answers.append(pickle.loads(worker.receive(deadline)))
            except WorkerLostError as error:
                raise EnvironmentFailure(f"a worker process that makes environment {spec.id!r} {error}") from error
            if isinstance(answers[-1], UserError):
                raise answers[-1]
        first: Description = answers[0]
        return first

    def _ask_all(self, name: str, arguments: list[Any]) -> list[Any]:
        """Send one request to every worker and collect the answers; None from a worker that was lost and replaced."""
        deadline = time.monotonic() + self._step_timeout_s
        answers: list[Any] = []
        for worker, argument in zip(self._workers, arguments, strict=True):
            with contextlib.suppress(WorkerLostError):  # receive() fails alike, and is where it is reported
                worker.request(name, argument)
        for index, worker in enumerate(list(self._workers)):
            try:
                answer, has_mask, failures = pickle.loads(worker.receive(deadline))
                self.has_action_mask |= has_mask
                self.failures += failures
                answers.append(answer)
            except WorkerLostError as error:
                answers.append(None)
                self._replace(index, error, None)
        return answers

    def _replace(self, index: int, error: WorkerLostError, action: str | None) -> None:
        """Record a lost worker, truncate its rows, and start another that resets them with its first step."""
        old = self._workers[index]
        part = old.part
        self._record(part, str(error), action)
        old.stop(0.0)
        rows, b = slice(part.first, part.first + part.count), self._buffers
        b.rewards[rows], b.terminated[rows], b.truncated[rows], b.valid[rows], b.mask[rows] = (
            0.0,
            False,
            True,
            False,
            True,
        )
        self._restarts += 1
        worker = self._workers[index] = Worker(part, self._memory_fd)
        deadline = time.monotonic() + self._start_timeout_s
        try:
            described = pickle.loads(worker.receive(deadline))
            if isinstance(described, UserError):
                raise WorkerLostError(f"could not make its environments: {described.message}")
            worker.send(pickle.dumps(self._block))
            worker.request("begin", (self._seed, self._restarts * _GENERATIONS_PER_RESTART))
            worker.receive(deadline)
        except WorkerLostError as restart_error:
            # The next step finds it dead again and makes another attempt; the evaluator bounds the number.
            self._record(part, str(restart_error), None)

    def _record(self, part: Slice, reason: str, action: str | None) -> None:
        seed = derive_seed(self._seed, self._worker_index, part.first, self._restarts * _GENERATIONS_PER_RESTART)
        last = part.first + part.count - 1
        text = f"the worker process of sub-environments {part.first} to {last} {reason}"
        self.failures.append(EnvFailure(part.first, seed, "worker", action, text))


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _release(workers: list[Worker], memory_fd: int) -> None:
    for worker in workers:
        worker.connection.close()  # all at once, so that they end side by side
    deadline = time.monotonic() + GRACE_S
    for worker in workers:
        worker.stop(max(0.0, deadline - time.monotonic()))
    os.close(memory_fd)
