"""What the operator's ServiceAccount may do, asked of a real API server: the verbs it uses, and nothing else."""

from __future__ import annotations

import functools
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kubernetes import client

from tests.controlplane.chart import CHART, Chart
from tests.kube.cluster import Cluster
from tests.kube.wait import eventually

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
GRANTED = {
    "rlcore.io/rljobs": "list watch delete",
    "rlcore.io/rljobs/status": "patch",
    "ray.io/rayjobs": "get list watch create delete",
    "ray.io/rayclusters": "list watch patch",
    "/pods": "list watch patch delete",
    "/configmaps": "get create patch",
    "/persistentvolumeclaims": "get create",
    "/events": "create patch",
}
LEASES = {"coordination.k8s.io/leases": "create"}
"""Of any name; the rest only on the operator's own."""
REFUSED = [
    "/secrets",
    "/serviceaccounts",
    "/serviceaccounts/token",
    "/services",
    "/nodes",
    "/namespaces",
    "/persistentvolumes",
    "/pods/exec",
    "/pods/log",
    "/pods/eviction",
    "/pods/ephemeralcontainers",
    "/pods/status",
    "apps/deployments",
    "batch/jobs",
    "rlcore.io/rljobs/scale",
    "rlcore.io/rljobs/finalizers",
    "ray.io/rayjobs/status",
    "ray.io/rayclusters/status",
    "coordination.k8s.io/leases",
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/clusterrolebindings",
    "apiextensions.k8s.io/customresourcedefinitions",
    "admissionregistration.k8s.io/validatingadmissionpolicies",
]
RESOURCES = tuple(dict.fromkeys((*GRANTED, *REFUSED)))
OURS = {"app.kubernetes.io/managed-by": "rljob-operator"}


class Request(NamedTuple):
    """One thing that somebody may do, or not."""

    resource: str
    verb: str


class Installed(NamedTuple):
    """The chart's rights without its pods, as tests run the operator."""

    cluster: Cluster
    release: str
    namespace: str

    def allowed(self, namespace: str, name: str = "", user: str = "") -> set[Request]:
        """All that the ServiceAccount (or another user) may do with RESOURCES in a namespace."""
        user = user or f"system:serviceaccount:{self.namespace}:{self.release}"
        ask = functools.partial(may, self.cluster.api, user, namespace, name)
        requests = [Request(resource, verb) for resource in RESOURCES for verb in VERBS]
        with ThreadPoolExecutor(8) as pool:
            return {request for request, answer in zip(requests, pool.map(ask, requests), strict=True) if answer}

    def send(self, method: str, path: str, body: Any = None, kind: str = "merge-patch+json", dry: bool = False) -> str:
        """One request as the operator, who may not even read what it patches; what was said, good or bad."""
        token = self.cluster.token_for(self.namespace, self.release)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": f"application/{kind}"}
        url = f"{self.cluster.server}/{path}{'?dryRun=All' if dry else ''}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        context = ssl.create_default_context(cafile=str(self.cluster.control_plane.authority.certificate))
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                return f"{answer.status} {answer.read().decode()}"
        except urllib.error.HTTPError as error:
            with error:
                return f"{error.code} {error.read().decode()}"

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        """kubectl as the operator; what it said, good or bad."""
        kubeconfig = self.cluster.kubeconfig_for(self.namespace, self.release)
        done = self.cluster.kubectl(*args, input=stdin, kubeconfig=kubeconfig, check=False)
        return done.stdout + done.stderr


