"""Sizes of worker groups, and the patch of a RayCluster that brings them about."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rljob_operator.pools import (
    GroupSize,
    group_sizes,
    is_autoscaled,
    move_minimums,
    pods_to_lose,
    resize_patch,
)

from rlcore.api import EvaluatorPool, spread
from tests.unit.operator_objects import BASE, SPOT, job


def spec_of(*pools: dict[str, Any], **evaluators: Any) -> Any:
    return job(evaluators={"pools": list(pools) or [SPOT, BASE], **evaluators}).spec


@pytest.mark.parametrize(
    ("evaluators", "enabled", "queued", "autoscaled"),
    [
        ({}, True, False, True),
        ({}, False, False, False),
        ({}, True, True, False),  # Kueue refuses autoscaled RayJobs
        ({"replicas": 3}, True, False, False),
        ({"pools": [{**BASE, "minReplicas": 4}]}, True, False, False),  # nothing to choose
    ],
)
def test_the_autoscaler_runs_where_there_is_something_to_choose(evaluators, enabled, queued, autoscaled):
    spec = job(evaluators={"pools": [SPOT, BASE], **evaluators}).spec
    assert is_autoscaled(spec, enabled=enabled, queued=queued) is autoscaled


@pytest.mark.parametrize(
    ("evaluators", "autoscaled", "expected"),
    [
        ({}, True, {"spot": (2, 2, 8), "base": (1, 1, 4)}),
        ({}, False, {"spot": (2, 2, 2), "base": (1, 1, 1)}),
        ({"replicas": 5}, False, {"spot": (4, 4, 4), "base": (1, 1, 1)}),
        ({"replicas": 5}, True, {"spot": (4, 4, 4), "base": (1, 1, 1)}),  # an autoscaler that runs has no choice
        ({"replicas": 0}, False, {"spot": (2, 2, 2), "base": (1, 1, 1)}),  # minimums are kept
    ],
)
def test_group_sizes(evaluators, autoscaled, expected):
    spec = spec_of(**evaluators)
    sizes = group_sizes(spec, autoscaled=autoscaled)
    assert list(sizes) == ["spot", "base", "learner"]
    assert sizes.pop("learner") == GroupSize(1, 1, 1)
    assert sizes == {name: GroupSize(*numbers) for name, numbers in expected.items()}


def test_without_an_autoscaler_somebody_samples_even_where_all_minimums_are_0():
    sizes = group_sizes(spec_of({**SPOT, "minReplicas": 0}, {**BASE, "minReplicas": 0}), autoscaled=False)
    assert {name: size.replicas for name, size in sizes.items()} == {"spot": 1, "base": 0, "learner": 1}


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        (0, {"spot": 2, "base": 1}),
        (3, {"spot": 2, "base": 1}),
        (4, {"spot": 3, "base": 1}),
        (9, {"spot": 8, "base": 1}),
        (11, {"spot": 8, "base": 3}),
        (12, {"spot": 8, "base": 4}),
        (20, {"spot": 16, "base": 4}),  # who asks for a number gets it
    ],
)
def test_a_number_of_pods_fills_preemptible_pools_first(replicas, expected):
    assert spread(replicas, [EvaluatorPool.model_validate(pool) for pool in (SPOT, BASE)]) == expected


POOLS = st.lists(
    st.builds(
        lambda low, more, preemptible: {"minReplicas": low, "maxReplicas": low + more, "preemptible": preemptible},
        st.integers(0, 20),
        st.integers(0, 20),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
).map(lambda pools: [EvaluatorPool.model_validate({"name": f"p{i}", **pool}) for i, pool in enumerate(pools)])


@given(st.integers(0, 300), POOLS)
def test_spread_gives_the_number_and_keeps_minimums(replicas, pools):
    counts = spread(replicas, pools)
    assert sum(counts.values()) == max(replicas, sum(pool.min_replicas for pool in pools))
    assert all(counts[pool.name] >= pool.min_replicas for pool in pools)


@given(POOLS, st.data(), st.booleans())
def test_on_demand_pools_make_up_for_minimums_as_far_as_they_can(pools, data, autoscaled):
    sizes = {
        pool.name: GroupSize(
            pool.min_replicas, pool.min_replicas, pool.max_replicas if autoscaled else pool.min_replicas
        )
        for pool in pools
    }
    placed = data.draw(st.dictionaries(st.sampled_from([pool.name for pool in pools]), st.integers(0, 30)))
    moved = move_minimums(sizes, pools, placed)
    room = sum(pool.max_replicas - pool.min_replicas for pool in pools if not pool.preemptible)
    gone = [pool for pool in pools if pool.preemptible and pool.name in placed]
    missing = sum(max(0, pool.min_replicas - placed[pool.name]) for pool in gone)
    before, after = (sum(size.minimum for size in each.values()) for each in (sizes, moved))
    assert after == before - missing + min(missing, room)
    for pool in pools:
        size = moved[pool.name]
        assert 0 <= size.minimum <= size.replicas <= size.maximum
        if pool in gone:
            assert size.minimum == min(pool.min_replicas, placed[pool.name]), "what has nodes stays"
            assert size.maximum == sizes[pool.name].maximum, "nodes that come are used at once"


def test_nothing_moves_where_no_pool_is_unavailable():
    sizes = group_sizes(spec_of(), autoscaled=True)
    assert group_sizes(spec_of(), autoscaled=True, unavailable={"base": 0}) == sizes  # on-demand pools never move


# the patch --------------------


def group(name: str, replicas: int, low: int, high: int, **more: Any) -> dict[str, Any]:
    return {"groupName": name, "replicas": replicas, "minReplicas": low, "maxReplicas": high, **more}


def apply_json_patch(groups: list[dict[str, Any]], patch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The three operations that are used, on spec.workerGroupSpecs."""
    result = copy.deepcopy(groups)
    for operation in patch:
        _, _, _, index, field = operation["path"].split("/")
        if operation["op"] == "test":
            assert result[int(index)][field] == operation["value"]
        else:
            assert operation["op"] == "add"
            result[int(index)][field] = operation["value"]
    return result


