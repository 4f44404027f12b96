"""The CustomResourceDefinition of RLJob: `python -m rlcore.api.crd [--check] [--output DIR]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlcore.api.algorithms import ALGORITHMS, AlgorithmInfo
from rlcore.api.cel import rules
from rlcore.api.rljob import GROUP, KIND, VERSION
from rlcore.api.schema import Schema, job_schema, model_schema
from rlcore.api.status import RLJobStatus

PLURAL = "rljobs"
FILE_NAME = f"{GROUP}_{PLURAL}.yaml"
MAX_SIZE_BYTES = 256 * 1024
"""Client-side apply keeps the whole object in one annotation, and annotations end here."""

HEADER = "# Made by `make crds` from rlcore/api: change the models there, not this file.\n"

PRINTER_COLUMNS = (
    {"name": "Algorithm", "type": "string", "jsonPath": ".spec.algorithm"},
    {"name": "Environment", "type": "string", "jsonPath": ".spec.environment.id"},
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Reward", "type": "number", "jsonPath": ".status.training.episodeRewardMean"},
    {"name": "Timesteps", "type": "integer", "jsonPath": ".status.training.timesteps"},
    {"name": "Steps/s", "type": "number", "jsonPath": ".status.training.timestepsPerSecond"},
    {"name": "Ready", "type": "integer", "jsonPath": ".status.evaluators.ready", "description": "Evaluator pods ready"},
    {"name": "Target", "type": "integer", "jsonPath": ".status.evaluators.target", "description": "Evaluators wanted"},
    {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts", "priority": 1},
    {"name": "Preemptions", "type": "integer", "jsonPath": ".status.preemptions", "priority": 1},
    {"name": "Bottleneck", "type": "string", "jsonPath": ".status.training.bottleneck", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)


def custom_resource_definition(algorithms: Mapping[str, AlgorithmInfo] = ALGORITHMS) -> dict[str, Any]:
    """The CRD as plain data."""
    schema = job_schema(algorithms)
    schema["properties"]["status"] = model_schema(RLJobStatus) | {"description": "What the operator has observed."}
    pools = node_at(schema, ("spec", "evaluators", "pools"))
    # Names are unique, and server-side apply tells pools apart by them.
    pools |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    for rule in rules(algorithms):
        node_at(schema, rule.path).setdefault("x-kubernetes-validations", []).append(rule.as_schema())
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["rlj"],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [dict(column) for column in PRINTER_COLUMNS],
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.evaluators.replicas",
                            "statusReplicasPath": ".status.evaluators.replicas",
                            "labelSelectorPath": ".status.evaluators.selector",
                        },
                    },
                }
            ],
        },
    }


def node_at(schema: Schema, path: Sequence[str]) -> Schema:
    """The schema node at a path of field names; "[]" steps into the items of a list."""
    node = schema
    for part in path:
        node = node["items"] if part == "[]" else node["properties"][part]
    return node


class _PlainDumper(yaml.SafeDumper):
    """YAML without anchors: the same list twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render() -> str:
    """The CRD as the text of its file."""
    body = yaml.dump(custom_resource_definition(), Dumper=_PlainDumper, sort_keys=False, width=120, allow_unicode=True)
    return HEADER + body


ROOT = Path(__file__).parents[2]
PLACES = (ROOT / "crds", ROOT / "charts" / "rljob-operator" / "files")
"""For people, and for the chart, which must be whole when it is packaged."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the CRD's files, or with --check say whether they are up to date."""
    parser = argparse.ArgumentParser(prog="python -m rlcore.api.crd", description="Write the CRD of RLJob.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file is out of date")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write it there alone")
    options = parser.parse_args(arguments)
    text = render()
    stale = 0
    for place in [options.output] if options.output else PLACES:
        path: Path = place / FILE_NAME
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path} ({len(text.encode()) // 1024} KiB)")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            print(f"{path} is out of date: run `make crds`", file=sys.stderr)
            stale += 1
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