def may(api: client.ApiClient, user: str, namespace: str, name: str, request: Request) -> bool:
    group, _, path = request.resource.partition("/")
    resource, _, subresource = path.partition("/")
    groups = ["system:authenticated", "system:serviceaccounts"]
    attributes = {"group": group, "resource": resource, "subresource": subresource, "verb": request.verb}
    attributes |= {"namespace": namespace, "name": name}
    review = {"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}}
    return bool(client.AuthorizationV1Api(api).create_subject_access_review(review).status.allowed)


def grants(*tables: dict[str, str]) -> set[Request]:
    return {Request(res, verb) for table in tables for res, verbs in table.items() for verb in verbs.split()}


def install(cluster: Cluster, folder: Path, release: str, **values: Any) -> Installed:
    # The CRD belongs to other tests, and rights do not depend on it.
    values = {"replicaCount": 0, "crds": {"install": False}, **values}
    args = (release, CHART, "--namespace", release, "--create-namespace")
    cluster.helm("install", *args, "--values", Chart(cluster, folder).values(values))
    installed = Installed(cluster, release, release)
    first = Request("coordination.k8s.io/leases", "create")
    user = f"system:serviceaccount:{release}:{release}"
    eventually(lambda: may(cluster.api, user, release, "", first), what="the rights to be known")
    return installed


@pytest.fixture(scope="module")
def everywhere(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    yield install(cluster, tmp_path_factory.mktemp("values"), "rljob-operator-wide")
    cluster.helm("uninstall", "rljob-operator-wide", "--namespace", "rljob-operator-wide")


@pytest.fixture(scope="module")
def namespaced(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    for name in ("chart-team-a", "chart-team-b"):
        cluster.create_namespace(name)
    folder, name = tmp_path_factory.mktemp("values"), "rljob-operator-narrow"
    yield install(cluster, folder, name, watchNamespaces=["chart-team-a", "chart-team-b"])
    cluster.helm("uninstall", name, "--namespace", name)


# RBAC --------------------


def test_cluster_wide_rights_are_the_verbs_that_it_uses(everywhere: Installed) -> None:
    assert everywhere.allowed("default") == grants(GRANTED)
    assert everywhere.allowed(everywhere.namespace) == grants(GRANTED, LEASES)


def test_namespaced_rights_end_at_its_namespaces(namespaced: Installed) -> None:
    for namespace in ("chart-team-a", "chart-team-b"):
        assert namespaced.allowed(namespace) == grants(GRANTED)
    assert namespaced.allowed("default") == set()
    assert namespaced.allowed("") == set()
    assert namespaced.allowed(namespaced.namespace) == grants(LEASES)


def test_only_its_own_lease_can_be_written(everywhere: Installed) -> None:
    leases = {r.verb for r in everywhere.allowed(everywhere.namespace, "rljob-operator") if "leases" in r.resource}
    assert leases == {"create", "get", "update"}
    assert not {r for r in everywhere.allowed("kube-system", "rljob-operator") if "leases" in r.resource}


def test_secrets_and_new_pods_are_out_of_reach(everywhere: Installed, namespaced: Installed) -> None:
    pod = json.dumps(pod_manifest("mine", OURS))
    for installed, namespace in ((everywhere, "default"), (namespaced, "chart-team-a")):
        assert "Forbidden" in installed.kubectl("get", "secrets", "-n", namespace)
        assert "Forbidden" in installed.kubectl("create", "-n", namespace, "-f", "-", stdin=pod)
    assert "Forbidden" in namespaced.kubectl("get", "pods", "-n", "default")
    assert "No resources found" in namespaced.kubectl("get", "pods", "-n", "chart-team-a")


@pytest.mark.parametrize(
    ("role", "jobs", "scale"),
    [
        ("view", "get list watch", "get"),
        ("edit", "get list watch create update patch delete deletecollection", "get update patch"),
        ("admin", "get list watch create update patch delete deletecollection", "get update patch"),
    ],
)
def test_built_in_roles_include_rljobs(everywhere: Installed, namespace: str, role: str, jobs: str, scale: str) -> None:
    user = f"a-person-with-{role}"
    everywhere.cluster.kubectl(
        "create", "rolebinding", role, f"--clusterrole={role}", f"--user={user}", "-n", namespace
    )

    def rights() -> set[Request]:
        return {r for r in everywhere.allowed(namespace, user=user) if r.resource.startswith("rlcore.io/")}

    wanted = grants({"rlcore.io/rljobs": jobs, "rlcore.io/rljobs/scale": scale, "rlcore.io/rljobs/status": "get"})
    # A controller gathers them.
    eventually(lambda: rights() == wanted, what=f"rights of {role}")


# Admission policy --------------------


def pod_manifest(name: str, labels: dict[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": "some/image:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [container]},
    }


@pytest.fixture
def pods(everywhere: Installed, namespace: str) -> str:
    """Path of a namespace's pods, of which there are two, ours and foreign; the policy is in force there."""
    for name, labels in (("ours", OURS), ("foreign", {"app": "web"})):
        everywhere.cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(pod_manifest(name, labels)))
    path, patch = f"api/v1/namespaces/{namespace}/pods", {"metadata": {"labels": {"a": "b"}}}
    only = "changes only the annotations"
    eventually(lambda: only in everywhere.send("PATCH", f"{path}/ours", patch, dry=True), what="the policy")
    return path


@pytest.mark.parametrize("suffix", ["", "-objects"])
def test_policy_compiles_without_warnings(everywhere: Installed, suffix: str) -> None:
    name = f"{everywhere.release}-{everywhere.namespace}{suffix}"
    api = client.AdmissionregistrationV1Api(everywhere.cluster.api)

    def checked() -> Any:
        policy = api.read_validating_admission_policy(name)
        return policy.status if policy.status.observed_generation == policy.metadata.generation else None

    status = eventually(checked, what="the type check of the policy")
    assert not status.type_checking.expression_warnings


def test_annotations_of_our_pods_can_be_patched(everywhere: Installed, pods: str) -> None:
    for value in ("1", None):
        patch = {"metadata": {"annotations": {"rlcore.io/config-touched": value}}}
        assert everywhere.send("PATCH", f"{pods}/ours", patch).startswith("200 ")


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}},
        {"metadata": {"finalizers": ["example.com/stay"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "b"}]}},
        {"spec": {"containers": [{"name": "main", "image": "another/image:1"}]}},
        {"spec": {"activeDeadlineSeconds": 1}},
        {"metadata": {"annotations": {"a": "b"}}, "spec": {"activeDeadlineSeconds": 1}},
    ],
    ids=json.dumps,
)
def test_nothing_else_of_our_pods_can_be_patched(everywhere: Installed, pods: str, patch: dict[str, Any]) -> None:
    said = everywhere.send("PATCH", f"{pods}/ours", patch, "strategic-merge-patch+json")
    assert "the RLJob operator changes only the annotations of a pod" in said
    # Somebody else may.
    args = ("pod/ours", "-n", pods.split("/")[3], "--type=strategic", "-p", json.dumps(patch))
    everywhere.cluster.kubectl("patch", *args, "--dry-run=server")


