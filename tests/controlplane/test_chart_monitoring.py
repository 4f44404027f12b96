"""Monitors, alerts and dashboards: valid, and about metrics that are really there."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from rljob_operator.metrics import REGISTRY as OPERATOR_METRICS

from rlcore.metrics.exporter import MetricsExporter
from rlcore.metrics.result import IterationResult
from tests.controlplane.chart import CHART, EVERYTHING, MONITORING_KINDS, Chart, one
from tests.kube.cluster import Cluster

DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
LEARNER_METRICS = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "learning_rate")
KEYWORDS = re.compile(
    r"\b(absent|avg|by|count|group_left|histogram_quantile|ignoring|increase|last_over_time|max|max_over_time|min|"
    r"offset|on|or|rate|sum|time|topk|unless)\b"
)

TEXT, STRINGS = {"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}


def fields(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required.split(), "properties": properties}


def items(schema: Any) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": schema}


RELABELING = fields("sourceLabels", sourceLabels=items(TEXT), targetLabel=TEXT, action=TEXT, regex=TEXT)
ENDPOINT = fields(
    "port path interval",
    port=TEXT,
    path=TEXT,
    interval=TEXT,
    relabelings=items(RELABELING),
    metricRelabelings=items(RELABELING),
)
EXPRESSION = fields("key operator", key=TEXT, operator=TEXT)
SELECTOR = fields("matchLabels", matchLabels=STRINGS, matchExpressions=items(EXPRESSION))
NAMESPACES = fields("", any={"const": True}, matchNames=items(TEXT))
MONITOR = {"selector": SELECTOR, "namespaceSelector": NAMESPACES}
ALERT_FIELDS = {"alert": TEXT, "expr": TEXT, "for": TEXT, "labels": STRINGS, "annotations": STRINGS}
GROUP = fields("name rules", name=TEXT, rules=items(fields(" ".join(ALERT_FIELDS), **ALERT_FIELDS)))
SCHEMAS = {
    "ServiceMonitor": fields("selector endpoints", **MONITOR, endpoints=items(ENDPOINT)),
    "PodMonitor": fields("selector podMetricsEndpoints", **MONITOR, podMetricsEndpoints=items(ENDPOINT)),
    "PrometheusRule": fields("groups", groups=items(GROUP)),
}
"""The fields of the Prometheus operator's API that the chart uses."""


@pytest.fixture
def chart(cluster: Cluster, tmp_path: Path) -> Chart:
    return Chart(cluster, tmp_path)


@pytest.fixture(scope="module")
def metrics() -> set[str]:
    """Names of all samples of the driver and of the operator."""
    exporter = MetricsExporter(job="job", algorithm="PPO", environment="CartPole-v1")
    exporter.observe(
        IterationResult(
            iteration=1,
            timesteps=1,
            timesteps_this_iteration=1,
            episodes=1,
            timesteps_per_s=1.0,
            sample_time_s=1.0,
            learn_time_s=1.0,
            wait_time_s=1.0,
            elapsed_s=1.0,
            learner=dict.fromkeys(LEARNER_METRICS, 0.0),
        )
    )
    names = {sample.name for family in exporter.registry.collect() for sample in family.samples}
    # Without a value for its labels a metric has no sample yet.
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
    for family in OPERATOR_METRICS.collect():
        names |= {family.name + suffix for suffix in suffixes.get(family.type, [""])}
    return names


def is_rays_own(metric: str) -> bool:
    """Whether Ray's dashboards query it, or its node agents report it."""
    spec = importlib.util.find_spec("ray")
    assert spec
    assert spec.origin
    modules = Path(spec.origin).parent / "dashboard" / "modules"
    queries = (modules / "metrics" / "dashboards" / "default_dashboard_panels.py").read_text()
    reported = (modules / "reporter" / "reporter_agent.py").read_text()
    return bool(re.search(rf"\b{metric}\b", queries)) or f'"{metric.removeprefix("ray_")}"' in reported


