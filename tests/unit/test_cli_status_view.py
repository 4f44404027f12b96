"""The views of `rlcore status`: pages, tables, transitions and errors, as functions of plain data."""

from __future__ import annotations

import copy
import io
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from rich.console import Console

from rlcore.api.status import RLJobStatus
from rlcore.cli.status_blocks import drawn, plain
from rlcore.cli.status_changes import changes, progress_line
from rlcore.cli.status_text import ago, is_finished, log_lines, text
from rlcore.cli.status_view import job_page, job_table

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)

JOB: dict[str, Any] = {
    "apiVersion": "rlcore.io/v1alpha1",
    "kind": "RLJob",
    "metadata": {
        "name": "pong",
        "namespace": "team",
        "uid": "u1",
        "generation": 2,
        "creationTimestamp": "2026-03-01T08:48:00Z",
    },
    "spec": {
        "algorithm": "PPO",
        "optimizer": "LocalMultiGPU",
        "environment": {"id": "ALE/Pong-v5"},
        "stop": {"timesteps": 10_000_000, "episodeReward": 18, "wallClock": "2h"},
        "restartPolicy": {"maxRestarts": 3},
        "budget": {"maximumCost": 50},
    },
    "status": {
        "phase": "Running",
        "observedGeneration": 2,
        "conditions": [
            {
                "type": "Provisioned",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/4 nodes are available",
                "lastTransitionTime": "2026-03-01T11:59:18Z",
            },
            {
                "type": "Training",
                "status": "True",
                "reason": "Training",
                "message": "",
                "lastTransitionTime": "2026-03-01T10:00:00Z",
            },
        ],
        "rayJob": "pong-2",
        "rayCluster": "pong-2-abcde",
        "dashboardURL": "pong-2-head-svc.team.svc:8265",
        "evaluators": {
            "target": 9,
            "replicas": 9,
            "ready": 7,
            "pools": [
                {
                    "name": "spot",
                    "target": 8,
                    "replicas": 8,
                    "ready": 6,
                    "reason": "Unschedulable",
                    "message": "0/4 nodes are available",
                },
                {"name": "base", "target": 1, "replicas": 1, "ready": 1},
            ],
        },
        "learners": {"target": 1, "ready": 1},
        "training": {
            "iteration": 345,
            "timesteps": 1_250_000,
            "episodes": 1_203,
            "episodeRewardMean": -3.456,
            "evaluationRewardMean": 12.0,
            "timestepsPerSecond": 2_500.4,
            "bottleneck": "learning-bound: 66 % of the time in SGD; more evaluators will not help",
            "observedAt": "2026-03-01T11:59:57Z",
        },
        "checkpoint": {
            "latest": "/var/lib/rlcore/checkpoints/pong",
            "timesteps": 1_200_000,
            "time": "2026-03-01T11:56:40Z",
        },
        "restarts": 1,
        "preemptions": 4,
        "cost": {"amount": 12.345, "perHour": 3.2, "currency": "USD"},
        "attempt": 2,
        "attempts": [
            {
                "number": 1,
                "rayJob": "pong-1",
                "startedAt": "2026-03-01T08:50:00Z",
                "endedAt": "2026-03-01T09:50:00Z",
                "reason": "OutOfMemory",
                "counted": True,
                "timesteps": 400_000,
            },
            {"number": 2, "rayJob": "pong-2", "startedAt": "2026-03-01T09:51:00Z"},
        ],
        "lastFailure": {
            "class": "OutOfMemory",
            "counted": True,
            "pod": "pong-1-head-x",
            "node": "n7",
            "exitCode": 137,
            "message": "the head was killed at its memory limit of 8Gi; raise spec.head.resources.memory",
            "logTail": "step 1\nstep 2\nMemoryError\n",
            "time": "2026-03-01T09:50:00Z",
        },
        "losses": [
            {"uid": "p1", "pod": "w1", "role": "evaluator", "class": "Preempted", "time": "2026-03-01T11:00:00Z"}
        ],
        "startedAt": "2026-03-01T08:50:00Z",
    },
}

