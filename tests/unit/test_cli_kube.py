"""The pure parts of the cluster commands: kubeconfigs, answers of the API server, differences."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlcore.cli import kube as kube_module
from rlcore.cli.apply import field_changes, without_servers_own
from rlcore.cli.kube import warning_texts
from rlcore.cli.kube_config import choose_context, kubeconfig_files, read_kubeconfig
from rlcore.cli.kube_errors import Asked, KubeError, no_such_job, refusal
from rlcore.cli.kube_options import Where
from rlcore.cli.main import run_cli
from rlcore.cli.submit import choose_namespace
from rlcore.errors import UserError

APPLY = Asked("patch", "rljobs", "rlcore.io", "team", "pong")


def body(message: str = "", reason: str = "", **details: Any) -> str:
    """A Status object as the API server answers with it."""
    return json.dumps({"kind": "Status", "message": message, "reason": reason, "details": details})


def cause(field: str, message: str, reason: str = "FieldValueInvalid") -> dict[str, str]:
    return {"field": field, "message": message, "reason": reason}


REFUSALS = {
    "fields": (
        422,
        body(
            'RLJob.rlcore.io "pong" is invalid',
            "Invalid",
            causes=[
                cause("spec.stop.timesteps", "Invalid value: -5: spec.stop.timesteps in body should be at least 1"),
                cause("spec.algorithm", 'Unsupported value: "X": supported values: "PPO"'),
                cause("<nil>", "Invalid value: null: some validation rules were not checked"),
            ],
        ),
        "the API server refused RLJob pong\n"
        "  spec.stop.timesteps: Invalid value: -5: should be at least 1\n"
        '  spec.algorithm: Unsupported value: "X": supported values: "PPO"',
        None,
    ),
    "immutable": (
        422,
        body(causes=[cause("spec.environment", "Invalid value: environment cannot change after creation")]),
        "spec.environment: Invalid value: environment cannot change after creation",
        "delete the job first",
    ),
    "unknown field": (
        500,
        body(
            "failed to create typed patch object (/pong; rlcore.io/v1alpha1, Kind=RLJob): "
            ".spec.stopp: field not declared in schema"
        ),
        "the API server refused RLJob pong\n  spec.stopp: field not declared in schema",
        None,
    ),
    "unknown fields": (
        500,
        body(
            "failed to create typed patch object (/pong; rlcore.io/v1alpha1, Kind=RLJob): errors:\n"
            "  .spec.a: field not declared in schema\n  .spec.b: expected numeric (int or float), got string"
        ),
        "the API server refused RLJob pong\n  spec.a: field not declared in schema\n"
        "  spec.b: expected numeric (int or float), got string",
        None,
    ),
    "strict": (
        400,
        body('strict decoding error: unknown field "spec.a", unknown field "spec.b"', "BadRequest"),
        'the API server refused RLJob pong\n  unknown field "spec.a"\n  unknown field "spec.b"',
        None,
    ),
    "conflict": (
        409,
        body(
            "Apply failed with 1 conflict",
            "Conflict",
            causes=[
                cause(
                    ".spec.evaluators.replicas",
                    'conflict with "kubectl" with subresource "scale" using v1',
                    "FieldManagerConflict",
                )
            ],
        ),
        "others have set fields of RLJob pong that your manifest sets to something else\n"
        "  spec.evaluators.replicas: set by kubectl",
        "--force-conflicts",
    ),
    "rights": (
        403,
        body(
            'rljobs.rlcore.io "pong" is forbidden: User "jane" cannot patch resource "rljobs" in API group "rlcore.io" '
            'in the namespace "team"',
            "Forbidden",
        ),
        'you (jane) may not patch rljobs in API group "rlcore.io" in namespace team',
        "`kubectl auth can-i patch rljobs.rlcore.io -n team`",
    ),
    "policy": (
        403,
        body('rljobs.rlcore.io "pong" is forbidden: ValidatingAdmissionPolicy "p" denied request: no', "Forbidden"),
        'the cluster refused to patch rljobs in namespace team: rljobs.rlcore.io "pong" is forbidden: '
        'ValidatingAdmissionPolicy "p" denied request: no',
        None,
    ),
    "no namespace": (
        404,
        body('namespaces "team" not found', "NotFound", name="team", kind="namespaces"),
        "there is no namespace team",
        "kubectl create namespace team",
    ),
    "no CRD": (
        404,
        "404 page not found\n",
        "its CustomResourceDefinition rljobs.rlcore.io is not installed",
        "helm install",
    ),
    "no object": (
        404,
        body('rljobs.rlcore.io "pong" not found', "NotFound", name="pong", kind="rljobs"),
        "there is no RLJob pong in namespace team",
        None,
    ),
    "credentials": (401, body("Unauthorized", "Unauthorized"), "does not accept your credentials", "log in again"),
    "overloaded": (
        429,
        body("too many requests, please try again later", "TooManyRequests"),
        "the API server refused to patch rljobs in namespace team (429): too many requests, please try again later",
        None,
    ),
    "a proxy's page": (
        502,
        "<html>\n<h1>Bad Gateway</h1>",
        "the API server refused to patch rljobs in namespace team (502): <html>",
        None,
    ),
    "nothing": (500, "", "the API server refused to patch rljobs in namespace team (500): no reason given", None),
    "not a Status": (500, "[1]", "(500): [1]", None),
}


@pytest.mark.parametrize(("code", "answer", "message", "hint"), REFUSALS.values(), ids=REFUSALS)
def test_what_the_api_server_refuses_and_what_to_do(code: int, answer: str, message: str, hint: str | None):
    error = refusal(code, answer.encode(), APPLY)
    assert message in error.message
    assert (hint or "") in (error.hint or "")
    assert (error.hint is None) == (hint is None)
    assert error.code == code


def test_many_problems_are_counted():
    causes = [cause(f"spec.f{number}", "no") for number in range(30)]
    lines = refusal(422, body(causes=causes), APPLY).message.splitlines()
    assert len(lines) == 22
    assert lines[-1] == "  and 10 more"


def test_a_kubelet_that_the_api_server_cannot_reach():
    answer = body(
        'Internal error: Get "https://10.0.0.7:10250/containerLogs/team/w/ray-worker": dial tcp 10.0.0.7:10250: timeout'
    )
    error = refusal(500, answer, Asked("get", "pods/log", "", "team", "w"))
    assert error.message == "the API server cannot reach the kubelet of w's node: dial tcp 10.0.0.7:10250: timeout"
    assert "kubectl get pod w -n team -o wide" in (error.hint or "")


def test_rights_on_a_subresource_and_in_all_namespaces():
    message = (
        'pods "w" is forbidden: User "jane" cannot create resource "pods/exec" in API group "" in the namespace "t"'
    )
    error = refusal(403, body(message), Asked("create", "pods/exec", "", "t", "w"))
    assert error.message == 'you (jane) may not create pods/exec in API group "" in namespace t'
    message = 'User "jane" cannot list resource "rljobs" in API group "rlcore.io" at the cluster scope'
    error = refusal(403, body(message), Asked("list", "rljobs", "rlcore.io"))
    assert error.message == 'you (jane) may not list rljobs in API group "rlcore.io" in all namespaces'
    assert "--all-namespaces" in (error.hint or "")


@pytest.mark.parametrize(
    ("names", "near", "hint"),
    [
        (["pong", "pond"], ["pong", "pond"], "did you mean pong or pond?"),
        (["b", "a"], [], "there are: a, b"),
        ([f"j{number:02}" for number in range(12)], [], "j09 and 2 more"),
        ([], [], "`rlcore status -A`"),
    ],
)
def test_a_job_that_is_not_there(names: list[str], near: list[str], hint: str):
    assert hint in (no_such_job("pongg", "team", names, near=near).hint or "")


def test_which_kubeconfigs_are_read():
    both = os.pathsep.join(["/a", "", "/b"])
    assert kubeconfig_files("/mine", {"KUBECONFIG": both}) == [Path("/mine")]
    assert kubeconfig_files(None, {"KUBECONFIG": both}) == [Path("/a"), Path("/b")]
    assert kubeconfig_files(None, {"KUBECONFIG": ""}) == [Path("~/.kube/config").expanduser()]


def config(path: Path, current: str | None, *names: str) -> Path:
    """A kubeconfig with contexts in namespaces of their own names, each at a server that does not answer."""
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u", "namespace": name}} for name in names]
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": contexts,
        **({"current-context": current} if current else {}),
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_first_kubeconfig_wins(tmp_path: Path):
    merged = read_kubeconfig([config(tmp_path / "a", None, "x"), config(tmp_path / "b", "y", "y", "x")])
    assert merged.current == "y"
    assert set(merged.contexts) == {"x", "y"}
    assert choose_context(merged, "x", "files") == ("x", {"cluster": "c", "user": "u", "namespace": "x"})


@pytest.fixture
def no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No kubeconfig anywhere, and a place for one."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "config"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command line says when it ends with exit code 2."""
    assert run_cli(list(arguments)) == 2
    return capsys.readouterr().err


