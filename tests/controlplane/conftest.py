"""A real cluster for the tests of this folder, started once and only where a test asks for it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kubernetes import client

from tests.controlplane.operated import Job, Operated, Stage
from tests.kube import binaries
from tests.kube.cluster import Cluster
from tests.kube.operator_process import OperatorProcess, install_chart
from tests.kuberay.standin import KubeRayStandIn

NOT_BUILT = pytest.StashKey[str]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds what the cluster is made of before the first test: no test's time limit allows for that."""
    wanted = any(
        {"cluster", "operated", "stage", "for_real"} & set(getattr(item, "fixturenames", ())) for item in session.items
    )
    if not wanted or session.config.option.collectonly or binaries.why_not():
        return
    with session.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        try:
            binaries.ensure()
        except binaries.BuildError as error:
            print(error)
            session.config.stash[NOT_BUILT] = str(error).partition("\n")[0]


def skip_without_binaries(pytestconfig: pytest.Config) -> None:
    """Skips with the one reason why there can be no cluster here."""
    if trouble := binaries.why_not() or pytestconfig.stash.get(NOT_BUILT, ""):
        pytest.skip(trouble)


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with KubeRay's CRDs, shared by all tests: each works in a namespace of its own."""
    skip_without_binaries(pytestconfig)
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def operated(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A cluster of its own in which the operator and KubeRay's stand-in (pods run by kwok) are at work."""
    skip_without_binaries(pytestconfig)
    with Cluster(tmp_path_factory.mktemp("operated")) as running:
        install_chart(running)
        with KubeRayStandIn(running, "pods") as kuberay, OperatorProcess(running) as operator:
            yield Operated(running, operator, kuberay)


@pytest.fixture
def job(operated: Operated, request: pytest.FixtureRequest) -> Iterator[Job]:
    """An RLJob called cartpole-ppo, not applied yet, in a fresh namespace of the operated cluster."""
    with fresh_namespace(operated.cluster, request.node.name) as name:
        yield operated.job(name)


@pytest.fixture(scope="session")
def stage(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A cluster of its own with KubeRay's stand-in, and no operator: each test starts those that it needs."""
    skip_without_binaries(pytestconfig)
    with Cluster(tmp_path_factory.mktemp("stage")) as running:
        install_chart(running)
        with KubeRayStandIn(running, "pods", poll_s=0.2) as kuberay:
            yield Stage(running, kuberay)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace; it goes after the test, which nobody waits for."""
    with fresh_namespace(cluster, request.node.name) as name:
        yield name


@contextmanager
def fresh_job(cluster: Cluster, test_name: str, *, delete_s: int = 30, gone_s: float = 60) -> Iterator[Job]:
    """cartpole-ppo, not applied yet, in a fresh namespace; afterwards it is deleted, and its pods are waited for."""
    with fresh_namespace(cluster, test_name) as name:
        job = Job(cluster, name, "cartpole-ppo")
        yield job
        job.kubectl("delete", "rlj", "--all", f"--timeout={delete_s}s")
        job.gone("pods", deadline_s=gone_s)


@contextmanager
def fresh_namespace(cluster: Cluster, test_name: str) -> Iterator[str]:
    """A namespace named after a test."""
    test = re.sub(r"[^a-z0-9]+", "-", test_name.lower().removeprefix("test_"))
    name = f"{test[:40].strip('-')}-{secrets.token_hex(3)}"
    cluster.create_namespace(name)
    yield name
    client.CoreV1Api(cluster.api).delete_namespace(name)
