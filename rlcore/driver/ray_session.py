"""Ray's start and end: an embedded local Ray, or the cluster that this process runs in."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

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
    try:
        if address:
            ray.init(address=address, logging_level=logging.ERROR)
        else:
            ray.init(
                address="local",
                num_cpus=cores,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=True,
                logging_level=logging.ERROR,
            )
    except Exception as error:
        ray.shutdown()
        raise UserError(
            f"Ray did not start: {error}",
            hint=f"is {address} up?" if address else "look at memory and /dev/shm; --in-process trains without Ray",
        ) from error
    except BaseException:
        ray.shutdown()
        raise
    try:
        yield
    finally:
        ray.shutdown()


def quiet() -> None:
    """Keeps Ray from reporting usage to the internet and from printing notices; call it before ray.init."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)


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
