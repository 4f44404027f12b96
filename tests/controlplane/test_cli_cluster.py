"""`rlcore submit` and `rlcore status` against a real API server; the operator is played by patches of the status."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlcore.cli import kube as kube_module
from rlcore.cli.kube_watch import watch_jobs
from tests.controlplane.cli import MANIFEST, Cli, Job, admin_in, hear_ctrl_c, in_background, serve_rljobs
from tests.kube.cluster import ROOT, Cluster
from tests.kube.kubeconfig import write_kubeconfig
from tests.kube.wait import eventually

CONFIG_MAP = """\
---
apiVersion: v1
kind: ConfigMap
metadata: {name: code}
data: {env.py: "x = 1"}
"""


@pytest.fixture(scope="module", autouse=True)
def rljobs(cluster: Cluster) -> None:
    """The API of RLJobs."""
    serve_rljobs(cluster)


@pytest.fixture
def rlcore(cluster: Cluster, namespace: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Cli:
    """The command line of somebody who may do everything, in a namespace of its own."""
    return Cli(admin_in(cluster, namespace, tmp_path), tmp_path, capfd)


@pytest.fixture
def job(cluster: Cluster, namespace: str, rlcore: Cli) -> Job:
    """A submitted job."""
    assert rlcore("submit", rlcore.manifest()).code == 0
    return Job(cluster, namespace)


def test_submit_creates_a_job_and_says_what_to_do_next(rlcore: Cli, cluster: Cluster, namespace: str):
    result = rlcore("submit", rlcore.manifest())
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == f"rljob cart created in namespace {namespace}"
    assert lines[2] == f"  watch    rlcore status cart --kubeconfig {rlcore.kubeconfig} --watch"
    made = Job(cluster, namespace).get()
    assert made["spec"]["stop"] == {"timesteps": 200_000, "episodeReward": 475}
    assert "optimizer" not in made["spec"], "defaults are the operator's to resolve"
    managed = cluster.kubectl("get", "rljob", "cart", "-n", namespace, "-o", "json", "--show-managed-fields").stdout
    assert [entry["manager"] for entry in json.loads(managed)["metadata"]["managedFields"]] == ["rlcore-cli"]


def test_submit_again_changes_nothing_or_says_what(rlcore: Cli, job: Job):
    before = job.get()["metadata"]["resourceVersion"]
    assert rlcore("submit", rlcore.manifest()).out.startswith("rljob cart unchanged in namespace")
    assert job.get()["metadata"]["resourceVersion"] == before
    changed = rlcore("submit", rlcore.manifest(**{"200000": "300000", "maxReplicas: 8": "maxReplicas: 9"}))
    assert changed.out.splitlines()[:3] == [
        f"rljob cart changed in namespace {job.namespace}",
        "  spec.evaluators.pools[spot].maxReplicas: 8 -> 9",
        "  spec.stop.timesteps: 200000 -> 300000",
    ]


def test_a_dry_run_changes_nothing(rlcore: Cli, job: Job):
    assert "would not be changed" in rlcore("submit", "--dry-run", rlcore.manifest()).out
    result = rlcore("submit", "--dry-run", rlcore.manifest(**{"200000": "5"}))
    assert result.out.splitlines() == [
        f"rljob cart would be changed in namespace {job.namespace}",
        "  spec.stop.timesteps: 200000 -> 5",
    ]
    assert "would be created" in rlcore("submit", "--dry-run", rlcore.manifest(**{"name: cart": "name: other"})).out
    assert job.get()["spec"]["stop"]["timesteps"] == 200_000
    assert rlcore("status", "other").code == 2


def test_objects_beside_the_job_are_applied_too(rlcore: Cli, cluster: Cluster, namespace: str):
    result = rlcore("submit", rlcore.manifest(MANIFEST + CONFIG_MAP))
    assert result.out.splitlines()[:2] == [
        f"configmap code created in namespace {namespace}",
        f"rljob cart created in namespace {namespace}",
    ]
    found = cluster.kubectl("get", "configmap", "code", "-n", namespace, "-o", "json").stdout
    assert json.loads(found)["data"] == {"env.py": "x = 1"}
    unknown = CONFIG_MAP.replace("ConfigMap", "ConfigMop")
    assert "does not know ConfigMop (v1)" in rlcore("submit", rlcore.manifest(MANIFEST + unknown)).err


def test_a_manifest_from_the_cluster_can_be_submitted(rlcore: Cli, cluster: Cluster, job: Job):
    job.set_status(phase="Running")
    text = cluster.kubectl("get", "rljob", "cart", "-n", job.namespace, "-o", "yaml", "--show-managed-fields").stdout
    assert rlcore("submit", rlcore.manifest(text)).out.startswith("rljob cart unchanged")


def test_the_namespace_of_a_manifest_and_of_the_option(rlcore: Cli, cluster: Cluster, namespace: str):
    text = rlcore.manifest(**{"{name: cart}": f"{{name: cart, namespace: {namespace}}}"})
    result = rlcore("submit", text)
    assert result.out.startswith(f"rljob cart created in namespace {namespace}\n")
    assert f"-n {namespace} --watch" in result.out
    assert (
        f"metadata.namespace of the manifest is {namespace}, and -n says default"
        in rlcore("submit", text, "-n", "default").err
    )
    missing = rlcore("submit", rlcore.manifest(), "-n", "no-such-namespace")
    assert missing.code == 2
    assert missing.err.startswith("error: there is no namespace no-such-namespace\n  -> make it with `kubectl create")


def test_fields_that_others_have_set_are_not_taken_by_force(rlcore: Cli, cluster: Cluster, job: Job):
    patch = '{"spec": {"stop": {"timesteps": 7}}}'
    cluster.kubectl("patch", "rljob", "cart", "-n", job.namespace, "--type=merge", "-p", patch)
    result = rlcore("submit", rlcore.manifest())
    assert result.code == 2
    assert result.err.splitlines() == [
        "error: others have set fields of RLJob cart that your manifest sets to something else",
        "  spec.stop.timesteps: set by kubectl-patch",
        "  -> leave these fields out of the manifest to keep their values, or take them over with --force-conflicts",
    ]
    forced = rlcore("submit", rlcore.manifest(), "--force-conflicts")
    assert "  spec.stop.timesteps: 7 -> 200000" in forced.out


def test_a_scaled_job_keeps_its_scale(rlcore: Cli, cluster: Cluster, job: Job):
    cluster.kubectl("scale", "rljob", "cart", "-n", job.namespace, "--replicas=5")
    assert "rljob cart changed" in rlcore("submit", rlcore.manifest(**{"200000": "300000"})).out
    assert job.get()["spec"]["evaluators"]["replicas"] == 5


@pytest.mark.usefixtures("job")
def test_what_cannot_change_is_refused_with_its_field(rlcore: Cli):
    result = rlcore("submit", rlcore.manifest(**{"CartPole-v1": "Acrobot-v1"}))
    assert result.code == 2
    lines = result.err.splitlines()
    assert lines[0] == "error: the API server refused RLJob cart"
    assert lines[1].startswith("  spec.environment: ")
    assert "cannot change after creation" in lines[1]
    assert lines[2].startswith("  -> delete the job first")


def test_warnings_of_the_cluster_are_shown(rlcore: Cli, cluster: Cluster, namespace: str):
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": namespace}}
    rule = {
        "apiGroups": ["rlcore.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["rljobs"],
    }
    validation = {"expression": "false", "message": "ask the team first"}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    cluster.apply(
        {
            **api,
            "kind": "ValidatingAdmissionPolicy",
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]},
        },
        {
            **api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {
                "policyName": namespace,
                "validationActions": ["Warn"],
                "matchResources": {"namespaceSelector": selector},
            },
        },
    )
    try:
        warned = eventually(lambda: rlcore("submit", "--dry-run", rlcore.manifest()).err, 60, what="a warning")
        assert warned.startswith("warning: ")
        assert warned.endswith("ask the team first\n")
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            cluster.kubectl("delete", kind, namespace)


def test_who_may_not_is_told_what(rlcore: Cli, cluster: Cluster, namespace: str):
    cluster.kubectl("create", "serviceaccount", "guest", "-n", namespace)
    guest = cluster.kubeconfig_for(namespace, "guest")
    account = f"system:serviceaccount:{namespace}:guest"
    expected = {
        ("submit", rlcore.manifest()): "get",
        ("status",): "list",
        ("status", "cart"): "get",
        ("logs", "cart"): "get",
    }
    for arguments, verb in expected.items():
        result = rlcore(*arguments, kubeconfig=guest)
        assert result.code == 2
        rights = f'you ({account}) may not {verb} rljobs in API group "rlcore.io" in namespace {namespace}'
        assert result.err.startswith(f"error: {rights}\n")
    cluster.kubectl(
        *("create", "role", "look", "-n", namespace, "--verb=get,list,watch", "--resource=rljobs.rlcore.io")
    )
    cluster.kubectl(
        "create", "rolebinding", "look", "-n", namespace, "--role=look", f"--serviceaccount={namespace}:guest"
    )
    eventually(lambda: rlcore("status", kubeconfig=guest).code == 0, what="the right to list")
    assert "may not patch rljobs" in rlcore("submit", rlcore.manifest(), kubeconfig=guest).err


def test_a_cluster_without_the_crd(rlcore: Cli, monkeypatch: pytest.MonkeyPatch):
    # The API server's answer for a version that nobody serves is its answer for a missing CRD.
    monkeypatch.setattr(kube_module, "VERSION", "v9")
    for arguments in (("status",), ("status", "cart"), ("submit", rlcore.manifest())):
        result = rlcore(*arguments)
        assert result.code == 2
        assert (
            "its CustomResourceDefinition rljobs.rlcore.io is not installed\n  -> install the operator: helm install"
            in (result.err)
        )


def test_wrong_credentials_and_a_wrong_authority(rlcore: Cli, cluster: Cluster, tmp_path: Path):
    authority = cluster.control_plane.authority.certificate
    wrong = write_kubeconfig(tmp_path / "wrong", cluster.server, authority, "no-such-token")
    assert "does not accept your credentials (401 Unauthorized)" in rlcore("status", kubeconfig=wrong).err
    document = json.loads(wrong.read_text())
    del document["clusters"][0]["cluster"]["certificate-authority"]
    wrong.write_text(json.dumps(document))
    shown = rlcore("status", kubeconfig=wrong).err
    assert "cannot be reached: its certificate is not trusted: " in shown
    assert "certificate-authority" in shown


def test_status_lists_the_jobs(rlcore: Cli, job: Job):
    job.set_status(phase="Running", training={"timesteps": 1_234_567, "timestepsPerSecond": 900.0})
    head, line = rlcore("status").out.splitlines()
    assert head.split()[:4] == ["NAME", "ALGORITHM", "ENVIRONMENT", "PHASE"]
    assert line.split()[:7] == ["cart", "PPO", "CartPole-v1", "Running", "-", "1,234,567", "900"]
    everywhere = rlcore("status", "-A").out
    assert re.search(rf"^{job.namespace} +cart ", everywhere, re.MULTILINE)
    listed = json.loads(rlcore("status", "-o", "json").out)["items"]
    assert [item["metadata"]["name"] for item in listed] == ["cart"]


def test_status_of_an_empty_namespace(rlcore: Cli, namespace: str):
    result = rlcore("status")
    assert (result.code, result.out, result.err) == (0, "", f"no RLJobs in namespace {namespace}\n")


def test_status_of_one_job(rlcore: Cli, job: Job):
    job.set_status(
        phase="Provisioning",
        conditions=[
            {
                "type": "Provisioned",
                "status": "False",
                "reason": "QuotaExceeded",
                "message": "8 of 4 CPUs are asked for",
            }
        ],
        evaluators={"target": 2, "replicas": 1, "ready": 0, "pools": [{"name": "spot", "target": 2, "ready": 0}]},
    )
    page = rlcore("status", "cart").out
    assert "phase         Provisioning\n              QuotaExceeded: 8 of 4 CPUs are asked for\n" in page
    assert "spot  2       -      0\n" in page
    found = json.loads(rlcore("status", "cart", "-o", "json").out)
    assert found["status"]["phase"] == "Provisioning"
    assert "managedFields" not in found["metadata"]


@pytest.mark.usefixtures("job")
def test_a_job_that_is_not_there(rlcore: Cli, namespace: str):
    for command in ("status", "logs"):
        result = rlcore(command, "carts")
        assert result.code == 2
        assert result.err == f"error: there is no RLJob carts in namespace {namespace}\n  -> did you mean cart?\n"


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_watch_prints_each_transition_and_ends_with_the_job(
    rlcore: Cli, job: Job, tmp_path: Path, phase: str, code: int
):
    with in_background(tmp_path, rlcore.kubeconfig, "status", "cart", "--watch") as watch:
        watch.says("cart: phase none yet\n")
        job.set_status(phase="Provisioning")
        watch.says("cart: phase Provisioning\n")
        job.set_status(phase="Running", training={"timesteps": 5, "timestepsPerSecond": 10.0}, preemptions=1)
        watch.says("cart: phase Provisioning -> Running\n")
        watch.says("cart: 1 pod lost to preemption so far\n")
        watch.says("cart: 5 timesteps, 10 timesteps/s\n")
        kind = "Complete" if phase == "Succeeded" else "Failed"
        ended = {"type": kind, "status": "True", "reason": "Done", "message": "that was it"}
        job.set_status(phase=phase, conditions=[ended], training={"timesteps": 9})
        assert watch.ends() == code
        assert f"cart: phase Running -> {phase} (Done: that was it)\n" in watch.out
        assert watch.out.endswith("cart: 9 timesteps, 10 timesteps/s\n")
        assert all(re.match(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ cart: ", line) for line in watch.out.splitlines())
        assert watch.err == ""


def test_watch_outlives_the_api_server(rlcore: Cli, cluster: Cluster, job: Job, tmp_path: Path):
    with in_background(tmp_path, rlcore.kubeconfig, "status", "cart", "-w") as watch:
        watch.says("phase none yet")
        cluster.stop_api_server()
        watch.says("cannot be reached")
        cluster.start_api_server()
        job.set_status(phase="Running")
        watch.says("the cluster answers again")
        watch.says("phase Running")
        job.set_status(phase="Succeeded")
        assert watch.ends() == 0


def test_watch_of_a_job_that_is_deleted(rlcore: Cli, cluster: Cluster, job: Job, tmp_path: Path):
    with in_background(tmp_path, rlcore.kubeconfig, "status", "cart", "-w") as watch:
        watch.says("phase none yet")
        cluster.kubectl("delete", "rljob", "cart", "-n", job.namespace)
        assert watch.ends() == 2
        assert watch.err == f"error: RLJob cart in namespace {job.namespace} was deleted\n"


def test_watch_of_all_jobs_until_ctrl_c(rlcore: Cli, job: Job, tmp_path: Path):
    with in_background(tmp_path, rlcore.kubeconfig, "status", "--watch") as watch:
        watch.says("cart: phase none yet")
        job.set_status(phase="Failed")
        watch.says("cart: phase Failed")
        assert rlcore("submit", rlcore.manifest(**{"name: cart": "name: other"})).code == 0
        watch.says("other: phase none yet")
        watch.interrupt()
        assert watch.ends() == 130
        assert watch.err == "stopped watching\n"


def test_watch_for_programs(rlcore: Cli, job: Job, tmp_path: Path):
    with in_background(tmp_path, rlcore.kubeconfig, "status", "cart", "--watch", "-o", "json") as watch:
        watch.says('"name": "cart"')
        job.set_status(phase="Succeeded")
        assert watch.ends() == 0
        assert [json.loads(line).get("status", {}).get("phase") for line in watch.out.splitlines()] == [
            None,
            "Succeeded",
        ]


def test_a_watch_that_the_server_has_forgotten_starts_anew(rlcore: Cli, job: Job, monkeypatch: pytest.MonkeyPatch):
    from rlcore.cli import kube_watch
    from rlcore.cli.kube_config import connect
    from rlcore.cli.kube_options import Where

    listed = kube_watch._list

    def too_old(*arguments: object) -> tuple[object, str]:
        jobs, _ = listed(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(kube_watch, "_list", listed)
        job.set_status(phase="Running")
        return jobs, "1"

    monkeypatch.setattr(kube_watch, "_list", too_old)
    kube = connect(Where(str(rlcore.kubeconfig)))
    for snapshot in watch_jobs(kube, job.namespace, "cart"):
        assert snapshot.trouble is None
        if snapshot.jobs[job.namespace, "cart"].get("status"):
            break


def test_submit_and_wait(rlcore: Cli, cluster: Cluster, namespace: str, tmp_path: Path):
    manifest = rlcore.manifest()
    with in_background(tmp_path, rlcore.kubeconfig, "submit", manifest, "--wait", "--timeout", "5m") as waiting:
        waiting.says("cart: phase none yet")
        Job(cluster, namespace).set_status(phase="Failed")
        assert waiting.ends() == 1
    again = rlcore("submit", manifest, "--wait")
    assert again.code == 1
    assert "it has failed already: to train it anew, delete it first or choose another name" in again.out


def test_waiting_for_a_finished_job_with_a_new_goal(rlcore: Cli, job: Job):
    job.set_status(phase="Succeeded", observedGeneration=1)
    changed = rlcore.manifest(**{"200000": "300000"})
    assert rlcore("submit", changed, "--wait", "--timeout", "1s").code == 124
    job.set_status(observedGeneration=2)
    assert rlcore("submit", changed, "--wait", "--timeout", "1m").code == 0


@pytest.mark.usefixtures("job")
def test_waiting_has_an_end(rlcore: Cli):
    result = rlcore("submit", rlcore.manifest(), "--wait", "--timeout", "1s")
    assert result.code == 124
    assert result.err == "cart has not finished within 1 s; the job itself goes on\n"


def test_a_terminal_gets_a_live_page(rlcore: Cli, job: Job):
    job.set_status(phase="Running", startedAt="2026-01-01T00:00:00Z")
    main, side = pty.openpty()
    command = [sys.executable, "-m", "rlcore", "status", "cart", "--watch", "--kubeconfig", str(rlcore.kubeconfig)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=environment, preexec_fn=hear_ctrl_c)
    os.close(side)
    os.set_blocking(main, False)
    shown = Screen(main)
    try:
        eventually(lambda: "Running" in shown.text() and "started" in shown.text(), 60, what="the page")
        job.set_status(phase="Suspended")
        eventually(lambda: "Suspended" in shown.text(), 60, what="the new phase")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert shown.text().rstrip().endswith("stopped watching; the job itself goes on")
        assert "Traceback" not in shown.text()
        assert "\x1b[?25h" in shown.text(), "the cursor is back"
    finally:
        process.kill()
        process.wait()
        os.close(main)


class Screen:
    """All that was written to a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._seen = descriptor, b""

    def text(self) -> str:
        try:
            while piece := os.read(self._descriptor, 65_536):
                self._seen += piece
        except OSError:
            pass  # nothing more, or nobody is left on the other side
        return self._seen.decode(errors="replace")
