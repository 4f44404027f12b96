"""`rlcore logs` against a real API server, and a node whose kubelet runs commands on this machine."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlcore.cli import log_driver
from tests.controlplane.cli import Cli, Job, admin_in, in_background, serve_rljobs
from tests.controlplane.local_kubelet import LocalKubelet
from tests.kube.cluster import Cluster
from tests.kube.wait import eventually

RAY_JOB = {"apiVersion": "ray.io/v1", "kind": "RayJob"}


@pytest.fixture(scope="module", autouse=True)
def rljobs(cluster: Cluster) -> None:
    """The API of RLJobs."""
    serve_rljobs(cluster)


@pytest.fixture(scope="module")
def pod_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each worker's container has printed."""
    path = tmp_path_factory.mktemp("pods") / "0.log"
    path.write_text("".join(f"2026-01-01T00:00:0{n}.000000000Z stdout F line {n}\n" for n in range(5)))
    return path


@pytest.fixture(scope="module")
def kubelet(cluster: Cluster, pod_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKubelet]:
    """A node for all tests of this file."""
    made = LocalKubelet(cluster, tmp_path_factory.mktemp("kubelet"), "cli-node", pod_log)
    made.start()
    yield made
    made.remove()


@pytest.fixture
def rlcore(cluster: Cluster, namespace: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Cli:
    """The command line of somebody who may do everything, in a namespace of its own."""
    return Cli(admin_in(cluster, namespace, tmp_path), tmp_path, capfd)


@pytest.fixture
def job(cluster: Cluster, namespace: str, rlcore: Cli) -> Job:
    """A submitted job."""
    assert rlcore("submit", rlcore.manifest()).code == 0
    return Job(cluster, namespace)


@pytest.fixture
def ray_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ray's log directory of a head."""
    folder = tmp_path / "session_latest" / "logs"
    folder.mkdir(parents=True)
    monkeypatch.setattr(log_driver, "RAY_LOGS", str(folder))
    return folder


def make_ray_job(cluster: Cluster, job: Job, submission_id: str) -> None:
    """The RayJob of the first attempt, submitted."""
    name = f"{job.name}-1"
    cluster.apply({**RAY_JOB, "metadata": {"name": name, "namespace": job.namespace}, "spec": {"entrypoint": "x"}})
    patch = f'{{"status": {{"jobId": "{submission_id}"}}}}'
    cluster.kubectl(
        *("patch", "rayjob", name, "-n", job.namespace, "--subresource=status", "--type=merge", "-p", patch),
        check=False,
    )
    job.set_status(phase="Running", rayJob=name)


def head_of(job: Job) -> dict[str, str]:
    return {"rlcore.io/job": job.name, "rlcore.io/role": "head"}


def in_logs(folder: Path) -> str:
    """Code that makes a process look for logs there."""
    return f"from rlcore.cli import log_driver; log_driver.RAY_LOGS = {str(folder)!r}"


def tails_of(file: Path) -> list[int]:
    """Processes of this machine that follow a file."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
        except OSError:
            continue  # it has ended meanwhile
        if words[:1] == [b"tail"] and str(file).encode() in words:
            found.append(int(entry.name))
    return found


def test_the_drivers_log_is_read_in_the_head(
    rlcore: Cli, cluster: Cluster, job: Job, kubelet: LocalKubelet, ray_logs: Path
):
    make_ray_job(cluster, job, "cart-1-abcde")
    kubelet.run_pod(job.namespace, "cart-1-head", head_of(job))
    waiting = rlcore("logs", "cart")
    assert waiting.code == 2
    assert waiting.err == "error: the driver of cart has not started yet: the job is Running\n"
    (ray_logs / "job-driver-cart-1-abcde.log").write_bytes("one\ntwo\nthree: ä\n".encode())
    (ray_logs / "job-driver-newer-of-somebody-else.log").write_text("wrong\n")
    assert rlcore("logs", "cart").out == "one\ntwo\nthree: ä\n"
    assert rlcore("logs", "cart", "--tail", "1").out == "three: ä\n"
    assert rlcore("logs", "cart", "--role", "head", "--tail", "0").out == ""


def test_a_long_log_comes_whole(rlcore: Cli, job: Job, kubelet: LocalKubelet, ray_logs: Path):
    kubelet.run_pod(job.namespace, "cart-1-head", head_of(job))
    text = "".join(f"{number} {'x' * 100}\n" for number in range(20_000))
    (ray_logs / "job-driver-a.log").write_text(text)
    assert rlcore("logs", "cart").out == text


def test_a_followed_log_ends_with_the_job(
    rlcore: Cli, cluster: Cluster, job: Job, kubelet: LocalKubelet, ray_logs: Path, tmp_path: Path
):
    make_ray_job(cluster, job, "s1")
    log = ray_logs / "job-driver-s1.log"
    with in_background(
        tmp_path, rlcore.kubeconfig, "logs", "cart", "-f", "--tail", "1", before=in_logs(ray_logs)
    ) as logs:
        logs.says("-- no head pod; the job is Running; waiting")
        kubelet.run_pod(job.namespace, "cart-1-head", head_of(job))
        logs.says("-- waiting for the driver to start")
        log.write_text("one\ntwo\n")
        logs.says("two\n")
        with log.open("a") as file:
            file.write("three\n")
        logs.says("three\n")
        job.set_status(phase="Succeeded")
        assert logs.ends() == 0
        assert logs.out in ("two\nthree\n", "one\ntwo\nthree\n"), "the file may be seen before it is written whole"


def test_a_follower_goes_on_after_a_restart_of_the_api_server_and_in_the_next_head(
    rlcore: Cli, cluster: Cluster, job: Job, kubelet: LocalKubelet, ray_logs: Path, tmp_path: Path
):
    make_ray_job(cluster, job, "s1")
    log = ray_logs / "job-driver-s1.log"
    log.write_text("one\n")
    kubelet.run_pod(job.namespace, "cart-1-head", head_of(job))
    with in_background(tmp_path, rlcore.kubeconfig, "logs", "cart", "-f", before=in_logs(ray_logs)) as logs:
        logs.says("one\n")
        eventually(lambda: tails_of(log), what="tail in the head")
        cluster.stop_api_server()
        logs.says("; trying again")
        with log.open("a") as file:
            file.write("two\n")
        cluster.start_api_server()
        logs.says("two\n")
        cluster.kubectl("delete", "pod", "cart-1-head", "-n", job.namespace, "--force", "--grace-period=0")
        for process in tails_of(log):
            os.kill(process, signal.SIGKILL)  # as the end of the head does
        logs.says("-- no head pod")
        log.write_text("after a preemption\n")
        kubelet.run_pod(job.namespace, "cart-1-head-2", head_of(job))
        logs.says("after a preemption\n")
        assert "-- the log goes on in head pod cart-1-head-2\n" in logs.err
        job.set_status(phase="Failed")
        assert logs.ends() == 0
        assert logs.err.endswith("-- the job has failed\n")
        assert logs.out == "one\ntwo\nafter a preemption\n"


def test_a_follower_ends_with_the_job_it_follows(
    rlcore: Cli, cluster: Cluster, job: Job, kubelet: LocalKubelet, ray_logs: Path, tmp_path: Path
):
    (ray_logs / "job-driver-a.log").write_text("one\n")
    kubelet.run_pod(job.namespace, "cart-1-head", head_of(job))
    with in_background(tmp_path, rlcore.kubeconfig, "logs", "cart", "-f", before=in_logs(ray_logs)) as logs:
        logs.says("one\n")
        cluster.kubectl("delete", "rljob", "cart", "-n", job.namespace)
        assert logs.ends() == 2
        assert logs.err == "error: RLJob cart was deleted\n"


def test_ctrl_c_ends_it(rlcore: Cli, job: Job, kubelet: LocalKubelet, ray_logs: Path, tmp_path: Path):
    log = ray_logs / "job-driver-a.log"
    log.write_text("one\n")
    kubelet.run_pod(job.namespace, "cart-1-head", head_of(job))
    with in_background(tmp_path, rlcore.kubeconfig, "logs", "cart", "-f", before=in_logs(ray_logs)) as logs:
        logs.says("one\n")
        eventually(lambda: tails_of(log), what="tail in the head")
        logs.interrupt()
        assert logs.ends() == 130
        assert logs.err == "\ninterrupted\n"


def test_where_the_pod_is_gone_the_kept_lines_are_shown(rlcore: Cli, job: Job):
    nothing = rlcore("logs", "cart")
    assert nothing.code == 2
    assert "there is no log of cart: it has no head pod; the job is not acted on yet" in nothing.err
    assert "no attempt has failed with a log" in rlcore("logs", "cart", "--previous").err
    job.set_status(phase="Succeeded")
    assert "it has no head pod; the job is Succeeded" in rlcore("logs", "cart", "-f").err
    job.set_status(
        phase="Failed",
        lastFailure={
            "class": "OutOfMemory",
            "pod": "cart-1-head",
            "logTail": "a\nb\nc\n",
            "time": "2026-01-01T00:00:00Z",
        },
    )
    for options in ((), ("--previous",), ("-f",)):
        result = rlcore("logs", "cart", "--tail", "2", *options)
        assert result.code == 0
        assert result.out == "b\nc\n"
        assert result.err == ("-- these last lines were kept of the failure on pod cart-1-head, 2026-01-01T00:00:00Z\n")


def test_a_head_that_does_not_run_says_why(rlcore: Cli, job: Job, kubelet: LocalKubelet, cluster: Cluster):
    kubelet.run_pod(job.namespace, "cart-1-head", head_of(job), phase="Pending")
    waiting = '{"status": {"containerStatuses": [{"name": "ray-head", "ready": false, "restartCount": 0, "image": "x", '
    waiting += '"imageID": "", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]}}'
    cluster.kubectl(
        *("patch", "pod", "cart-1-head", "-n", job.namespace, "--subresource=status", "--type=merge", "-p", waiting)
    )
    result = rlcore("logs", "cart")
    assert result.code == 2
    assert "the head pod cart-1-head does not run: Pending (ImagePullBackOff: no such image)" in result.err


def test_the_newest_attempts_head_is_read(rlcore: Cli, job: Job, kubelet: LocalKubelet, ray_logs: Path):
    kubelet.run_pod(job.namespace, "cart-1-head", {**head_of(job), "rlcore.io/attempt": "1"})
    kubelet.run_pod(job.namespace, "cart-2-head", {**head_of(job), "rlcore.io/attempt": "2"}, phase="Pending")
    (ray_logs / "job-driver-a.log").write_text("one\n")
    assert "the head pod cart-2-head does not run: Pending" in rlcore("logs", "cart").err


def test_pods_have_logs_of_their_own(rlcore: Cli, job: Job, kubelet: LocalKubelet):
    evaluator = {"rlcore.io/job": "cart", "rlcore.io/role": "evaluator"}
    none = rlcore("logs", "cart", "--pool", "spot")
    assert none.code == 2
    assert "cart has no evaluator pods of pool spot now" in none.err
    kubelet.run_pod(job.namespace, "w1", {**evaluator, "rlcore.io/pool": "spot"})
    assert rlcore("logs", "cart", "--pool", "spot", "--tail", "2").out == "line 3\nline 4\n"
    kubelet.run_pod(job.namespace, "w2", {**evaluator, "rlcore.io/pool": "base"})
    kubelet.run_pod(job.namespace, "w3", {**evaluator, "rlcore.io/pool": "base"}, phase="Pending")
    both = rlcore("logs", "cart", "--role", "evaluator", "--tail", "1")
    assert both.out == "[w1] line 4\n[w2] line 4\n"
    assert both.err == "-- pod w3 has no log: Pending\n"
    assert rlcore("logs", "cart", "--pool", "spot", "--previous", "--tail", "1").out == "line 4\n"
    kubelet.run_pod(job.namespace, "l1", {**evaluator, "rlcore.io/role": "learner"})
    assert rlcore("logs", "cart", "--role", "learner").out == "".join(f"line {number}\n" for number in range(5))


def test_logs_of_several_pods_are_followed_at_once(
    rlcore: Cli, job: Job, kubelet: LocalKubelet, pod_log: Path, tmp_path: Path
):
    for name in ("w1", "w2"):
        labels = {"rlcore.io/job": "cart", "rlcore.io/role": "evaluator", "rlcore.io/pool": "spot"}
        kubelet.run_pod(job.namespace, name, labels)
    with in_background(tmp_path, rlcore.kubeconfig, "logs", "cart", "--pool", "spot", "-f") as logs:
        logs.says("[w1] line 4\n")
        logs.says("[w2] line 4\n")
        with pod_log.open("a") as file:
            file.write("2026-01-01T00:01:00.000000000Z stdout F a late line\n")
        logs.says("[w1] a late line\n")
        logs.says("[w2] a late line\n")
        logs.interrupt()
        assert logs.ends() == 130


def test_a_kubelet_that_does_not_answer(
    rlcore: Cli, cluster: Cluster, job: Job, ray_logs: Path, pod_log: Path, tmp_path: Path
):
    dead = LocalKubelet(cluster, tmp_path, "dead-node", pod_log)
    dead.start()
    dead.stop()
    try:
        dead.run_pod(job.namespace, "cart-1-head", head_of(job))
        dead.run_pod(job.namespace, "l1", {"rlcore.io/job": "cart", "rlcore.io/role": "learner"})
        for arguments in (("logs", "cart"), ("logs", "cart", "--role", "learner")):
            result = rlcore(*arguments)
            assert result.code == 2
            assert result.err.startswith("error: the API server cannot reach the kubelet of ")
            assert "-> is the node up? `kubectl get pod" in result.err
    finally:
        dead.remove()


def test_who_may_look_but_not_run_commands(
    rlcore: Cli, cluster: Cluster, job: Job, kubelet: LocalKubelet, ray_logs: Path
):
    (ray_logs / "job-driver-a.log").write_text("one\n")
    kubelet.run_pod(job.namespace, "cart-1-head", head_of(job))
    make_ray_job(cluster, job, "a")
    cluster.kubectl("create", "serviceaccount", "guest", "-n", job.namespace)
    guest = cluster.kubeconfig_for(job.namespace, "guest")
    rights = ("--verb=get,list,watch", "--resource=rljobs.rlcore.io,pods")
    cluster.kubectl("create", "role", "look", "-n", job.namespace, *rights)
    account = f"--serviceaccount={job.namespace}:guest"
    cluster.kubectl("create", "rolebinding", "look", "-n", job.namespace, "--role=look", account)
    eventually(lambda: rlcore("status", kubeconfig=guest).code == 0, what="the right to list")
    for options in ((), ("-f",)):
        result = rlcore("logs", "cart", *options, kubeconfig=guest)
        assert result.code == 2
        assert re.search("may not (get|create) pods/exec in API group", result.err)
    cluster.kubectl("create", "role", "run", "-n", job.namespace, "--verb=create,get", "--resource=pods/exec")
    cluster.kubectl("create", "rolebinding", "run", "-n", job.namespace, "--role=run", account)
    # RayJobs cannot be seen: the newest log of the head is the driver's.
    eventually(lambda: rlcore("logs", "cart", kubeconfig=guest).out == "one\n", what="the log")