def queried(expression: str) -> set[str]:
    """Names of the metrics in a PromQL expression."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(by|ignoring|on|group_left) *\([^)]*\)", " ", bare)
    bare = re.sub(r"\blabel_values\((\w+) *, *\w+\)", r"\1", bare)
    return set(re.findall(r"\b[a-z_]\w*", KEYWORDS.sub(" ", bare)))


def expressions(node: Any) -> Iterator[str]:
    """Every PromQL text of a dashboard."""
    if isinstance(node, dict):
        for key, value in node.items():
            if isinstance(value, str) and key in ("expr", "definition"):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def test_monitors_and_rules_have_the_prometheus_operators_fields(chart: Chart) -> None:
    manifests = {m["kind"]: m for m in chart.render(EVERYTHING) if m["kind"] in MONITORING_KINDS}
    assert set(manifests) == set(MONITORING_KINDS)
    for kind, manifest in manifests.items():
        assert manifest["apiVersion"] == "monitoring.coreos.com/v1"
        assert manifest["metadata"]["labels"]["release"] == "prometheus"
        jsonschema.validate(manifest["spec"], SCHEMAS[kind])


def test_nothing_of_the_prometheus_operator_is_there_unless_asked_for(chart: Chart) -> None:
    assert not [m["kind"] for m in chart.render({}) if m["kind"] in MONITORING_KINDS]


def test_monitor_selects_the_service_of_the_operator(chart: Chart) -> None:
    manifests = chart.render(EVERYTHING)
    service, monitor = one(manifests, "Service"), one(manifests, "ServiceMonitor")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,), (port,) = monitor["spec"]["endpoints"], service["spec"]["ports"]
    assert endpoint["port"] == port["name"]
    pod = one(manifests, "Deployment")["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert port["targetPort"] in {p["name"] for p in pod["spec"]["containers"][0]["ports"]}


def test_alerts_ask_for_metrics_that_exist(chart: Chart, metrics: set[str], tmp_path: Path) -> None:
    spec = one(chart.render(EVERYTHING), "PrometheusRule")["spec"]
    rules = [rule for group in spec["groups"] for rule in group["rules"]]
    assert len(rules) == 7
    for rule in rules:
        assert rule["labels"]["team"] == "rl"
        names = queried(rule["expr"])
        assert names, rule
        assert not {name for name in names - metrics if not is_rays_own(name)}, rule["alert"]
    # The one PromQL parser at hand where Prometheus is installed.
    if promtool := shutil.which("promtool"):
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
        subprocess.run([promtool, "check", "rules", tmp_path / "rules.yaml"], check=True)


def test_alerts_can_be_turned_off(chart: Chart) -> None:
    values = {"prometheusRule": {"enabled": True, "alerts": {"learnerStarved": {"enabled": False}}}}
    spec = one(chart.render(values), "PrometheusRule")["spec"]
    names = [rule["alert"] for group in spec["groups"] for rule in group["rules"]]
    assert len(names) == 6
    assert "RLJobLearnerStarved" not in names


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_ask_for_metrics_that_exist(path: Path, metrics: set[str]) -> None:
    names = set().union(*map(queried, expressions(json.loads(path.read_text()))))
    assert len(names) >= 5
    assert not {name for name in names - metrics if not is_rays_own(name)}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_are_complete(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    variables = {v["name"] for v in dashboard["templating"]["list"]}
    assert variables >= ({"datasource", "namespace"} if path.stem == "operator" else {"datasource", "namespace", "job"})
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard["panels"])))
    assert used - {"__rate_interval"} == variables
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in panels:
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert all('namespace=~"$namespace"' in target["expr"] for target in panel["targets"]), panel["title"]


def test_dashboards_reach_grafanas_sidecar(chart: Chart) -> None:
    maps = [m for m in chart.render(EVERYTHING) if m["metadata"].get("labels", {}).get("grafana_dashboard") == "1"]
    files = {name: text for m in maps for name, text in m["data"].items()}
    assert {name.removeprefix("rlcore-"): json.loads(text) for name, text in files.items()} == {
        path.name: json.loads(path.read_text()) for path in DASHBOARDS
    }
    assert {path.stem for path in DASHBOARDS} == {"training", "evaluators", "operator"}
    assert len({json.loads(text)["uid"] for text in files.values()}) == len(files)