PAGE = """\
job           team/pong, made 3 h 12 min ago
phase         Running, started 3 h 10 min ago
              Unschedulable: 0/4 nodes are available
algorithm     PPO, LocalMultiGPU
environment   ALE/Pong-v5
until         10,000,000 timesteps or reward 18 or 2h
attempt       2, RayJob pong-2, RayCluster pong-2-abcde
dashboard     pong-2-head-svc.team.svc:8265
timesteps     1,250,000, 12 % of 10,000,000
throughput    2,500 timesteps/s, 58 min 19 s to go at this rate
reward        -3.5 mean of recent episodes, 12.0 in the last evaluation, goal 18
progress      iteration 345, episodes 1,203
bottleneck    learning-bound: 66 % of the time in SGD; more evaluators will not help

PODS     TARGET  THERE  READY  REMARKS
spot     8       8      6      Unschedulable: 0/4 nodes are available
base     1       1      1
learner  1       -      1

checkpoint    3 min 20 s ago, at 1,200,000 timesteps, /var/lib/rlcore/checkpoints/pong
restarts      1 of 3 allowed, 4 pods lost to preemption
cost          12.35 USD so far, estimated, 3.20 USD an hour, limit 50.00 USD
last failure  OutOfMemory, counted, on pod pong-1-head-x of node n7, exit code 137, 2 h 10 min ago
              the head was killed at its memory limit of 8Gi; raise spec.head.resources.memory

CONDITION    STATUS  REASON         SINCE       MESSAGE
Provisioned  False   Unschedulable  42 s        0/4 nodes are available
Training     True    Training       2 h 00 min

ATTEMPT  STARTED         ENDED           BECAUSE      COUNTED  CHECKPOINT
1        3 h 10 min ago  2 h 10 min ago  OutOfMemory  yes      400,000
2        2 h 09 min ago  -               -            -        -

LOST POD  ROLE       BECAUSE    WHEN
w1        evaluator  Preempted  1 h 00 min ago

last log lines before the failure
  step 1
  step 2
  MemoryError
"""


def job(**status: Any) -> dict[str, Any]:
    """The sample with other values in its status; None takes a field out."""
    changed = copy.deepcopy(JOB)
    changed["status"] = {key: value for key, value in {**changed["status"], **status}.items() if value is not None}
    return changed


def page(of: dict[str, Any]) -> str:
    return "\n".join(plain(job_page(of, NOW)))


def test_the_sample_is_a_status_that_the_operator_may_write():
    RLJobStatus.model_validate(JOB["status"], by_alias=True, by_name=False)


def test_a_page_says_all_there_is():
    assert page(JOB) == PAGE.rstrip("\n")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"phase": "Succeeded", "finishedAt": "2026-03-01T11:50:00Z"}, "Succeeded, after 3 h 00 min, 10 min 00 s ago"),
        ({"observedGeneration": 1}, "has not acted on the newest change of the spec yet"),
        ({"phase": "Failed", "finishedAt": None}, "phase         Failed, started 3 h 10 min ago"),
        (
            {
                "phase": "Failed",
                "conditions": [
                    {"type": "Failed", "status": "True", "reason": "TooManyRestarts", "message": "3 of 3 restarts used"}
                ],
            },
            "TooManyRestarts: 3 of 3 restarts used",
        ),
        (
            {
                "phase": "Provisioning",
                "conditions": [
                    {"type": "Valid", "status": "True", "reason": "Valid"},
                    {
                        "type": "Provisioned",
                        "status": "False",
                        "reason": "KubeRayMissing",
                        "message": "install KubeRay",
                    },
                ],
            },
            "\n              KubeRayMissing: install KubeRay\n",
        ),
        ({"checkpoint": None}, "checkpoint    none yet"),
        ({"checkpoint": {"timesteps": 0}}, "checkpoint    at 0 timesteps"),
        ({"training": {"timesteps": 5}}, "reward        no episode finished yet"),
        ({"training": {"timesteps": 5, "observedAt": "2026-03-01T11:50:00Z"}}, "these numbers are 10 min 00 s old"),
        ({"preemptions": 1, "restarts": None}, "0 of 3 allowed, 1 pod lost to preemption"),
        ({"cost": {"amount": 1}}, "cost          1.00 so far, estimated, limit 50.00"),
        (
            {
                "evaluators": {
                    "pools": [
                        {"name": "spot", "drainingSince": "2026-03-01T11:59:00Z", "movedAt": "2026-03-01T11:50:00Z"}
                    ]
                }
            },
            "-      drained for 1 min 00 s before pods are given back; "
            "other pools have made up for its minimum for 10 min 00 s\n",
        ),
        ({"evaluators": {"target": 4, "replicas": 2, "ready": 1}}, "evaluators  4       2      1"),
    ],
)
def test_what_a_page_says_of_a_status(status: dict[str, Any], said: str):
    assert said in page(job(**status))


