"""Events on RLJobs: in order, the same one again as a count, and never in the way of anything. And metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from rljob_operator import metrics
from rljob_operator.actions import Event
from rljob_operator.draft import merge_patch
from rljob_operator.events import EventRecorder
from rljob_operator.kube import ApiError, Kube
from rljob_operator.reconcile import lasting

from tests.unit.operator_clock import run
from tests.unit.operator_objects import NOW_S, at, raw_job


class EventStore(Kube):
    """Keeps events by name."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.refuse: ApiError | None = None

    async def create(self, group: str, resource: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        assert (group, resource) == ("api/v1", "events")
        name = manifest["metadata"]["name"]
        if self.refuse is not None:
            raise self.refuse
        if name in self.events:
            raise ApiError(409, "AlreadyExists", "there is one")
        self.events[name] = dict(manifest)
        return self.events[name]

    async def patch(self, group: str, resource: str, namespace: str, name: str, patch: Any, **_: Any) -> dict[str, Any]:
        if name not in self.events:
            raise ApiError(404, "NotFound", "there is none")
        self.events[name] |= patch
        return self.events[name]


def recorded(store: EventStore, *events: Event | None) -> list[dict[str, Any]]:
    """What is there after these events; at a None the API server forgets all."""

    async def story() -> None:
        recorder = EventRecorder(store, "operator-1")
        writing = asyncio.create_task(recorder.run())
        for index, event in enumerate(events):
            if event is not None:
                recorder.emit(raw_job(), event, NOW_S + index)
                continue
            await recorder.finish(10.0)
            store.events.clear()
        await recorder.finish(10.0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)

    run(story())
    return list(store.events.values())


STARTED = Event("Normal", "Creating", "attempt 1 begins")
LOST = Event("Warning", "HeadLost", "pod head: OutOfMemory")


def test_an_event_names_the_job_and_who_tells_it():
    (event,) = recorded(EventStore(), LOST)
    assert event["involvedObject"] == {
        "apiVersion": "rlcore.io/v1alpha1",
        "kind": "RLJob",
        "name": "pong",
        "namespace": "team",
        "uid": "uid-pong",
    }
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "HeadLost", "pod head: OutOfMemory")
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (1, at(0), at(0))
    assert event["reportingComponent"] == "rljob-operator"
    assert event["reportingInstance"] == "operator-1"


def test_the_same_event_again_is_a_count():
    first, second = recorded(EventStore(), STARTED, LOST, STARTED, STARTED)
    assert (first["reason"], first["count"], first["lastTimestamp"]) == ("Creating", 3, at(3))
    assert (second["reason"], second["count"]) == ("HeadLost", 1)


def test_an_event_of_the_operator_that_was_here_before_is_counted_on():
    store = EventStore()
    recorded(store, LOST)
    (event,) = recorded(store, LOST)
    assert event["count"] == 2


def test_an_event_cannot_be_written_and_nothing_else_happens(caplog):
    store = EventStore()
    store.refuse = ApiError(403, "Forbidden", "no rights")
    assert recorded(store, STARTED, LOST) == []
    assert "event lost: job=team/pong Creating" in caplog.text


def test_an_event_that_the_api_server_has_forgotten_is_made_anew():
    """Events live an hour; the first repetition after that finds out."""
    (event,) = recorded(EventStore(), LOST, LOST, None, LOST, None, LOST)
    assert (event["reason"], event["count"]) == ("HeadLost", 1)


# metrics and writes --------------------


def test_metrics_have_the_names_that_dashboards_and_alerts_use():
    found = {metric.name for metric in metrics.REGISTRY.collect()}
    assert found >= {
        f"rljob_operator_{name}"
        for name in (
            *("reconcile_seconds", "reconcile_errors", "jobs", "restarts", "preemptions"),
            *("queue_depth", "leader", "api_requests", "status_writes"),
        )
    }


STATUS: dict[str, Any] = {"phase": "Running", "training": {"timesteps": 1}, "checkpoint": {"timesteps": 1}}


@pytest.mark.parametrize(
    ("changes", "lasts"),
    [
        ({"training": {"timesteps": 2}}, False),
        ({"checkpoint": {"timesteps": 2}}, False),
        ({"cost": {"amount": 2}}, False),
        ({"phase": "Failed"}, True),
        ({"training": {}}, True),
        ({"losses": [{"uid": "a"}]}, True),
    ],
)
def test_which_changes_of_a_status_are_written_at_once(changes, lasts):
    assert (lasting(STATUS) != lasting({**STATUS, **changes})) is lasts


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"b": 2}, {"a": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
        ({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": None}, {}, {"a": None}),
    ],
)
def test_merge_patch(old, new, patch):
    assert merge_patch(old, new) == patch
