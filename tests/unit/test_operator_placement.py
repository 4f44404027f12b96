"""Where pods may run: providers' spot nodes, what the chart adds, what the manifest asks for."""

from __future__ import annotations

from typing import Any

import pytest
from rljob_operator.placement import PRESETS, placement, with_node_affinity
from rljob_operator.settings import Settings

from rlcore.api.pods import PodGroupSpec

SPOT_LABELS = {
    "gke": ("cloud.google.com/gke-spot", "true"),
    "eks": ("eks.amazonaws.com/capacityType", "SPOT"),
    "aks": ("kubernetes.azure.com/scalesetpriority", "spot"),
    "karpenter": ("karpenter.sh/capacity-type", "spot"),
}
NODE_LOST = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    for what in ("not-ready", "unreachable")
]
GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def placed(
    group: dict[str, Any],
    preset: str = "none",
    *,
    preemptible: bool = False,
    gpus: bool = False,
    chart: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Placement of a group; `chart` is what its values add for preemptible pods."""
    settings = Settings.model_validate({"placement": {"preset": preset, "preemptible": chart or {}}})
    return placement(PodGroupSpec.model_validate(group), settings, preemptible=preemptible, gpus=gpus)


def test_without_a_preset_only_lost_nodes_are_tolerated_and_not_for_long():
    assert placed({}) == placed({}, preemptible=True) == {"tolerations": NODE_LOST}


@pytest.mark.parametrize("preset", SPOT_LABELS)
def test_preemptible_pods_run_on_spot_nodes_and_others_do_not(preset):
    label, value = SPOT_LABELS[preset]
    spot, other = placed({}, preset, preemptible=True), placed({}, preset)
    assert spot["nodeSelector"] == {label: value}
    assert "affinity" not in spot
    terms = other["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": label, "operator": "NotIn", "values": [value]}]}]
    assert "nodeSelector" not in other
    tainted = preset in ("gke", "aks")
    taint = {"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"}
    assert spot["tolerations"] == ([taint] if tainted else []) + NODE_LOST
    assert other["tolerations"] == NODE_LOST


def test_every_preset_is_known():
    assert set(PRESETS) == {"none", *SPOT_LABELS}


def test_the_charts_values_are_added_to_the_preset():
    more = {"nodeSelector": {"pool": "rl"}, "tolerations": [{"key": "rl", "operator": "Exists"}]}
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    spec = placed({}, "gke", preemptible=True, chart={**more, "nodeAffinity": [expression]})
    assert spec["nodeSelector"] == {"cloud.google.com/gke-spot": "true", "pool": "rl"}
    assert {"key": "rl", "operator": "Exists"} in spec["tolerations"]
    assert str(expression) in str(spec["affinity"])


def test_the_manifest_goes_beside_it_and_above_it():
    group = {
        "nodeSelector": {"pool": "mine", "disk": "ssd"},
        "tolerations": [{"key": "batch", "value": "1", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [{"topologyKey": "zone"}],
        "priorityClassName": "high",
    }
    spec = placed(group, "eks", preemptible=True, chart={"nodeSelector": {"pool": "rl"}})
    assert spec["nodeSelector"] == {"eks.amazonaws.com/capacityType": "SPOT", "pool": "mine", "disk": "ssd"}
    assert {"key": "batch", "operator": "Equal", "value": "1", "effect": "NoSchedule"} in spec["tolerations"]
    assert (spec["topologySpreadConstraints"], spec["priorityClassName"]) == ([{"topologyKey": "zone"}], "high")


def test_gpu_nodes_are_tolerated_by_pods_with_gpus_alone():
    assert GPU in placed({}, gpus=True)["tolerations"]
    assert GPU not in placed({})["tolerations"]


# affinity --------------------

EXPRESSION = {"key": "spot", "operator": "NotIn", "values": ["true"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ONE = {"key": "zone", "operator": "In", "values": ["a"]}


def terms(*expressions: list[dict[str, Any]]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": each} for each in expressions]}}}


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        ({}, terms([EXPRESSION])),
        (terms([ONE]), terms([ONE, EXPRESSION])),
        (terms([ONE], []), terms([ONE, EXPRESSION], [EXPRESSION])),
        ({"nodeAffinity": None}, terms([EXPRESSION])),
        ({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}, terms([EXPRESSION])),
    ],
    ids=["none", "one term", "alternatives", "null", "no terms"],
)
def test_every_alternative_must_also_match(affinity, expected):
    assert with_node_affinity(affinity, [EXPRESSION]) == expected


def test_other_affinities_stay_and_nothing_is_added_where_nothing_is_asked():
    affinity = {"podAffinity": {"x": 1}, "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    merged = with_node_affinity(affinity, [EXPRESSION])
    assert merged["podAffinity"] == {"x": 1}
    assert "preferredDuringSchedulingIgnoredDuringExecution" in merged["nodeAffinity"]
    assert with_node_affinity(affinity, []) == affinity
    assert with_node_affinity({}, []) == {}


@pytest.mark.parametrize(
    ("affinity", "text"),
    [
        ({"nodeAffinity": []}, "nodeAffinity is a list"),
        ({"nodeAffinity": {REQUIRED: "x"}}, "is a str here, not a dict"),
        ({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ["x"]}}}, "nodeSelectorTerms is a str"),
    ],
)
def test_an_affinity_that_is_none_is_told(affinity, text):
    with pytest.raises(ValueError, match=text):
        with_node_affinity(affinity, [EXPRESSION])
