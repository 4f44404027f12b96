"""Ray's start and end: an embedded local Ray, or the cluster that this process runs in."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlcore.driver.plan import Machine
from rlcore.errors import UserError
from rlcore.evaluation.world import available_cores

# Fragments live here between evaluators and learner; the rest of the memory is theirs.
OBJECT_STORE_BYTES = 512 * 1024**2


@contextmanager
def ray_session(*, cores: int) -> Iterator[None]:
    """Ray for the time of the block: the cluster at RAY_ADDRESS, or a local one that ends with the block.

    Raises:
        UserError: Ray does not start.
    """
    quiet()
    import ray

    address = os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {"address": address, "logging_level": logging.ERROR}
    if not address:
        options |= {
            "address": "local",
            "num_cpus": cores,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
        }
    with _started(lambda: ray.init(**options)) as failure:
        if failure is not None:
            raise UserError(
                f"Ray did not start: {failure}",
                hint=f"is {address} up?" if address else "look at memory and /dev/shm; --in-process trains without Ray",
            ) from failure
        try:
            yield
        finally:
            ray.shutdown()


@contextmanager
def _started(init: Callable[[], object]) -> Iterator[Exception | None]:
    """Runs ray.init beside the main thread, where it cannot take SIGTERM over for itself; gives what it raised.

    The thread lives as long as the block: the kernel ends a local Ray's processes together with the thread that
    started them.
    """
    errors: list[Exception] = []
    started, over = threading.Event(), threading.Event()

    def run() -> None:
        try:
            init()
        except Exception as error:
            errors.append(error)
        started.set()
        over.wait()

    threading.Thread(target=run, name="ray-init", daemon=True).start()
    try:
        # In short waits, so that a signal is answered at once: its exception ends the start-up.
        while not started.wait(0.1):
            pass
        yield errors[0] if errors else None
    finally:
        over.set()


def quiet() -> None:
    """Keeps Ray from reporting usage to the internet and from printing notices; call it before ray.init."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)


def session_directory() -> Path | None:
    """Where the connected Ray keeps its logs on this machine; None where it does not say."""
    import ray._private.worker

    node = getattr(ray._private.worker, "_global_node", None)
    return None if node is None else Path(node.get_session_dir_path())


def this_machine() -> Machine:
    """Cores and GPUs of this machine, and what a Ray cluster offers where this process is part of one."""
    import torch

    return Machine(cores=available_cores(), gpus=torch.cuda.device_count())


def cluster_machine(machine: Machine) -> Machine:
    """The same machine, with what the connected Ray cluster offers to evaluators and learners."""
    import ray

    resources = ray.cluster_resources()
    if "evaluator" not in resources:
        return machine
    learner = resources.get("learner")
    return Machine(
        cores=machine.cores,
        gpus=machine.gpus,
        cluster_evaluators=int(resources["evaluator"]),
        cluster_learner_gpus=None if learner is None else int(resources.get("GPU", 0)),
    )
