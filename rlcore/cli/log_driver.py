"""The driver's log.

KubeRay gives the job to the head over HTTP, and Ray's job agent starts the driver: its output is in no container's log
but in a file of the head. It is read there by `tail`. A follower outlives what the job outlives: where the connection
breaks it goes on at the byte where it was, and where the head was lost it goes on with the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.cli.kube import Kube
from rlcore.cli.kube_errors import Asked, KubeError
from rlcore.cli.kube_exec import Exec, run
from rlcore.cli.log_pods import is_running, name_of, newest, selector, why_not_running
from rlcore.cli.status_text import is_finished, log_lines, mapping, phase_of, text

RAY_LOGS = "/tmp/ray/session_latest/logs"
HEAD = "ray-head"
POLL_S = 2.0
FOLLOW_S = 1800
"""How long one `tail` follows a log."""
GRACE_S = 60.0

# The newest file of the pattern: its size and name on a line of their own, then its last lines up to that size.
OPENING = (
    'file=$(ls -t $1 2>/dev/null | head -n 1); [ -n "$file" ] || { echo none; exit; }; '
    'size=$(($(wc -c < "$file"))); echo "$size $file"; head -c "$size" "$file" | tail -n "$2"'
)

# Nobody ends a command without a terminal whose reader is gone. But its standard input ends then, and with it `tail`;
# and where even that is not noticed, `tail` ends after a while: a reader that is still there begins anew.
FOLLOWING = (
    'exec 3<&0; timeout "$3" tail -c "+$1" -F "$2" & tail=$!; '
    '{ cat <&3; kill "$tail"; } >/dev/null 2>&1 & exec 3<&-; wait "$tail"'
)

Say = Callable[[str], None]
Write = Callable[[bytes], None]


class JobDeletedError(KubeError):
    """The job whose log was followed is gone."""


@dataclass(frozen=True)
class Opening:
    """A log as it was when it was opened.

    Attributes:
        file: its path in the head.
        size_bytes: how long it was: what comes after is new.
        lines: its last lines.
    """

    file: str
    size_bytes: int
    lines: bytes


def opening_command(pattern: str, tail: int | None) -> list[str]:
    """The command that opens a log; tail None: all of it."""
    return ["sh", "-c", OPENING, "sh", pattern, "+1" if tail is None else str(tail)]


def following_command(file: str, offset_bytes: int) -> list[str]:
    """The command that shows what comes after a place of a log, for FOLLOW_S seconds."""
    return ["sh", "-c", FOLLOWING, "sh", str(offset_bytes + 1), file, f"{FOLLOW_S}s"]


def log_pattern(submission_id: str) -> str:
    """Path of the driver's log; without an id, a pattern for the logs of all drivers of the head."""
    return f"{RAY_LOGS}/job-driver-{submission_id or '*'}.log"


def parse_opening(output: bytes) -> Opening | None:
    """What the opening command wrote; None: there is no log yet."""
    head, _, lines = output.partition(b"\n")
    if head == b"none":
        return None
    size, _, file = head.decode("utf-8", "replace").partition(" ")
    return Opening(file, int(size), lines)


def print_driver_log(kube: Kube, name: str, namespace: str, *, tail: int | None, write: Write, say: Say) -> None:
    """Write the driver's log as it is now; where its pod is gone, what the status has kept of it.

    Raises:
        KubeError: there is none yet, or it cannot be had.
    """
    job = kube.get_job(name, namespace)
    pod = find_head(kube, name, namespace)
    if pod is None:
        if not print_kept(job, write, say, tail):
            raise no_log(job, "it has no head pod")
        return
    opening = _open(kube, job, pod, tail)
    if opening is None:
        raise KubeError(f"the driver of {name} has not started yet: the job is {phase_of(job) or 'Pending'}")
    write(opening.lines)


def find_head(kube: Kube, name: str, namespace: str) -> Mapping[str, Any] | None:
    """The running head pod, or None where there is no head pod.

    Raises:
        KubeError: it is there and does not run.
    """
    pod = newest(kube.list_pods(namespace, selector(name, "head")))
    if pod is not None and not is_running(pod):
        raise KubeError(
            f"the head pod {name_of(pod)} does not run: {why_not_running(pod)}",
            hint="follow it until it does with -f; `rlcore logs --previous` shows what is kept of the attempt before",
        )
    return pod


def print_previous_log(kube: Kube, name: str, namespace: str, *, tail: int | None, write: Write, say: Say) -> None:
    """Write what the status has kept of the log of the last attempt that failed.

    Raises:
        KubeError: it has kept nothing.
    """
    job = kube.get_job(name, namespace)
    if not print_kept(job, write, say, tail):
        raise no_log(job, "no attempt has failed with a log")


def print_kept(job: Mapping[str, Any], write: Write, say: Say, tail: int | None) -> bool:
    """Write the lines that the operator has kept of the last failure; False: it has kept none."""
    failure = mapping(job, "status", "lastFailure")
    lines = log_lines(failure.get("logTail"))
    if not lines:
        return False
    pod = text(failure.get("pod"))
    say(f"these last lines were kept of the failure{f' on pod {pod}' if pod else ''}, {text(failure.get('time'))}")
    shown = lines if tail is None else lines[max(0, len(lines) - tail) :]
    write("".join(f"{line}\n" for line in shown).encode())
    return True


