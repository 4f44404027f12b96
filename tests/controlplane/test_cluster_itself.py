"""The cluster of these tests is a real one, and what they do to it has the effect that they count on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from kubernetes import client, config, watch

from tests.kube.cluster import ROOT, Cluster, CommandFailed
from tests.kube.nodes import GPU, KIND_LABEL, NODE_KINDS, SPOT, NodeKind
from tests.kube.proxy import FaultProxy
from tests.kube.request_info import request_info
from tests.kube.wait import eventually

READY = "--for=condition=Ready"


def pod(name: str, kind: NodeKind | None = None, **spec: Any) -> str:
    """A pod that runs on one kind of node only."""
    chosen = {"nodeSelector": {KIND_LABEL: kind}} if kind else {}
    container = {"name": "main", "image": spec.pop("image", "some/image:1")}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": spec.pop("annotations", {})},
        "spec": {"containers": [container], **chosen, **spec},
    }
    return json.dumps(manifest)


def get(cluster: Cluster, namespace: str, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "-n", namespace, "-o", "json", *what).stdout)
    return found


@pytest.fixture
def rljobs(cluster: Cluster) -> Iterator[None]:
    """The CRD of RLJob; one that is there already, from a chart perhaps, is left as it is."""
    if cluster.kubectl("get", "crd", "rljobs.rlcore.io", check=False).returncode == 0:
        yield
        return
    cluster.kubectl("create", "-f", ROOT / "crds" / "rlcore.io_rljobs.yaml")
    yield
    cluster.kubectl("delete", "crd", "rljobs.rlcore.io")


@pytest.mark.usefixtures("rljobs")
def test_rljob_is_explained(cluster: Cluster) -> None:
    eventually(
        lambda: "learningRate" in cluster.kubectl("explain", "rljob.spec.config").stdout, what="kubectl explain rljob"
    )
    explained = cluster.kubectl("explain", "rljob.spec.config.learningRate").stdout
    description = explained.partition("DESCRIPTION:")[2]
    assert description.strip()
    assert "<empty>" not in description


def test_kuberay_comes_and_goes(cluster: Cluster) -> None:
    cluster.remove_kuberay_crds()
    assert "rayjobs" not in cluster.kubectl("api-resources", "--api-group=ray.io", check=False).stdout
    cluster.install_kuberay_crds()
    served = cluster.kubectl("api-resources", "--api-group=ray.io", "-o", "name").stdout.split()
    assert {"rayclusters.ray.io", "rayjobs.ray.io"} <= set(served)


@pytest.mark.parametrize("kind", NODE_KINDS)
def test_pod_lands_on_its_kind_of_node(cluster: Cluster, namespace: str, kind: NodeKind) -> None:
    tolerations = [{"key": SPOT, "operator": "Exists"}, {"key": GPU, "operator": "Exists"}]
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=pod("one", kind, tolerations=tolerations))
    cluster.kubectl("wait", "-n", namespace, READY, "pod/one", "--timeout=30s")
    assert get(cluster, namespace, "pod/one")["spec"]["nodeName"].startswith(kind)


@pytest.mark.parametrize("kind", [kind for kind in NODE_KINDS if kind != "on-demand-cpu"])
def test_taints_keep_pods_away(cluster: Cluster, namespace: str, kind: NodeKind) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=pod("one", kind))
    cluster.kubectl("wait", "-n", namespace, "--for=condition=PodScheduled=false", "pod/one", "--timeout=30s")
    (condition,) = get(cluster, namespace, "pod/one")["status"]["conditions"]
    assert condition["reason"] == "Unschedulable"


def test_deleted_pod_goes(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=pod("one"))
    cluster.kubectl("wait", "-n", namespace, READY, "pod/one", "--timeout=30s")
    cluster.kubectl("delete", "-n", namespace, "pod/one", "--timeout=30s")
    assert not get(cluster, namespace, "pods")["items"]


def test_pod_fails_when_told(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=pod("one"))
    cluster.kubectl("wait", "-n", namespace, READY, "pod/one", "--timeout=30s")
    failed = json.dumps({"status": {"phase": "Failed", "reason": "Evicted"}})
    cluster.kubectl("patch", "-n", namespace, "pod/one", "--subresource=status", "--type=merge", "-p", failed)
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=pod("two"))
    cluster.kubectl("wait", "-n", namespace, READY, "pod/two", "--timeout=30s")
    assert get(cluster, namespace, "pod/one")["status"]["phase"] == "Failed"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"image": "some/missing:1"}, "ImagePullBackOff"),
        ({"annotations": {"test.rlcore.io/waiting": "CreateContainerConfigError"}}, "CreateContainerConfigError"),
    ],
)
def test_pod_waits_when_told(cluster: Cluster, namespace: str, spec: dict[str, Any], reason: str) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=pod("one", **spec))
    path = "{.status.containerStatuses[0].state.waiting.reason}"
    cluster.kubectl("wait", "-n", namespace, f"--for=jsonpath={path}={reason}", "pod/one", "--timeout=30s")
    assert get(cluster, namespace, "pod/one")["status"]["phase"] == "Pending"


def test_node_vanishes_and_comes_back(cluster: Cluster, namespace: str) -> None:
    name = cluster.add_node("spot-gpu")
    tolerations = [{"operator": "Exists"}]
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=pod("one", nodeName=name, tolerations=tolerations))
    cluster.kubectl("wait", "-n", namespace, READY, "pod/one", "--timeout=30s")
    cluster.remove_node(name)
    assert get(cluster, namespace, "pod/one")["spec"]["nodeName"] == name
    assert cluster.kubectl("get", "node", name, check=False).returncode == 1
    cluster.add_node("spot-gpu", name)
    cluster.kubectl("wait", READY, f"node/{name}", "--timeout=30s")
    cluster.remove_node(name)


def test_broken_node_stays_broken(cluster: Cluster) -> None:
    name = cluster.add_node("on-demand-cpu")
    cluster.kubectl("wait", READY, f"node/{name}", "--timeout=30s")
    broken = json.dumps({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletDead"}]}})
    cluster.kubectl("patch", "node", name, "--subresource=status", "--type=strategic", "-p", broken)

    def tainted() -> bool:
        node = json.loads(cluster.kubectl("get", "node", name, "-o", "json").stdout)
        return {"node.kubernetes.io/not-ready"} <= {taint["key"] for taint in node["spec"].get("taints", ())}

    eventually(tainted, what="the taint of a node that is not ready")
    cluster.remove_node(name)


def test_node_without_kwok_is_left_alone(cluster: Cluster, namespace: str) -> None:
    name = f"stranger-{namespace}"
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=pod("stranger", nodeName=name))
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=pod("neighbour"))
    cluster.kubectl("wait", "-n", namespace, READY, "pod/neighbour", "--timeout=30s")
    assert get(cluster, namespace, "pod/stranger")["status"]["phase"] == "Pending"
    assert not json.loads(cluster.kubectl("get", "node", name, "-o", "json").stdout)["status"].get("conditions")
    cluster.remove_node(name)


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteMany"])
def test_claim_is_bound(cluster: Cluster, namespace: str, mode: str) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "claim", "namespace": namespace},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
    }
    cluster.apply(claim)
    cluster.kubectl("wait", "-n", namespace, "--for=jsonpath={.status.phase}=Bound", "pvc/claim", "--timeout=30s")


def test_owner_takes_what_it_owns_along(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "-n", namespace, "configmap", "owner")
    owner = get(cluster, namespace, "configmap/owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    metadata = {"name": "owned", "namespace": namespace, "ownerReferences": [reference]}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    cluster.kubectl("delete", "-n", namespace, "configmap/owner")
    cluster.kubectl("wait", "-n", namespace, "--for=delete", "configmap/owned", "--timeout=30s")


def test_service_account_may_do_nothing_until_it_is_allowed(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "-n", namespace, "serviceaccount", "nobody")
    nobody = cluster.kubeconfig_for(namespace, "nobody")
    with pytest.raises(CommandFailed, match=f"system:serviceaccount:{namespace}:nobody.* cannot list resource"):
        cluster.kubectl("get", "pods", "-n", namespace, kubeconfig=nobody)
    cluster.kubectl("create", "-n", namespace, "role", "reader", "--verb=list", "--resource=pods")
    account = f"--serviceaccount={namespace}:nobody"
    cluster.kubectl("create", "-n", namespace, "rolebinding", "reader", "--role=reader", account)
    eventually(
        lambda: cluster.kubectl("get", "pods", "-n", namespace, kubeconfig=nobody, check=False).returncode == 0,
        what="the role's effect",
    )


def test_admission_policy_is_enforced(cluster: Cluster, namespace: str) -> None:
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": namespace}}
    cluster.apply(
        {
            **group,
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "matchConstraints": {**where, "resourceRules": [rule]},
                "validations": [{"expression": "object.metadata.name != 'bad'", "message": "no such name"}],
            },
        },
        {
            **group,
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {"policyName": namespace, "validationActions": ["Deny"]},
        },
    )

    def refused() -> bool:
        done = cluster.kubectl("create", "-n", namespace, "configmap", "bad", "--dry-run=server", check=False)
        return "no such name" in done.stderr

    eventually(refused, what="the policy's refusal")
    cluster.kubectl("create", "-n", namespace, "configmap", "good")
    cluster.kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", namespace)


def test_helm_installs(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: chart, version: 1.0.0}")
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "from-helm"}}
    (chart / "templates" / "map.yaml").write_text(json.dumps(manifest))
    cluster.helm("install", "release", chart, "-n", namespace)
    assert get(cluster, namespace, "configmap/from-helm")
    cluster.helm("uninstall", "release", "-n", namespace)


def test_api_server_restart_is_survived(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=pod("before"))
    cluster.stop_api_server()
    assert cluster.kubectl("get", "pods", check=False).returncode == 1
    cluster.start_api_server()
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=pod("after"))
    cluster.kubectl("wait", "-n", namespace, READY, "pod/before", "pod/after", "--timeout=60s")


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[FaultProxy]:
    with FaultProxy(cluster) as running:
        yield running


@pytest.fixture
def through_proxy(proxy: FaultProxy) -> Iterator[client.CoreV1Api]:
    """A client with an administrator's token that tries everything once."""
    settings = client.Configuration()
    config.load_kube_config(str(proxy.kubeconfig), client_configuration=settings)
    settings.proxy = None
    settings.retries = False
    with client.ApiClient(settings) as api:
        yield client.CoreV1Api(api)