def test_no_kubeconfig(no_cluster: Path, capsys: pytest.CaptureFixture[str]):
    shown = refused(capsys, "status")
    assert shown.startswith(f"error: there is no kubeconfig: no file {no_cluster.parent}/.kube/config\n  -> give one")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "cannot be read as a kubeconfig"),
        ("[1]", "is not a kubeconfig"),
        ("", "is not a kubeconfig"),
        ("contexts: []", "has no current context"),
        (
            "{current-context: x, contexts: [{name: x, context: {cluster: nope}}], clusters: []}",
            "cannot be used with context x",
        ),
        ("{current-context: x, contexts: [{name: x}]}", "cannot be used with context x"),
        ("{current-context: x, contexts: 7}", "has no context x"),
    ],
)
def test_a_broken_kubeconfig(no_cluster: Path, capsys: pytest.CaptureFixture[str], content: str, message: str):
    no_cluster.write_text(content)
    assert message in refused(capsys, "status", "--kubeconfig", str(no_cluster))


def test_a_context_that_is_not_there(no_cluster: Path, capsys: pytest.CaptureFixture[str]):
    path = str(config(no_cluster, "kind", "kind", "prod"))
    assert "did you mean prod?" in refused(capsys, "status", "--kubeconfig", path, "--context", "prods")
    assert "there are: kind, prod" in refused(capsys, "status", "--kubeconfig", path, "--context", "zzz")


