"""The Helm chart as its tests use it: the real helm, and sets of values between them that use every template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.kube.cluster import ROOT, Cluster

CHART = ROOT / "charts" / "rljob-operator"
CRD = ROOT / "crds" / "rlcore.io_rljobs.yaml"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
RELEASE, NAMESPACE = "rljob-operator", "rljob-system"

Values = dict[str, Any]
Manifest = dict[str, Any]

EVERYTHING: Values = {
    "imageRegistry": "registry.example.com/team",
    "image": {"digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "regcred"}],
    "replicaCount": 3,
    "settings": {
        "placement": {
            "preset": "gke",
            "preemptible": {
                "nodeSelector": {"team": "rl"},
                "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
                "nodeAffinity": [{"key": "disk", "operator": "In", "values": ["ssd"]}],
            },
        },
        "defaultClaim": {"storageClassName": "fast", "accessMode": "ReadWriteMany"},
    },
    "serviceAccount": {"annotations": {"example.com/a": "b"}},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "podAnnotations": {"example.com/a": "b"},
    "podLabels": {"example.com/team": "rl"},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "service": {"annotations": {"example.com/a": "b"}},
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}],
        "apiServer": {"cidrs": ["10.0.0.1/32"]},
        "extraEgress": [{"ports": [{"port": 3128, "protocol": "TCP"}]}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podMonitor": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "ray": {"metricRelabelings": [{"action": "drop", "sourceLabels": ["__name__"], "regex": "ray_grpc_.*"}]},
    },
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}, "alertLabels": {"team": "rl"}},
    "dashboards": {"enabled": True},
}
NAMESPACED: Values = {"watchNamespaces": ["team-a", "team-b"], "replicaCount": 0}
NO_CLUSTER_RIGHTS: Values = {
    **NAMESPACED,
    "crds": {"install": False},
    "rbac": {"aggregatedRoles": False},
    "admissionPolicy": {"enabled": False},
}
MONITORING_KINDS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
"""The Prometheus operator's kinds; the test cluster does not know them."""

VARIANTS: dict[str, Values] = {
    "default": {},
    "everything": EVERYTHING,
    "namespaced": NAMESPACED,
    "no-cluster-rights": NO_CLUSTER_RIGHTS,
}


class Chart:
    """The chart under test, through the real helm."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self._folder = cluster, folder

    def values(self, values: Values) -> Path:
        path = self._folder / "values.yaml"
        path.write_text(yaml.safe_dump(values))
        return path

    def render(self, values: Values, *args: str, chart: Path = CHART) -> list[Manifest]:
        path = self.values(values)
        done = self.cluster.helm("template", RELEASE, chart, "--namespace", NAMESPACE, "--values", path, *args)
        return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]

    def refusal(self, values: Values) -> str:
        done = self.cluster.helm("template", RELEASE, CHART, "--values", self.values(values), check=False)
        assert done.returncode, "accepted"
        return done.stderr


def one(manifests: list[Manifest], kind: str, name: str = "") -> Manifest:
    (found,) = (m for m in manifests if m["kind"] == kind and name in ("", m["metadata"]["name"]))
    return found
