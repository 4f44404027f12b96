"""RLJobs as they change: list, then watch, and again where the connection breaks.

A half-open connection looks like a quiet one. So a watch is asked to end after a minute, and an answer that does not
even do that counts as broken: what is shown is never older than that without saying so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.api.crd import PLURAL
from rlcore.api.rljob import GROUP
from rlcore.cli.kube import Kube, jobs_path
from rlcore.cli.kube_errors import Asked, KubeError, Unreachable, refusal

WATCH_S = 60.0
"""A watch ends after this, and goes on where it ended."""
SILENCE_S = 15.0
"""How much later than that it may end."""
FIRST_RETRY_S = 0.5
LAST_RETRY_S = 10.0
GRACE_S = 60.0
"""An API server that has just started may refuse for a moment what it allows: it does not know its own rules yet."""

Job = dict[str, Any]
Key = tuple[str, str]


@dataclass(frozen=True)
class Snapshot:
    """All that is watched, at one moment.

    Attributes:
        jobs: by namespace and name.
        trouble: why this is not up to date; None: it is.
    """

    jobs: Mapping[Key, Job]
    trouble: KubeError | None = None


class WatchExpiredError(Exception):
    """The API server no longer has the changes since the version that was asked for: list anew."""


def watch_jobs(kube: Kube, namespace: str, name: str = "", *, deadline: float | None = None) -> Iterator[Snapshot]:
    """A snapshot now and after every change; ends at the deadline only.

    Args:
        namespace: empty: all.
        name: of one job; empty: all.
        deadline: on time.monotonic()'s clock.

    Raises:
        KubeError: the server refused the first request, or refuses for good what it has allowed before.
    """
    jobs: dict[Key, Job] = {}
    good_at: float | None = None
    delay_s = FIRST_RETRY_S
    while not _over(deadline):
        try:
            jobs, version = _list(kube, namespace, name)
            good_at, delay_s = time.monotonic(), FIRST_RETRY_S
            yield Snapshot(dict(jobs))
            while not _over(deadline):
                began = time.monotonic()
                for event in _events(kube, namespace, name, version, _watch_s(deadline)):
                    good_at = time.monotonic()
                    version = str(event["object"]["metadata"]["resourceVersion"])
                    if event["type"] != "BOOKMARK":
                        _take(jobs, event)
                        yield Snapshot(dict(jobs))
                good_at = time.monotonic()
                if good_at - began < FIRST_RETRY_S:
                    time.sleep(FIRST_RETRY_S)  # something on the way ends watches at once: do not ask without pause
        except WatchExpiredError:
            continue
        except KubeError as error:
            if good_at is None or (_is_final(error) and time.monotonic() - good_at > GRACE_S):
                raise
            yield Snapshot(dict(jobs), error)
            remaining_s = delay_s if deadline is None else min(delay_s, max(0.0, deadline - time.monotonic()))
            time.sleep(remaining_s)
            delay_s = min(2 * delay_s, LAST_RETRY_S)


def key_of(job: Job) -> Key:
    """Namespace and name."""
    return job["metadata"].get("namespace", ""), job["metadata"]["name"]


def _list(kube: Kube, namespace: str, name: str) -> tuple[dict[Key, Job], str]:
    asked = Asked("list", PLURAL, GROUP, namespace, name)
    answer = kube.json(asked, "GET", jobs_path(namespace), _selector(name))
    return {key_of(job): job for job in answer.get("items", [])}, str(answer["metadata"]["resourceVersion"])


def _events(kube: Kube, namespace: str, name: str, version: str, watch_s: float) -> Iterator[dict[str, Any]]:
    """The changes since a version, for a bounded time."""
    asked = Asked("watch", PLURAL, GROUP, namespace, name)
    query: dict[str, str | int] = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": max(1, round(watch_s)),
    }
    try:
        for line in kube.lines(
            asked, jobs_path(namespace), query | _selector(name), read_timeout_s=watch_s + SILENCE_S
        ):
            event = _parse(line)
            if event["type"] == "ERROR":
                raise refusal(int(event["object"].get("code") or 500), json.dumps(event["object"]), asked)
            yield event
    except KubeError as error:
        if error.code == 410:
            raise WatchExpiredError from error
        raise


def _parse(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError as error:  # a connection that broke in the middle of a line
        raise Unreachable("the watch broke off") from error
    assert isinstance(event, dict), "a watch event is an object"
    return event


def _take(jobs: dict[Key, Job], event: Mapping[str, Any]) -> None:
    if event["type"] == "DELETED":
        jobs.pop(key_of(event["object"]), None)
    else:
        jobs[key_of(event["object"])] = event["object"]


def _selector(name: str) -> dict[str, str | int]:
    return {"fieldSelector": f"metadata.name={name}"} if name else {}


def _is_final(error: KubeError) -> bool:
    return error.code in (401, 403, 404)


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _watch_s(deadline: float | None) -> float:
    return WATCH_S if deadline is None else min(WATCH_S, deadline - time.monotonic())