def test_a_login_command_that_fails(no_cluster: Path, capsys: pytest.CaptureFixture[str]):
    document = yaml.safe_load(config(no_cluster, "kind", "kind").read_text())
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-login-command", "args": []}
    document["users"] = [{"name": "u", "user": {"exec": login}}]
    no_cluster.write_text(yaml.safe_dump(document))
    shown = refused(capsys, "status", "--kubeconfig", str(no_cluster))
    assert shown.startswith("error: the login command of context kind failed: ")
    assert "no-such-login-command" in shown
    assert len(shown.splitlines()) == 2


def test_a_cluster_that_is_not_there(no_cluster: Path, capsys: pytest.CaptureFixture[str]):
    shown = refused(capsys, "status", "--kubeconfig", str(config(no_cluster, "kind", "kind")))
    assert shown.startswith("error: the cluster at http://127.0.0.1:1 cannot be reached: ")
    assert "refused" in shown
    assert "kubectl cluster-info" in shown


def test_a_cluster_that_does_not_answer(
    no_cluster: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kube_module, "READ_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = config(no_cluster, "kind", "kind").read_text()
        no_cluster.write_text(text.replace("127.0.0.1:1", f"127.0.0.1:{server.getsockname()[1]}"))
        assert "cannot be reached: no answer in time" in refused(capsys, "status", "--kubeconfig", str(no_cluster))


def test_a_server_that_is_none_of_kubernetes(no_cluster: Path, capsys: pytest.CaptureFixture[str]):
    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>welcome</html>")

        def log_message(self, *arguments: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.handle_request).start()
        text = config(no_cluster, "kind", "kind").read_text()
        no_cluster.write_text(text.replace("127.0.0.1:1", f"127.0.0.1:{server.server_port}"))
        assert "is no Kubernetes API server" in refused(capsys, "status", "--kubeconfig", str(no_cluster))


def test_warnings_of_the_api_server():
    headers = ['299 - "unknown field \\"spec.a\\""', "nonsense", '299 kube "old"']
    assert warning_texts(headers) == ['unknown field "spec.a"', "old"]


def test_the_client_is_an_extra(no_cluster: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.delitem(sys.modules, "kubernetes.config", raising=False)
    shown = refused(capsys, "logs", "pong", "--kubeconfig", str(config(no_cluster, "kind", "kind")))
    assert "need the package kubernetes, which is not installed\n  -> pip install 'rlcore[kube]'" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit", "job.yaml", "--wait", "--dry-run"),
        ("submit", "job.yaml", "--timeout", "5m"),
        ("submit", "job.yaml", "--wait", "--timeout", "soon"),
        ("status", "pong", "-A"),
        ("status", "-A", "-n", "team"),
        ("logs", "pong", "--pool", "spot", "--role", "learner"),
        ("logs", "pong", "--previous", "-f"),
        ("logs", "pong", "--tail", "-1"),
    ],
)
def test_what_does_not_go_together(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]):
    assert "Error: " in refused(capsys, *arguments)


