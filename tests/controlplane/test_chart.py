"""What the Helm chart takes and what it renders: strict values, objects that a real API server accepts, true docs.

The API server's own strict validation says more than any schema; test_kubeconform.py has those.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from rljob_operator.settings import Settings, load_settings

from tests.controlplane.chart import (
    CHART,
    CRD,
    EVERYTHING,
    MONITORING_KINDS,
    NAMESPACE,
    NAMESPACED,
    NO_CLUSTER_RIGHTS,
    RELEASE,
    VALUES,
    VARIANTS,
    Chart,
    Values,
    one,
)
from tests.kube.cluster import ROOT, Cluster


@pytest.fixture
def chart(cluster: Cluster, tmp_path: Path) -> Chart:
    return Chart(cluster, tmp_path)


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> Values:
    return VARIANTS[request.param]


def leaves(values: Any, path: str = "") -> Iterator[str]:
    """Dotted paths of all that is not a non-empty mapping."""
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from leaves(value, f"{path}.{key}" if path else key)
    else:
        yield path


# Values --------------------


def test_lint_finds_nothing(chart: Chart, variant: Values) -> None:
    chart.cluster.helm("lint", "--strict", CHART, "--values", chart.values(variant))


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"replicas": 1}, "replicas"),
        ({"replicaCount": -1}, "replicaCount"),
        ({"settings": {"leaderElection": {"enabled": False}}}, "settings.leaderElection.enabled"),
        ({"settings": {"authMode": "none"}}, "settings/authMode"),
        ({"settings": {"resync": 5}}, "resync"),
        ({"settings": {"placement": {"preset": "gcp"}}}, "settings/placement/preset"),
        ({"settings": {"times": {"pollSeconds": 0}}}, "settings/times/pollSeconds"),
        ({"settings": {"port": 80}}, "settings/port"),
        ({"watchNamespaces": ["Team_A"]}, "watchNamespaces/0"),
        ({"watchNamespaces": ["a", "a"]}, "watchNamespaces"),
        ({"image": {"digest": "latest"}}, "image/digest"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name"),
        ({"securityContext": {"runAsRoot": True}}, "securityContext"),
        ({"tolerations": [{"key": "a", "operator": "Like"}]}, "tolerations/0/operator"),
        ({"prometheusRule": {"alerts": {"trainingStalled": {"severity": "red"}}}}, "trainingStalled/severity"),
        ({"prometheusRule": {"alerts": {"trainingStaled": {}}}}, "trainingStaled"),
        ({"podMonitor": {"interval": "often"}}, "podMonitor/interval"),
    ],
)
def test_wrong_values_are_refused_by_name(chart: Chart, values: Values, field: str) -> None:
    assert field in chart.refusal(values)


def test_schema_knows_each_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(node: Any, values: Any, path: str) -> None:
        # Definitions are Kubernetes' own objects: values.yaml sets a part of their fields.
        whole = "$ref" not in node
        node = node if whole else schema["definitions"][node["$ref"].rpartition("/")[2]]
        if "properties" not in node or not values:
            return
        assert node["additionalProperties"] is False, path
        assert set(values) <= set(node["properties"]), path
        assert not whole or set(values) == set(node["properties"]) - (set() if path else {"global", "enabled"}), path
        for key, value in values.items():
            compare(node["properties"][key], value, f"{path}.{key}")

    compare(schema, VALUES, "")


def test_docs_describe_each_value_and_no_other() -> None:
    table = (ROOT / "docs" / "helm.md").read_text().partition("## Values")[2]
    described = re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)
    assert len(described) == len(set(described))
    exist = set(leaves(VALUES))
    for leaf in exist:
        assert any(f"{leaf}.".startswith(f"{path}.") for path in described), f"{leaf} is not described"
    for path in described:
        assert any(f"{leaf}.".startswith(f"{path}.") for leaf in exist), f"{path} is not a value"


def test_values_are_the_operators_settings() -> None:
    # Each field under its own name, but for `namespaces`, which is watchNamespaces.
    theirs = Settings().model_dump(by_alias=True, mode="json")
    del theirs["namespaces"]
    assert set(leaves(VALUES["settings"] | {"gpuTolerations": []})) == set(leaves(theirs | {"gpuTolerations": []}))


def test_operator_reads_the_rendered_settings(chart: Chart, variant: Values, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(one(chart.render(variant), "ConfigMap", RELEASE)["data"]["config.yaml"])
    settings = load_settings(str(path))
    assert settings.namespaces == variant.get("watchNamespaces", [])
    registry = "registry.example.com/team/" if variant is EVERYTHING else ""
    assert (settings.image, settings.gpu_image) == (f"{registry}rlcore-cpu:0.1.0", f"{registry}rlcore-gpu:0.1.0")
    assert settings.placement.preset == ("gke" if variant is EVERYTHING else "none")


def test_changed_settings_restart_the_operator(chart: Chart) -> None:
    def checksum(values: Values) -> str:
        pod = one(chart.render(values), "Deployment")["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) == checksum({"podLabels": {"a": "b"}})
    assert checksum({}) != checksum({"settings": {"workers": 9}})


# What is rendered --------------------


def test_api_server_accepts_every_object(chart: Chart, variant: Values) -> None:
    manifests = chart.render(variant)
    namespaces = {m["metadata"]["namespace"] for m in manifests if "namespace" in m["metadata"]}
    known = [m for m in manifests if m["kind"] not in MONITORING_KINDS]
    assert len(known) >= 9
    # Its own ServiceAccount is not there in a dry run.
    one(known, "Pod")["spec"]["serviceAccountName"] = "default"
    existing = {n.metadata.name for n in client.CoreV1Api(chart.cluster.api).list_namespace().items}
    for name in namespaces - existing:
        chart.cluster.create_namespace(name)
    chart.cluster.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-"),
        input=yaml.safe_dump_all(known),
    )


def test_pods_pass_the_restricted_standard(chart: Chart) -> None:
    name = "chart-restricted"
    chart.cluster.create_namespace(name)
    chart.cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    manifests = chart.render({})
    template = one(manifests, "Deployment")["spec"]["template"]
    pods = [{"metadata": {"name": "operator"}, "spec": template["spec"]}, one(manifests, "Pod")]
    for pod in pods:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod["metadata"]["name"]}, "spec": pod["spec"]}
        pod["spec"]["serviceAccountName"] = "default"
        chart.cluster.kubectl("create", "-n", name, "--dry-run=server", "-f", "-", input=json.dumps(pod))


def test_namespaced_install_has_no_rights_in_the_whole_cluster(chart: Chart) -> None:
    manifests = chart.render(NAMESPACED)
    assert not [m for m in manifests if m["kind"] == "ClusterRoleBinding"]
    bound = {m["metadata"]["namespace"] for m in manifests if m["kind"] == "RoleBinding"}
    assert bound == {"team-a", "team-b", NAMESPACE}


def test_without_cluster_rights_all_objects_are_namespaced(chart: Chart) -> None:
    assert all("namespace" in m["metadata"] for m in chart.render(NO_CLUSTER_RIGHTS))


def test_packaged_chart_needs_nothing_else(chart: Chart, tmp_path: Path) -> None:
    chart.cluster.helm("package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.glob("*.tgz")
    assert chart.render(EVERYTHING, chart=package) == chart.render(EVERYTHING)


def test_crd_is_the_generated_one(chart: Chart) -> None:
    assert (CHART / "files" / CRD.name).read_bytes() == CRD.read_bytes(), "`make crds` writes both"
    rendered, generated = one(chart.render({}), "CustomResourceDefinition"), yaml.safe_load(CRD.read_text())
    assert rendered["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert rendered["spec"] == generated["spec"]
    assert "annotations" not in one(chart.render({"crds": {"keep": False}}), "CustomResourceDefinition")["metadata"]
