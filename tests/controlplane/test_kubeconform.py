"""kubeconform on what people apply and what the chart and the operator make, by the schemas of a real API server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.chart import CHART
from tests.kube.cluster import ROOT, Cluster
from tests.kube.kuberay_crds import in_full

Schema = dict[str, Any]

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
GOLDEN = sorted((ROOT / "tests" / "unit" / "golden").glob("*.yaml"))
RECURSIVE = "CustomResourceDefinition"
"""Its schema describes schemas; the API server itself judges our CRD in other tests."""


def strict(schema: Schema) -> Schema:
    """A schema that refuses unknown fields, as kubeconform wants it."""
    result = {key: value for key, value in schema.items() if key not in ("properties", "items", "additionalProperties")}
    if "properties" in schema:
        result["properties"] = {name: strict(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            result["additionalProperties"] = False
    if "items" in schema:
        result["items"] = strict(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = strict(schema["additionalProperties"])
    if schema.get("nullable") and isinstance(schema.get("type"), str):
        result["type"] = [schema["type"], "null"]
    return result


class Schemas:
    """A folder of JSON schemas, one a kind, taken from the API server when they are asked for."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder

    def check(self, *files: Path) -> None:
        """Runs kubeconform on YAML files; fails with what it says."""
        documents = [document for path in files for document in yaml.safe_load_all(path.read_text()) if document]
        for document in documents:
            self._provide(document["apiVersion"], document["kind"])
        location = f"{self._folder}/{{{{.Group}}}}-{{{{.ResourceKind}}}}.json"
        command = [self._cluster.binaries["kubeconform"], "-strict", "-summary", "-output", "json", "-skip", RECURSIVE]
        done = subprocess.run(
            [*command, "-schema-location", location, *files], capture_output=True, text=True, timeout=60
        )
        answer = json.loads(done.stdout)
        assert done.returncode == 0, answer["resources"]
        skipped = sum(document["kind"] == RECURSIVE for document in documents)
        assert answer["summary"] == {"valid": len(documents) - skipped, "invalid": 0, "errors": 0, "skipped": skipped}

    def _provide(self, api_version: str, kind: str) -> None:
        group = api_version.rpartition("/")[0]
        path = self._folder / f"{group}-{kind.lower()}.json"
        if path.exists() or kind == RECURSIVE:
            return
        where = f"apis/{api_version}" if group else f"api/{api_version}"
        schemas = json.loads(self._cluster.control_plane.request(f"/openapi/v3/{where}"))["components"]["schemas"]
        wanted = {"group": group, "kind": kind, "version": api_version.rpartition("/")[2]}
        (schema,) = (s for s in schemas.values() if wanted in s.get("x-kubernetes-group-version-kind", ()))
        path.write_text(json.dumps(strict(in_full(schema, schemas))))


@pytest.fixture(scope="module")
def schemas(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Schemas:
    crd = ROOT / "crds" / "rlcore.io_rljobs.yaml"
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", crd)
    cluster.kubectl("wait", "--for=condition=Established", "crd/rljobs.rlcore.io", "--timeout=30s")
    return Schemas(cluster, tmp_path_factory.mktemp("schemas"))


def test_examples(schemas: Schemas) -> None:
    schemas.check(*EXAMPLES)


def test_what_the_operator_makes(schemas: Schemas) -> None:
    schemas.check(*GOLDEN)


def test_what_the_chart_makes(schemas: Schemas, cluster: Cluster, tmp_path: Path) -> None:
    rendered = tmp_path / "chart.yaml"
    rendered.write_text(cluster.helm("template", "rljob-operator", CHART, "--namespace", "rljob-system").stdout)
    schemas.check(rendered)


@pytest.mark.parametrize("field", ["nodeSelecter", "hostNetwork"])
def test_a_mistake_is_found(schemas: Schemas, tmp_path: Path, field: str) -> None:
    job, *rest = yaml.safe_load_all(GOLDEN[0].read_text())
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"][field] = "yes"
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump_all([job, *rest]))
    with pytest.raises(AssertionError, match=field):
        schemas.check(path)