def no_log(job: Mapping[str, Any], why: str) -> KubeError:
    """There is nothing to show."""
    name = text(mapping(job, "metadata").get("name"))
    return KubeError(
        f"there is no log of {name}: {why}; the job is {phase_of(job) or 'not acted on yet'}",
        hint=f"`rlcore status {name}` says more",
    )


def follow_driver_log(kube: Kube, name: str, namespace: str, *, tail: int | None, write: Write, say: Say) -> None:
    """Write the driver's log as it grows, over lost connections and heads, until the job has finished.

    Raises:
        KubeError: the job was deleted, or the API server refuses for good.
    """
    kube.get_job(name, namespace)
    follower = _Follower(kube, name, namespace, tail, write, _once(say))
    while not follower.turn():
        time.sleep(POLL_S)
    job = kube.get_job(name, namespace)
    if follower.has_written:
        say(f"the job has {phase_of(job).lower()}")
    elif not print_kept(job, write, say, tail):
        raise no_log(job, "it has no head pod")


class _Follower:
    """Where a follower is: which head, which file, which byte."""

    def __init__(self, kube: Kube, name: str, namespace: str, tail: int | None, write: Write, say: Say) -> None:
        self._kube, self._name, self._namespace = kube, name, namespace
        self._tail, self._write, self._say = tail, write, say
        self._uid, self._file, self._offset = "", "", 0
        self._good_at = float("-inf")

    @property
    def has_written(self) -> bool:
        """A log was found, be it empty."""
        return bool(self._uid)

    def turn(self) -> bool:
        """Look for the log and follow it until it breaks off; True: there is nothing more to come."""
        try:
            job = self._job()
            pod = newest(self._kube.list_pods(self._namespace, selector(self._name, "head")))
            if pod is None or not is_running(pod):
                return self._without_head(job, pod)
            if not self._find_file(job, pod):
                self._say("waiting for the driver to start")
                return is_finished(job)
            return self._follow(pod)
        except JobDeletedError:
            raise
        except KubeError as error:
            # An API server that has just started may refuse for a moment what it allows.
            if error.code in (401, 403) and time.monotonic() - self._good_at > GRACE_S:
                raise
            self._say(f"{error.message}; trying again")
            return False

    def _job(self) -> dict[str, Any]:
        try:
            return self._kube.get_job(self._name, self._namespace)
        except KubeError as error:
            if error.code == 404 and error.reason == "NotFound":
                raise JobDeletedError(f"RLJob {self._name} was deleted", code=404, reason="NotFound") from error
            raise

    def _without_head(self, job: Mapping[str, Any], pod: Mapping[str, Any] | None) -> bool:
        if is_finished(job):
            return True
        what = f"head pod {name_of(pod)}: {why_not_running(pod)}" if pod else "no head pod"
        self._say(f"{what}; the job is {phase_of(job) or 'Pending'}; waiting")
        return False

    def _find_file(self, job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
        """Open the log of this pod, unless it is the one that was open before."""
        uid = text(mapping(pod, "metadata").get("uid"))
        if uid == self._uid:
            self._good_at = time.monotonic()
            return True
        opening = _open(self._kube, job, pod, None if self._uid else self._tail)
        if opening is None:
            return False
        if self._uid:
            self._say(f"the log goes on in head pod {name_of(pod)}")
        self._uid, self._file, self._offset = uid, opening.file, opening.size_bytes
        self._good_at = time.monotonic()
        self._write(opening.lines)
        return True

    def _follow(self, pod: Mapping[str, Any]) -> bool:
        command = following_command(self._file, self._offset)
        with Exec(self._kube, self._namespace, name_of(pod), HEAD, command, with_input=True) as running:
            for piece in running.output(idle_s=POLL_S):
                if piece:
                    self._write(piece)
                    self._offset += len(piece)
                elif is_finished(self._job()):
                    return True
                elif self._head_uid() != self._uid:
                    # The end of a node that is cut off reaches nobody: the connection only looks quiet.
                    return False
        return False

    def _head_uid(self) -> str:
        pod = newest(self._kube.list_pods(self._namespace, selector(self._name, "head")))
        return text(mapping(pod, "metadata").get("uid"))


def _open(kube: Kube, job: Mapping[str, Any], pod: Mapping[str, Any], tail: int | None) -> Opening | None:
    """The driver's log in a head; None: it is not there yet."""
    namespace = text(mapping(job, "metadata").get("namespace"))
    command = opening_command(log_pattern(_submission_id(kube, job, namespace)), tail)
    code, output, errors = run(kube, namespace, name_of(pod), HEAD, command)
    if code != 0:
        raise KubeError(f"the log in pod {name_of(pod)} cannot be read (exit code {code}): {errors}", code=500)
    return parse_opening(output)


def _submission_id(kube: Kube, job: Mapping[str, Any], namespace: str) -> str:
    """Of the present RayJob; empty where it has none yet, or where the user may not look."""
    ray_job = text(mapping(job, "status").get("rayJob"))
    if not ray_job:
        return ""
    try:
        path = f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs/{ray_job}"
        found = kube.json(Asked("get", "rayjobs", "ray.io", namespace, ray_job), "GET", path)
    except KubeError as error:
        if error.code in (403, 404):
            return ""
        raise
    return text(mapping(found, "status").get("jobId"))


def _once(say: Say) -> Say:
    """Says the same thing only once in a row."""
    last = ""

    def say_new(line: str) -> None:
        nonlocal last
        if line != last:
            last = line
            say(line)

    return say_new