@pytest.mark.parametrize(
    ("created", "said"),
    [
        ("2026-03-01T11:59:50Z", "none yet, waiting for the operator"),
        ("2026-03-01T11:50:00Z", "none yet, no operator has acted on it; is rljob-operator running?"),
    ],
)
def test_a_job_without_a_status(created: str, said: str):
    new = {**JOB, "metadata": {**JOB["metadata"], "creationTimestamp": created}}
    del new["status"]
    assert f"phase         {said}" in page(new)


def test_a_job_that_is_being_deleted_and_one_that_is_paused():
    meta = JOB["metadata"]
    assert "Running, being deleted" in page({**JOB, "metadata": {**meta, "deletionTimestamp": "2026-03-01T11:59:50Z"}})
    assert "rlcore.io/paused" in page({**JOB, "metadata": {**meta, "annotations": {"rlcore.io/paused": "true"}}})


@pytest.mark.parametrize("wrong", [None, 7, "text", [], {}, [7], {"a": 7}, True, -1.5], ids=repr)
def test_a_status_of_another_operator_never_breaks_a_view(wrong: object):
    for field in JOB["status"]:
        odd = {**JOB, "status": {**JOB["status"], field: wrong}}
        assert page(odd)
        assert plain(job_table([odd], NOW, all_namespaces=True))
        changes(JOB, odd)
        changes(odd, JOB)
        progress_line(odd)
        for inner in JOB["status"][field] if isinstance(JOB["status"][field], dict) else ():
            assert page({**JOB, "status": {**JOB["status"], field: {**JOB["status"][field], inner: wrong}}})


def screen(of: dict[str, Any], width: int, colors: Literal["standard"] | None = None) -> str:
    file = io.StringIO()
    Console(file=file, force_terminal=True, width=width, color_system=colors).print(
        drawn(job_page(of, NOW)), crop=False
    )
    return file.getvalue()


def test_a_terminal_gets_the_same_words_in_colors():
    assert "\x1b[32mRunning\x1b[0m" in screen(JOB, 200, "standard")
    assert screen(JOB, 200).split() == page(JOB).split()


def test_a_narrow_terminal_loses_nothing():
    shown = screen(JOB, 60)
    assert "  learning-bound: 66 % of the time in SGD; more \n" in shown
    assert sorted("".join(shown.split())) == sorted("".join(page(JOB).split()))


def test_a_log_cannot_steer_the_terminal():
    failure = {
        "class": "ApplicationFailed",
        "message": "a\x1b[2Jb\nc",
        "logTail": "red\x1b[31m\x07!\n\x1b]0;title\x07x\ty",
    }
    shown = page(job(lastFailure=failure))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert log_lines(failure["logTail"]) == ["red!", "x       y"]
    assert text(failure["message"]) == "ab c"


def test_only_the_end_of_a_long_log_is_shown():
    failure = {"class": "x", "logTail": "\n".join(f"line {number}" for number in range(100))}
    blocks = plain(job_page(job(lastFailure=failure), NOW, log_lines_shown=3))
    assert blocks[-3:] == ["  line 97", "  line 98", "  line 99"]


def test_the_table_of_all_namespaces():
    new = {"metadata": {"name": "a-new-one", "namespace": "team"}, "spec": {"algorithm": "PPO"}}
    other = {**JOB, "metadata": {**JOB["metadata"], "namespace": "a"}}
    assert plain(job_table([JOB, new, other], NOW, all_namespaces=True)) == [
        "NAMESPACE  NAME       ALGORITHM  ENVIRONMENT  PHASE    REWARD  TIMESTEPS  STEPS/S  READY  RESTARTS  AGE",
        "a          pong       PPO        ALE/Pong-v5  Running  -3.5    1,250,000  2,500    7/9    1         "
        "3 h 12 min",
        "team       a-new-one  PPO        -            -        -       -          -        -      -         -",
        "team       pong       PPO        ALE/Pong-v5  Running  -3.5    1,250,000  2,500    7/9    1         "
        "3 h 12 min",
    ]