def test_foreign_pods_are_left_alone(everywhere: Installed, pods: str) -> None:
    refusal = "the RLJob operator touches only pods labelled app.kubernetes.io/managed-by=rljob-operator"
    for metadata in ({"annotations": {"a": "b"}}, {"labels": OURS}):
        assert refusal in everywhere.send("PATCH", f"{pods}/foreign", {"metadata": metadata})
    assert refusal in everywhere.send("DELETE", f"{pods}/foreign")
    assert refusal in everywhere.send("DELETE", f"{pods}/foreign", {"gracePeriodSeconds": 0}, "json")


def test_of_our_pods_only_a_head_that_is_going_can_be_deleted(everywhere: Installed, pods: str) -> None:
    refusal = "the RLJob operator deletes only a head pod that is being deleted already"
    at_once = ({"gracePeriodSeconds": 0}, "json")
    assert refusal in everywhere.send("DELETE", f"{pods}/ours", *at_once)
    head = pod_manifest("head", {**OURS, "rlcore.io/role": "head"})
    head["metadata"]["finalizers"] = ["example.com/stay"]
    admin = functools.partial(everywhere.cluster.kubectl, "-n", pods.split("/")[3])
    admin("create", "-f", "-", input=json.dumps(head))
    assert refusal in everywhere.send("DELETE", f"{pods}/head", *at_once)
    admin("delete", "pod/head", "--wait=false")
    said = everywhere.send("DELETE", f"{pods}/head", *at_once)
    admin("patch", "pod/head", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
    assert said.startswith("200 ")


def config(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": {"a": "b"},
    }


def test_only_labelled_config_maps_can_be_made_and_changed(everywhere: Installed, namespace: str) -> None:
    for name, found in (("foreign", {}), ("ours", OURS)):
        everywhere.cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(config(name, found)))
    path, patch = f"api/v1/namespaces/{namespace}/configmaps", {"data": {"a": "c"}}
    touches, makes = (f"the RLJob operator {verb} only objects labelled" for verb in ("touches", "makes"))
    eventually(lambda: touches in everywhere.send("PATCH", f"{path}/foreign", patch, dry=True), what="the policy")
    assert everywhere.send("PATCH", f"{path}/ours", patch).startswith("200 ")
    labels = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}
    assert makes in everywhere.send("PATCH", f"{path}/ours", labels)
    assert makes in everywhere.send("POST", path, config("more", {}), "json")
    assert everywhere.send("POST", path, config("more", OURS), "json").startswith("201 ")


def test_a_ray_job_belongs_to_an_rljob(everywhere: Installed, namespace: str) -> None:
    metadata: dict[str, Any] = {"name": "some", "labels": OURS}
    ray_job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": {"entrypoint": "true"}}
    path, refusal = f"apis/ray.io/v1/namespaces/{namespace}/rayjobs", "makes only RayJobs that belong to an RLJob"
    eventually(lambda: refusal in everywhere.send("POST", path, ray_job, "json", dry=True), what="the policy")
    metadata["ownerReferences"] = [{"apiVersion": "rlcore.io/v1alpha1", "kind": "RLJob", "name": "some", "uid": "u"}]
    assert everywhere.send("POST", path, ray_job, "json", dry=True).startswith("201 ")


def test_policy_binds_the_operator_alone(everywhere: Installed, namespaced: Installed, pods: str) -> None:
    """Another install's operator has a policy of its own; people and controllers have none."""
    policies = client.AdmissionregistrationV1Api(everywhere.cluster.api).list_validating_admission_policy().items
    conditions = [
        c.expression for p in policies for c in p.spec.match_conditions if "rljob-operator" in p.metadata.name
    ]
    for installed in (everywhere, namespaced):
        user = f"system:serviceaccount:{installed.namespace}:{installed.release}"
        assert f'request.userInfo.username == "{user}"' in conditions
    for args in (("label", "pod/foreign", "a=b"), ("delete", "pod/foreign", "--wait=false")):
        everywhere.cluster.kubectl(*args, "-n", pods.split("/")[3])
