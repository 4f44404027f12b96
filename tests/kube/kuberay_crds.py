"""CRDs of RayCluster and RayJob for a machine that does not have KubeRay's own.

They take any field of KubeRay's; pod templates, which people write, are as strict as KubeRay's: their schema is the API
server's own of a PodTemplateSpec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

OPENAPI_PATH = "/openapi/v3/api/v1"
POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
KINDS = {"RayCluster": "rayclusters", "RayJob": "rayjobs"}
ANYTHING: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
EITHER: Schema = {"x-kubernetes-int-or-string": True}
NUMBERS_OR_TEXT = {"io.k8s.apimachinery.pkg.util.intstr.IntOrString", "io.k8s.apimachinery.pkg.api.resource.Quantity"}
KEPT = ("type", "format", "enum", "required", "nullable", "x-kubernetes-preserve-unknown-fields")
"""What a CRD's schema may take over; defaults are the API server's to set, once pods are made."""


def kuberay_crds(openapi: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Both CRDs, from the document at OPENAPI_PATH."""
    schemas = openapi["components"]["schemas"]
    template = in_full(schemas[POD_TEMPLATE], schemas)
    template["properties"]["metadata"] = ANYTHING
    group = {**ANYTHING, "properties": {"template": template}}
    cluster = {
        **ANYTHING,
        "properties": {"headGroupSpec": group, "workerGroupSpecs": {"type": "array", "items": group}},
    }
    job = {**ANYTHING, "properties": {"rayClusterSpec": cluster, "submitterPodTemplate": template}}
    return [_crd("RayCluster", cluster), _crd("RayJob", job)]


def in_full(schema: Mapping[str, Any], schemas: Mapping[str, Schema]) -> Schema:
    """A schema without references, of the kind that a CRD may have."""
    references = [part["$ref"] for part in (schema, *schema.get("allOf", ())) if "$ref" in part]
    if references:
        name = references[0].rpartition("/")[2]
        return dict(EITHER) if name in NUMBERS_OR_TEXT else in_full(schemas[name], schemas)
    result = {key: schema[key] for key in KEPT if key in schema}
    if "properties" in schema:
        result["properties"] = {name: in_full(part, schemas) for name, part in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in schema:
            result[key] = in_full(schema[key], schemas)
    says_nothing = result.get("type") == "object" and not {"properties", "additionalProperties"} & result.keys()
    return {**result, **ANYTHING} if says_nothing else result


def _crd(kind: str, spec: Schema) -> dict[str, Any]:
    plural = KINDS[kind]
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": ANYTHING}}},
    }
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.ray.io"},
        "spec": {"group": "ray.io", "names": names, "scope": "Namespaced", "versions": [version]},
    }
