"""The one real node of this folder's tests: made once, and only where a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controlplane.conftest import fresh_job
from tests.controlplane.operated import Job
from tests.kube import binaries
from tests.kube.images import ImageStore
from tests.node.machine import Images, Machine, machine, why_not

BUILT = pytest.StashKey[Images]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds binaries and images before the first test: no test's time limit allows for that."""
    wanted = any("real_machine" in getattr(item, "fixturenames", ()) for item in session.items)
    if not wanted or session.config.option.collectonly or why_not():
        return
    with session.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        binaries.ensure(binaries.MODULE_OF)
        session.config.stash[BUILT] = Images.build(ImageStore())


@pytest.fixture(scope="session")
def real_machine(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A Kubernetes of one real node; each test works in a namespace of its own."""
    if trouble := why_not():
        pytest.skip(trouble)
    with machine(tmp_path_factory.mktemp("machine"), ImageStore(), pytestconfig.stash[BUILT]) as running:
        yield running


@pytest.fixture
def job(real_machine: Machine, request: pytest.FixtureRequest) -> Iterator[Job]:
    """cartpole-ppo in a fresh namespace; what is left of it is deleted."""
    with fresh_job(real_machine.cluster, request.node.name, delete_s=90, gone_s=120) as job:
        yield job
