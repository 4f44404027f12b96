"""The pure parts of `rlcore logs`: which pod, which file, and the commands that read it, run on this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rlcore.cli.log_driver import Opening, following_command, log_pattern, opening_command, parse_opening
from rlcore.cli.log_pods import newest, of_last_attempt, why_not_running


def run_in_a_head(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, timeout=20, check=False, stdin=subprocess.DEVNULL)


def opened(pattern: str, tail: int | None) -> Opening | None:
    return parse_opening(run_in_a_head(opening_command(pattern, tail)).stdout)


def test_the_opening_of_a_log(tmp_path: Path):
    log = tmp_path / "job-driver-pong-1.log"
    log.write_text("one\ntwo\nthr")
    assert opened(str(log), 2) == Opening(str(log), 11, b"two\nthr")
    assert opened(str(tmp_path / "job-driver-*.log"), None) == Opening(str(log), 11, b"one\ntwo\nthr")
    assert opened(str(log), 0) == Opening(str(log), 11, b"")


def test_without_an_id_the_newest_log_is_opened(tmp_path: Path):
    for age, name in enumerate(("b", "a")):
        (tmp_path / f"job-driver-{name}.log").write_text(name)
        os.utime(tmp_path / f"job-driver-{name}.log", (1000 - age, 1000 - age))
    newest_log = str(tmp_path / "job-driver-b.log")
    assert opened(str(tmp_path / "job-driver-*.log"), None) == Opening(newest_log, 1, b"b")


def test_a_log_that_is_not_there_yet(tmp_path: Path):
    assert opened(str(tmp_path / "job-driver-*.log"), None) is None


def test_following_goes_on_at_a_byte_and_ends_with_its_reader(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("one\ntwo\n")
    with subprocess.Popen(following_command(str(log), 4), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"two\n"
        with log.open("a") as file:
            file.write("three\n")
        assert process.stdout.readline() == b"three\n"
        process.stdin.close()
        assert process.stdout.read() == b""
        process.wait(timeout=20)


def test_the_path_of_a_log():
    assert log_pattern("pong-1-x") == "/tmp/ray/session_latest/logs/job-driver-pong-1-x.log"
    assert log_pattern("") == "/tmp/ray/session_latest/logs/job-driver-*.log"


def pod(
    name: str, attempt: str, phase: str = "Running", created: str = "2026-01-01T00:00:00Z", **meta: str
) -> dict[str, Any]:
    labels = {"rlcore.io/attempt": attempt}
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": created, **meta},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("pods", "chosen"),
    [
        ([], None),
        ([pod("a", "9"), pod("b", "10")], "b"),
        ([pod("a", "1"), pod("b", "1", "Pending")], "a"),
        ([pod("a", "1", deletionTimestamp="2026-01-01T00:00:01Z"), pod("b", "1")], "b"),
        ([pod("a", "1", created="2026-01-01T00:00:09Z"), pod("b", "1")], "a"),
        ([pod("a", "x")], "a"),
    ],
)
def test_the_head_to_look_at(pods: list[dict[str, Any]], chosen: str | None):
    found = newest(pods)
    assert (found and found["metadata"]["name"]) == chosen


def test_only_pods_of_the_last_attempt_have_a_say():
    pods = [pod("c", "2"), pod("a", "2"), pod("b", "1")]
    assert [found["metadata"]["name"] for found in of_last_attempt(pods)] == ["a", "c"]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk\nfull"}, "Failed (Evicted: disk full)"),
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ContainerCreating"}}},
                    {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
                ],
            },
            "Pending (ImagePullBackOff: no such image)",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
                ],
            },
            "Pending (Unschedulable: full)",
        ),
        ({}, "Pending"),
    ],
)
def test_why_a_pod_does_not_run(status: dict[str, Any], why: str):
    assert why_not_running({"status": status}) == why