def test_no_patch_where_all_is_as_wanted():
    groups = [group("spot", 3, 2, 8), group("learner", 1, 1, 1)]
    sizes = {"spot": GroupSize(2, 2, 8), "learner": GroupSize.fixed(1)}
    assert resize_patch(groups, sizes, autoscaled=True) == []


def test_every_changed_group_is_tested_by_name_before_it_is_changed():
    groups = [group("spot", 2, 2, 8), group("base", 1, 1, 4), group("learner", 1, 1, 1)]
    patch = resize_patch(groups, {"base": GroupSize(2, 2, 6), "spot": GroupSize(2, 2, 8)}, autoscaled=True)
    assert patch == [
        {"op": "test", "path": "/spec/workerGroupSpecs/1/groupName", "value": "base"},
        {"op": "add", "path": "/spec/workerGroupSpecs/1/minReplicas", "value": 2},
        {"op": "add", "path": "/spec/workerGroupSpecs/1/maxReplicas", "value": 6},
        {"op": "add", "path": "/spec/workerGroupSpecs/1/replicas", "value": 2},
    ]


@pytest.mark.parametrize(
    ("replicas", "low", "high", "expected"),
    [(5, 2, 8, 5), (1, 2, 8, 2), (9, 2, 8, 8)],
    ids=["the autoscaler's own", "below", "above"],
)
def test_the_autoscalers_number_is_changed_only_where_it_lies_out_of_bounds(replicas, low, high, expected):
    groups = [group("spot", replicas, 0, 20)]
    patched = apply_json_patch(groups, resize_patch(groups, {"spot": GroupSize(low, low, high)}, autoscaled=True))
    assert patched == [group("spot", expected, low, high)]


def test_without_an_autoscaler_victims_are_named_with_the_new_number():
    groups = [group("spot", 4, 4, 4)]
    patch = resize_patch(groups, {"spot": GroupSize.fixed(2)}, autoscaled=False, victims={"spot": ["a", "b"]})
    assert apply_json_patch(groups, patch) == [group("spot", 2, 2, 2, scaleStrategy={"workersToDelete": ["a", "b"]})]


def test_held_groups_are_left_alone_and_unknown_groups_too():
    groups = [group("spot", 4, 4, 4), group("somebody-elses", 1, 1, 1)]
    assert resize_patch(groups, {"spot": GroupSize.fixed(2)}, autoscaled=False, held={"spot"}) == []


GROUPS = st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=4).map(
    lambda numbers: [group(f"p{i}", r, *sorted((a, b))) for i, (r, a, b) in enumerate(numbers)]
)


@given(GROUPS, st.data(), st.booleans())
def test_a_patched_cluster_needs_no_second_patch(groups, data, autoscaled):
    sizes = {}
    for each in groups:
        low = data.draw(st.integers(0, 9))
        sizes[each["groupName"]] = GroupSize(low, low, low + data.draw(st.integers(0, 5)) if autoscaled else low)
    patched = apply_json_patch(groups, resize_patch(groups, sizes, autoscaled=autoscaled))
    assert resize_patch(patched, sizes, autoscaled=autoscaled) == []
    for each in patched:
        assert each["minReplicas"] <= each["replicas"] <= each["maxReplicas"]
        assert pods_to_lose(each, sizes[each["groupName"]], autoscaled=autoscaled) == 0
