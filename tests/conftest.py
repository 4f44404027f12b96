"""What all tests share: a real, small, local Ray, started once and only where a test asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# Before numpy and torch are imported anywhere: two cores are shared by the test, Ray and its actors.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """A Ray of this machine with room for four one-core actors and a learner."""
    import ray

    from rlcore.driver.ray_session import quiet

    quiet()
    ray.init(
        address="local",
        num_cpus=4,
        resources={"learner": 1},
        include_dashboard=False,
        object_store_memory=256 * 1024**2,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": os.getcwd()}},
    )
    yield
    ray.shutdown()