def test_nothing_changed_is_no_line():
    assert changes(JOB, copy.deepcopy(JOB)) == []
    faster = job(training={**JOB["status"]["training"], "timesteps": 2_000_000})
    assert changes(JOB, faster) == []
    assert progress_line(faster) == "2,000,000 timesteps, 2,500 timesteps/s, reward -3.5"


def test_the_first_look_and_a_new_job_of_the_same_name():
    phase = "phase Running (Unschedulable: 0/4 nodes are available)"
    assert changes(None, JOB) == [phase]
    assert changes({**JOB, "metadata": {**JOB["metadata"], "uid": "u0"}}, JOB) == [phase]
    assert changes(None, {"metadata": {}, "spec": {}}) == ["phase none yet"]


CONDITION = {"type": "Training", "status": "False", "reason": "DriverLost", "message": "the head is gone"}
SPOT, BASE = JOB["status"]["evaluators"]["pools"]


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        ({"phase": "Suspended"}, ["phase Running -> Suspended"]),
        (
            {"phase": "Recovering", "conditions": [CONDITION]},
            [
                "phase Running -> Recovering (DriverLost: the head is gone)",
                "Training=False DriverLost: the head is gone",
            ],
        ),
        ({"evaluators": {"pools": [{**SPOT, "ready": 8}, BASE]}}, ["pool spot: 8 of 8 pods ready"]),
        (
            {"evaluators": {"pools": [SPOT, {**BASE, "reason": "ImagePull", "message": "no such image"}]}},
            ["pool base: ImagePull: no such image"],
        ),
        (
            {"evaluators": {"pools": [{**SPOT, "drainingSince": "t"}, {**BASE, "movedAt": "t"}]}},
            [
                "pool spot: evaluators are drained before pods are given back",
                "pool base: other pools make up for its minimum",
            ],
        ),
        ({"preemptions": 5}, ["5 pods lost to preemption so far"]),
        ({"preemptions": 3}, []),
        ({"restarts": 2}, ["2 counted restarts so far"]),
        ({"checkpoint": {"timesteps": 1_300_000}}, ["checkpoint at 1,300,000 timesteps"]),
        (
            {
                "attempts": [
                    JOB["status"]["attempts"][0],
                    {**JOB["status"]["attempts"][1], "endedAt": "2026-03-01T11:59:59Z", "reason": "HeadLost"},
                    {"number": 3, "rayJob": "pong-3"},
                ]
            },
            ["attempt 2 ended: HeadLost, not counted", "attempt 3 began as RayJob pong-3"],
        ),
        (
            {"lastFailure": {"class": "Preempted", "counted": False, "pod": "p", "message": "", "time": "t"}},
            ["Preempted, not counted, on pod p"],
        ),
    ],
)
def test_each_transition_is_a_line(status: dict[str, Any], lines: list[str]):
    assert changes(JOB, job(**status)) == lines


@pytest.mark.parametrize(
    ("phase", "observed", "finished"),
    [
        ("Succeeded", 2, True),
        ("Failed", 2, True),
        ("Succeeded", 1, False),
        ("Running", 2, False),
        ("Failed", None, True),
    ],
)
def test_a_job_is_finished_only_for_the_spec_it_has_now(phase: str, observed: int | None, finished: bool):
    assert is_finished(job(phase=phase, observedGeneration=observed)) is finished


@pytest.mark.parametrize(
    ("time", "said"),
    [
        ("2026-03-01T11:59:18Z", "42 s ago"),
        ("2026-03-01T13:59:18+02:00", "42 s ago"),
        ("2026-03-01T11:59:18.123456789Z", "42 s ago"),
        ("2026-03-01T12:00:05Z", "0 s ago"),
        ("yesterday", ""),
        ("2026-03-01T11:59:18", ""),
        (None, ""),
    ],
)
def test_times_of_the_api(time: object, said: str):
    assert ago(time, NOW) == said