def config_map(name: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name))


def test_proxy_counts_what_passes(through_proxy: client.CoreV1Api, proxy: FaultProxy, namespace: str) -> None:
    through_proxy.create_namespaced_config_map(namespace, config_map("one"))
    for _ in range(3):
        through_proxy.list_namespaced_config_map(namespace)
    through_proxy.delete_namespaced_config_map("one", namespace)
    assert proxy.counts == {("create", "configmaps"): 1, ("list", "configmaps"): 3, ("delete", "configmaps"): 1}


def test_proxy_passes_identity_on(proxy: FaultProxy, cluster: Cluster, namespace: str) -> None:
    kubeconfig = proxy.kubeconfig_for(namespace, "default")
    told = cluster.kubectl("auth", "whoami", "-o", "json", kubeconfig=kubeconfig).stdout
    assert json.loads(told)["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"


@pytest.mark.parametrize("status", [409, 429, 500])
def test_proxy_fails_as_told(through_proxy: client.CoreV1Api, proxy: FaultProxy, namespace: str, status: int) -> None:
    fault = proxy.fail(status, count=2, methods=["POST"], path=f"/namespaces/{namespace}/configmaps")
    for _ in range(2):
        through_proxy.list_namespaced_config_map(namespace)
        with pytest.raises(client.ApiException, match="by order of a test") as failure:
            through_proxy.create_namespaced_config_map(namespace, config_map("one"))
        assert failure.value.status == status
    through_proxy.create_namespaced_config_map(namespace, config_map("one"))
    assert fault.hits == 2


def test_proxy_fails_a_share(through_proxy: client.CoreV1Api, proxy: FaultProxy, namespace: str) -> None:
    fault = proxy.fail(500, rate=0.5)
    failures = 0
    for _ in range(40):
        try:
            through_proxy.list_namespaced_config_map(namespace)
        except client.ApiException:
            failures += 1
    assert failures == fault.hits
    assert 10 < failures < 30
    proxy.heal()
    through_proxy.list_namespaced_config_map(namespace)


def test_throttled_client_comes_again(proxy: FaultProxy, cluster: Cluster, namespace: str) -> None:
    fault = proxy.fail(429, count=1, path="/configmaps", retry_after_s=1)
    cluster.kubectl("get", "configmaps", "-n", namespace, kubeconfig=proxy.kubeconfig)
    assert fault.hits == 1
    assert proxy.counts["list", "configmaps"] == 2


def test_proxy_loses_an_answer(through_proxy: client.CoreV1Api, proxy: FaultProxy, namespace: str) -> None:
    proxy.cut(count=1, methods=["POST"], after=True)
    with pytest.raises(urllib3.exceptions.HTTPError):
        through_proxy.create_namespaced_config_map(namespace, config_map("one"))
    assert through_proxy.read_namespaced_config_map("one", namespace)


def test_proxy_is_slow_when_told(through_proxy: client.CoreV1Api, proxy: FaultProxy, namespace: str) -> None:
    proxy.latency_s = 0.5
    started = time.monotonic()
    through_proxy.list_namespaced_config_map(namespace)
    assert time.monotonic() - started >= 0.5


def test_proxy_streams_and_cuts_watches(
    through_proxy: client.CoreV1Api, proxy: FaultProxy, cluster: Cluster, namespace: str
) -> None:
    direct = client.CoreV1Api(cluster.api)
    seen: list[str] = []

    def follow() -> None:
        for event in watch.Watch().stream(through_proxy.list_namespaced_config_map, namespace, _request_timeout=30):
            seen.append(event["object"].metadata.name)
            if len(seen) == 1:
                direct.create_namespaced_config_map(namespace, config_map("first"))
            elif seen[-1] == "first":
                direct.create_namespaced_config_map(namespace, config_map("second"))
            elif seen[-1] == "second":
                proxy.cut_connections()

    with pytest.raises(urllib3.exceptions.HTTPError):
        follow()
    assert seen[-2:] == ["first", "second"]
    assert proxy.counts["watch", "configmaps"] == 1


def test_proxy_outlives_the_api_server(through_proxy: client.CoreV1Api, cluster: Cluster, namespace: str) -> None:
    cluster.stop_api_server()
    with pytest.raises(urllib3.exceptions.HTTPError):
        through_proxy.list_namespaced_config_map(namespace)
    cluster.start_api_server()
    eventually(lambda: through_proxy.list_namespaced_config_map(namespace), what="an answer through the proxy")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/namespaces/ns/pods", ("list", "pods")),
        ("GET", "/api/v1/pods?labelSelector=a&watch=True", ("watch", "pods")),
        ("GET", "/api/v1/namespaces/ns/pods/one/log", ("get", "pods/log")),
        ("GET", "/api/v1/namespaces", ("list", "namespaces")),
        ("DELETE", "/api/v1/namespaces/ns", ("delete", "namespaces")),
        ("PUT", "/api/v1/namespaces/ns/finalize", ("update", "namespaces/finalize")),
        ("DELETE", "/apis/ray.io/v1/namespaces/ns/rayjobs", ("deletecollection", "rayjobs")),
        ("PATCH", "/apis/rlcore.io/v1alpha1/namespaces/ns/rljobs/job/status", ("patch", "rljobs/status")),
        ("POST", "/apis/apps/v1/namespaces/ns/deployments", ("create", "deployments")),
        ("GET", "/apis/ray.io/v1", ("get", "/apis/ray.io/v1")),
        ("GET", "/version", ("get", "/version")),
        ("GET", "/", ("get", "/")),
    ],
)
def test_requests_are_read_as_rbac_reads_them(method: str, path: str, expected: tuple[str, str]) -> None:
    assert request_info(method, path) == expected


def test_waiting_ends_with_the_reason() -> None:
    with pytest.raises(AssertionError, match=r"the moon: not within 0 s; last value: \[\]"):
        eventually(list, deadline_s=0, what="the moon")
    with pytest.raises(AssertionError, match="last error: ZeroDivisionError"):
        eventually(lambda: 1 / 0, deadline_s=0)
