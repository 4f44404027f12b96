"""Which pods of a job there are, and what their containers print. The choices are pure functions of pods."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlcore.cli.kube import READ_TIMEOUT_S, Kube
from rlcore.cli.kube_errors import Asked, KubeError
from rlcore.cli.status_text import entries, mapping, text
from rlcore.errors import UserError

MAX_FOLLOWED = 50
RAY_CONTAINER = {"head": "ray-head", "learner": "ray-worker", "evaluator": "ray-worker"}

Pod = Mapping[str, Any]
Write = Callable[[bytes], None]


def selector(job: str, role: str, pool: str | None = None) -> str:
    """The labels of a job's pods of one role."""
    return f"rlcore.io/job={job},rlcore.io/role={role}" + (f",rlcore.io/pool={pool}" if pool else "")


def name_of(pod: Pod) -> str:
    """metadata.name."""
    return text(mapping(pod, "metadata").get("name"))


def attempt_of(pod: Pod) -> int:
    """The attempt it belongs to; 0 where it does not say."""
    label = text(mapping(pod, "metadata", "labels").get("rlcore.io/attempt"))
    return int(label) if label.isdecimal() else 0


def is_running(pod: Pod) -> bool:
    """Its containers can be asked for something."""
    return mapping(pod, "status").get("phase") == "Running"


def has_log(pod: Pod) -> bool:
    """Its containers have started, and may have ended."""
    return mapping(pod, "status").get("phase") in ("Running", "Succeeded", "Failed")


def newest(pods: Sequence[Pod]) -> Pod | None:
    """The pod to look at: of the last attempt, rather running than not, rather staying than leaving, the youngest."""

    def rank(pod: Pod) -> tuple[int, bool, bool, str]:
        meta = mapping(pod, "metadata")
        return (
            attempt_of(pod),
            is_running(pod),
            not meta.get("deletionTimestamp"),
            text(meta.get("creationTimestamp")),
        )

    return max(pods, key=rank, default=None)


def of_last_attempt(pods: Sequence[Pod]) -> list[Pod]:
    """Pods of the newest attempt, by name."""
    last = max((attempt_of(pod) for pod in pods), default=0)
    return sorted((pod for pod in pods if attempt_of(pod) == last), key=name_of)


def why_not_running(pod: Pod) -> str:
    """Why a pod's containers cannot be asked: its phase, and the reason with the message where one is given."""
    status = mapping(pod, "status")
    phase = text(status.get("phase")) or "Pending"
    for entry in entries(status.get("containerStatuses")) + entries(status.get("initContainerStatuses")):
        waiting = mapping(entry, "state", "waiting")
        if waiting.get("reason") and waiting.get("reason") not in ("ContainerCreating", "PodInitializing"):
            return _reasoned(phase, waiting)
    for condition in entries(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _reasoned(phase, condition)
    return _reasoned(phase, status)


def _reasoned(phase: str, where: Mapping[str, Any]) -> str:
    said = ": ".join(filter(None, (text(where.get("reason")), text(where.get("message")))))
    return f"{phase} ({said})" if said else phase


def print_logs(
    kube: Kube, namespace: str, pods: Sequence[Pod], *, follow: bool, previous: bool, tail: int | None, write: Write
) -> None:
    """Write the logs of pods, one after another, or with `follow` all at once as they come.

    Lines of several pods begin with the pod's name.

    Raises:
        KubeError: a log cannot be had.
        UserError: too many to follow.
    """
    if not follow or len(pods) == 1:
        for pod in pods:
            _print_log(kube, namespace, pod, follow, previous, tail, _prefixed(pod, pods, write))
        return
    if len(pods) > MAX_FOLLOWED:
        raise UserError(
            f"{len(pods)} pods are more than can be followed at once, {MAX_FOLLOWED}",
            hint=f"choose a pool with --pool, or one pod: kubectl logs -n {namespace} -f {name_of(pods[0])}",
        )
    _follow_all(kube, namespace, pods, previous, tail, write)


def _follow_all(
    kube: Kube, namespace: str, pods: Sequence[Pod], previous: bool, tail: int | None, write: Write
) -> None:
    """One thread a pod, and this one writes. One pod's trouble is said among the lines and ends only its own log."""
    lines: queue.Queue[bytes | None] = queue.Queue(maxsize=1000)

    def work(pod: Pod) -> None:
        put = _prefixed(pod, pods, lines.put)
        try:
            _print_log(kube, namespace, pod, True, previous, tail, put)
        except KubeError as error:
            put(f"({error.message})".encode())
        finally:
            lines.put(None)

    for pod in pods:
        # Daemons: Ctrl-C must not wait for logs that go on.
        threading.Thread(target=work, args=(pod,), daemon=True).start()
    open_logs = len(pods)
    while open_logs:
        line = lines.get()
        if line is None:
            open_logs -= 1
        else:
            write(line)


def _print_log(
    kube: Kube, namespace: str, pod: Pod, follow: bool, previous: bool, tail: int | None, write: Write
) -> None:
    query: dict[str, str | int] = {"container": RAY_CONTAINER[_role(pod)]}
    query |= {"follow": "true"} if follow else {}
    query |= {"previous": "true"} if previous else {}
    query |= {"tailLines": tail} if tail is not None else {}
    asked = Asked("get", "pods/log", "", namespace, name_of(pod))
    path = f"/api/v1/namespaces/{namespace}/pods/{name_of(pod)}/log"
    for line in kube.lines(asked, path, query, read_timeout_s=None if follow else READ_TIMEOUT_S):
        write(line)


def _role(pod: Pod) -> str:
    role = text(mapping(pod, "metadata", "labels").get("rlcore.io/role"))
    return role if role in RAY_CONTAINER else "evaluator"


def _prefixed(pod: Pod, pods: Sequence[Pod], write: Write) -> Write:
    prefix = f"[{name_of(pod)}] ".encode() if len(pods) > 1 else b""
    return lambda line: write(prefix + line)
