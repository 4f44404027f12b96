"""The process that steps one slice of a SubprocessVectorEnv; it ends when its parent does, whatever it is doing."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import gymnasium

from rlcore.env.factory import make_sync_env
from rlcore.env.registry import creation_failure
from rlcore.env.shared_arrays import BlockSpec, map_block, rows_of
from rlcore.env.sync import SyncVectorEnv
from rlcore.errors import UserError

if TYPE_CHECKING:
    from rlcore.api import EnvironmentSpec

# The whole of a step's request; everything else is a pickled (name, argument).
STEP = b"s"
# How long a worker may still close its environments after its parent is gone.
GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class Slice:
    """What a worker steps: sub-environments first .. first + count - 1 of the evaluator `worker_index`."""

    spec: EnvironmentSpec
    first: int
    count: int
    worker_index: int


@dataclass(frozen=True, slots=True)
class Description:
    """What a worker knows once its environments are made."""

    observation_space: gymnasium.spaces.Box
    action_space: gymnasium.Space
    mask_size: int
    has_action_mask: bool


def main(connection_fd: int, memory_fd: int, lifeline_fd: int) -> None:
    """Serve requests until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_watch, args=(lifeline_fd,), daemon=True).start()
    with Connection(connection_fd) as connection:
        part: Slice = connection.recv()
        try:
            env = make_sync_env(part.spec, part.count, worker_index=part.worker_index, first_index=part.first)
        except Exception as error:
            user_error = error if isinstance(error, UserError) else creation_failure(part.spec.id, error, {})
            connection.send(user_error)
            return
        connection.send(Description(env.observation_space, env.action_space, env.mask_size, env.has_action_mask))
        try:
            _serve(connection, env, part, memory_fd)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            env.close()  # the parent closed, or is gone


def _serve(connection: Connection, env: SyncVectorEnv, part: Slice, memory_fd: int) -> None:
    block: BlockSpec = connection.recv()
    all_actions, all_buffers = map_block(memory_fd, block)
    end = part.first + part.count
    actions = all_actions[part.first : end]
    env.use_buffers(rows_of(all_buffers, part.first, end))
    while True:
        request = connection.recv_bytes()
        if request == STEP:
            env.step(actions)
            # Nothing to say is the fast path: the results are in shared memory.
            connection.send_bytes(pickle.dumps(env.drain_failures()) if env.failures else b"")
        else:
            name, argument = pickle.loads(request)  # from our own parent
            connection.send((_answer(env, name, argument), env.has_action_mask, env.drain_failures()))


def _answer(env: SyncVectorEnv, name: str, argument: Any) -> Any:
    if name == "reset":
        env.reset(argument)
        return None
    if name == "begin":
        env.begin(*argument)
        return None
    if name == "get_state":
        return env.get_state()
    if name == "set_state":
        env.set_state(argument)
        return None
    raise ValueError(f"unknown request {name!r}")


def _watch(lifeline_fd: int) -> None:
    """End the process when the parent's end of the pipe closes, even from within an endless step."""
    os.read(lifeline_fd, 1)
    time.sleep(GRACE_S)
    os._exit(1)