def test_a_manifest_is_judged_before_any_cluster_is_asked(no_cluster: Path, capsys: pytest.CaptureFixture[str]):
    no_cluster.write_text("{apiVersion: rlcore.io/v1alpha1, kind: RLJob, metadata: {name: x}, spec: {algoritm: PPO}}")
    shown = refused(capsys, "submit", str(no_cluster))
    assert "is not a valid RLJob" in shown
    assert "did you mean algorithm?" in shown


def test_the_commands_import_nothing_heavy():
    for module in ("submit", "status", "logs"):
        code = f"import sys, rlcore.cli.{module}; print(*{{name.split('.')[0] for name in sys.modules}})"
        loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        assert not {"kubernetes", "ray", "torch", "numpy", "rich", "pydantic"} & set(loaded), module


def test_commands_that_lead_to_the_same_place():
    assert Where("/k", "prod", "x").arguments("team") == " --kubeconfig /k --context prod -n team"
    assert Where().arguments("") == ""


def test_the_namespace_of_a_job():
    assert choose_namespace("a", None, "c") == "a"
    assert choose_namespace(None, "b", "c") == "b"
    assert choose_namespace(None, None, "c") == "c"
    with pytest.raises(UserError, match="the manifest is b, and -n says a"):
        choose_namespace("a", "b", "c")


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"spec": {"a": 1, "b": [1]}}, {"spec": {"a": 2, "b": [2]}}, ["spec.a: 1 -> 2", "spec.b: [1] -> [2]"]),
        ({"spec": {"a": 1}}, {"spec": {"b": "x"}}, ["spec.a: removed, was 1", 'spec.b: set to "x"']),
        (
            {"pools": [{"name": "a", "max": 1}, {"name": "b"}]},
            {"pools": [{"name": "c"}, {"name": "a", "max": 2}]},
            ["pools[a].max: 1 -> 2", 'pools[b]: removed, was {"name": "b"}', 'pools[c]: set to {"name": "c"}'],
        ),
        ({"a": {"b": 1}}, {"a": None}, ['a: {"b": 1} -> null']),
    ],
)
def test_changed_fields(before: object, after: object, changes: list[str]):
    assert list(field_changes(before, after)) == changes


def test_what_only_the_api_server_sets_is_left_out():
    manifest = {
        "kind": "RLJob",
        "metadata": {
            "name": "x",
            "uid": "1",
            "managedFields": [],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"},
        },
        "spec": {},
        "status": {"phase": "Running"},
    }
    assert without_servers_own(manifest) == {
        "kind": "RLJob",
        "metadata": {"name": "x", "annotations": {"mine": "1"}},
        "spec": {},
    }


def test_errors_of_a_cluster_are_errors_of_a_user():
    assert isinstance(refusal(500, b"", APPLY), KubeError)
    assert issubclass(KubeError, UserError)
