"""kubeconform on what people apply and what the chart and the operator make, by the schemas of a real API server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.chart import CHART
from tests.kube.cluster import ROOT, Cluster
from tests.kube.kuberay_crds import in_full
from tests.kube.wait import eventually

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

    def check(self, text: str) -> None:
        """Runs kubeconform on YAML documents; fails with what it says."""
        documents = [document for document in yaml.safe_load_all(text) if document]
        for document in documents:
            self._provide(document["apiVersion"], document["kind"])
        location = f"{self._folder}/{{{{.ResourceKind}}}}.json"
        command = [self._cluster.binaries["kubeconform"], "-strict", "-summary", "-output", "json", "-skip", RECURSIVE]
        where = ("-schema-location", location, "-")
        done = subprocess.run([*command, *where], input=text, capture_output=True, text=True, timeout=60)
        answer = json.loads(done.stdout)
        if done.returncode:
            raise AssertionError("\n".join(f"{found['kind']}: {found['msg']}" for found in answer["resources"]))
        skipped = sum(document["kind"] == RECURSIVE for document in documents)
        assert answer["summary"] == {"valid": len(documents) - skipped, "invalid": 0, "errors": 0, "skipped": skipped}

    def _provide(self, api_version: str, kind: str) -> None:
        group = api_version.rpartition("/")[0]
        path = self._folder / f"{kind.lower()}.json"
        if path.exists() or kind == RECURSIVE:
            return
        where = f"apis/{api_version}" if group else f"api/{api_version}"
        # A new resource is described a moment after it is served.
        answer = eventually(
            lambda: self._cluster.control_plane.request(f"/openapi/v3/{where}"), what=f"{where} described"
        )
        schemas = json.loads(answer)["components"]["schemas"]
        wanted = {"group": group, "kind": kind, "version": api_version.rpartition("/")[2]}
        (schema,) = (s for s in schemas.values() if wanted in s.get("x-kubernetes-group-version-kind", ()))
        path.write_text(json.dumps(strict(in_full(schema, schemas))))


@pytest.fixture(scope="module")
def schemas(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Schemas:
    crd = ROOT / "crds" / "rlcore.io_rljobs.yaml"
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", crd)
    cluster.kubectl("wait", "--for=condition=Established", "crd/rljobs.rlcore.io", "--timeout=30s")
    return Schemas(cluster, tmp_path_factory.mktemp("schemas"))


def as_json(path: Path) -> str:
    """The documents of a file that PyYAML wrote: 12e4 is a text for it, and a number for others, but not in JSON."""
    return joined(json.dumps(document) for document in yaml.safe_load_all(path.read_text()))


def joined(texts: Iterable[str]) -> str:
    return "\n---\n".join(texts)


def test_examples(schemas: Schemas) -> None:
    schemas.check(joined(path.read_text() for path in EXAMPLES))


def test_what_the_operator_makes(schemas: Schemas) -> None:
    schemas.check(joined(map(as_json, GOLDEN)))


def test_what_the_chart_makes(schemas: Schemas, cluster: Cluster) -> None:
    schemas.check(cluster.helm("template", "rljob-operator", CHART, "--namespace", "rljob-system").stdout)


@pytest.mark.parametrize("field", ["nodeSelecter", "hostNetwork"])
def test_a_mistake_is_found(schemas: Schemas, field: str) -> None:
    job = json.loads(as_json(GOLDEN[0]).partition("\n---\n")[0])
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"][field] = "yes"
    with pytest.raises(AssertionError, match=field):
        schemas.check(json.dumps(job))
