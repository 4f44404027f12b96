"""An attempt whose RayJob is there and has not ended: which phase it is in, and whether it must be helped."""

from __future__ import annotations

from rlcore.api.quantity import parse_duration
from rlcore.api.status import Attempt
from rljob_operator import names
from rljob_operator.actions import ForceDeletePod, PatchRayCluster
from rljob_operator.draft import Draft
from rljob_operator.drain import judge_drain
from rljob_operator.endings import IN_ORDER, close, fail
from rljob_operator.failures import Failure, head_lost
from rljob_operator.history import head_losses_without_progress, newest_head_loss
from rljob_operator.losses import NODE_LOST, lost_pod
from rljob_operator.observed import DriverReport, Manifest, container_status, is_alive, is_ray_ready
from rljob_operator.pools import resize_patch
from rljob_operator.run_config import touch_head
from rljob_operator.sizes import runs_autoscaler, wanted_sizes
from rljob_operator.spot import judge_pools, placed, unplaced
from rljob_operator.summary import summarize
from rljob_operator.timestamps import to_seconds
from rljob_operator.waiting import Wait, why_cluster_waits, why_pods_wait

FORCE_DELETE_S = 30.0
"""A Terminating head on a dead node still counts as the head: after this long beyond its grace it is forced."""

MOST_HEAD_LOSSES = 2
"""Without a checkpoint in between, and not by disruption: KubeRay alone would bring it back for ever."""

HEAD_LOST = "HeadLost"
HEAD_LOST_MARGIN_S = 60.0
"""The loss of a head may be seen so long before its readiness is missed."""

QUEUED = "Queued"
AUTOSCALER, AUTOSCALING = "autoscaler", "Autoscaling"
"""A container of the head pod, and the condition that is False where it has ended."""


def start_phase(draft: Draft) -> str:
    """Phase of an attempt whose driver does not train yet."""
    attempts = draft.attempts
    restarts = len(attempts) > 1 and attempts[-2].reason not in IN_ORDER
    return "Recovering" if restarts or newest_head_loss(draft) is not None else "Provisioning"


def watch(draft: Draft, attempt: Attempt) -> None:
    """Phase, conditions, deadlines; sizes of pools."""
    found = draft.observed.ray_job
    assert found is not None
    status = found.get("status") or {}
    deployment = status.get("jobDeploymentStatus") or ""
    if deployment in ("Suspended", "Suspending") or (found.get("spec") or {}).get("suspend") or _is_admitted(draft):
        draft.set(phase="Pending")
        draft.set_condition("Provisioned", False, QUEUED, f"waits for {_queue(found)}")
        draft.set_condition("Training", False, QUEUED, "it has no pods", quiet=True)
        return
    losses = head_losses_without_progress(draft)
    newest = newest_head_loss(draft)
    if len(losses) >= MOST_HEAD_LOSSES and newest is not None:
        close(draft, head_lost(newest, len(losses)))
        return
    if deployment == "Running":
        _watch_running(draft, attempt)
    else:
        _watch_start(draft, attempt)
    if draft.open_attempt is not None:
        _resize(draft)


def _is_admitted(draft: Draft) -> bool:
    """Whether a RayJob may begin and KubeRay has not begun it: the time that pods may take has not begun either."""
    known = draft.condition("Provisioned")
    status = (draft.observed.ray_job or {}).get("status") or {}
    return not status.get("jobDeploymentStatus") and known is not None and known.reason == QUEUED


def _queue(found: Manifest) -> str:
    queue = (found["metadata"].get("labels") or {}).get(names.QUEUE_LABEL)
    return f"queue {queue} to admit it" if queue else "whoever suspended the RayJob"


# before the driver runs --------------------


def _watch_start(draft: Draft, attempt: Attempt) -> None:
    draft.set(phase=start_phase(draft))
    pods = draft.observed.pods_of(attempt.number)
    wait = why_cluster_waits(draft.observed.ray_cluster) or why_pods_wait(pods)
    wait = wait or Wait("WaitingForPods", "KubeRay makes the pods" if not pods else "the driver is being submitted")
    blocked = wait.reason != "WaitingForPods"
    draft.set_condition("Provisioned", False, wait.reason, wait.message, warn=blocked)
    draft.set_condition("Training", False, "NotStarted", "the pods are not ready yet", quiet=True)
    is_too_late(draft, attempt, wait)


def is_too_late(draft: Draft, attempt: Attempt, wait: Wait) -> bool:
    """Whether provisioningDeadline is over, which fails the job; time in a queue does not count."""
    deadline = draft.job.spec.provisioning_deadline
    if deadline is None:
        return False
    left = _begun_s(draft, attempt) + parse_duration(deadline) - draft.now_s
    if left > 0:
        draft.look_again(left)
        return False
    text = f"pods were not ready within provisioningDeadline {deadline}: {wait.reason}: {wait.message}"
    fail(draft, Failure("ProvisioningDeadlineExceeded", True, True, text))
    return True


def _begun_s(draft: Draft, attempt: Attempt) -> float:
    """Since when pods are wanted: KubeRay begins anew when a queue admits the RayJob."""
    status = (draft.observed.ray_job or {}).get("status") or {}
    return max(to_seconds(attempt.started_at) or 0.0, to_seconds(status.get("startTime")) or 0.0) or draft.now_s


# while it runs --------------------


def _watch_running(draft: Draft, attempt: Attempt) -> None:
    known = draft.condition("Provisioned")
    head = next((pod for pod in draft.observed.pods_of(attempt.number, names.HEAD) if is_alive(pod)), None)
    if head is not None and (is_ray_ready(head) or _answers(draft, head)):
        draft.set_condition("Provisioned", True, "PodsReady", "the cluster is up")
        _judge_autoscaler(draft, head)
        _with_head(draft, head)
        return
    if known is None or known.reason != HEAD_LOST:
        # KubeRay submits to a cluster that is up: the head is away since now, however long it took to come.
        draft.set_condition("Provisioned", True, "PodsReady", "the cluster was up", quiet=True)
    _without_head(draft, attempt)


def _answers(draft: Draft, head: Manifest) -> bool:
    """Whether the driver in this very head was heard of late: a probe that fails is no lost head."""
    report = draft.observed.report
    if report is None or not report.head_uid or report.head_uid != head["metadata"].get("uid"):
        return False
    return draft.now_s - report.received_s <= draft.times.driver_silent_s


def _judge_autoscaler(draft: Draft, head: Manifest) -> None:
    """Head pods never restart a container: where the autoscaler has ended, pools keep their size."""
    ended = (container_status(head, AUTOSCALER).get("state") or {}).get("terminated")
    if ended is None:
        draft.drop_condition(AUTOSCALING)
        return
    why = f"{ended.get('reason') or 'Error'}, exit code {ended.get('exitCode')}"
    hint = f"annotate the RLJob with {names.ANNOTATION_RESTART}, and raise settings.autoscaler.resources if it ran out"
    text = f"the autoscaler of pod {head['metadata']['name']} has ended ({why}): pools keep their size; {hint}"
    draft.set_condition(AUTOSCALING, False, "AutoscalerDown", text, warn=True)


def _without_head(draft: Draft, attempt: Attempt) -> None:
    """KubeRay brings it back and submits again; the operator only steps in when that does not happen.

    A new head that waits for a node, a volume or an image would wait for the same in another attempt.
    """
    draft.set(phase="Recovering")
    wait = why_pods_wait(pod for pod in draft.observed.pods_of(attempt.number, names.HEAD) if is_alive(pod))
    text = "the head pod is not ready; KubeRay brings it back"
    blocked = wait is not None and wait.reason != "WaitingForPods"
    if wait is not None and blocked:
        text = f"the head pod was lost, and the new one waits: {wait.reason}: {wait.message}"
    loss = newest_head_loss(draft)
    if loss is not None and loss.failure_class == NODE_LOST:
        text += "; a ReadWriteOnce volume is let go by a dead node after some six minutes, other storage at once"
    draft.set_condition("Provisioned", False, HEAD_LOST, text, warn=True)
    draft.set_condition("Training", False, HEAD_LOST, text, quiet=True)
    for pod in draft.observed.pods_of(attempt.number, names.HEAD):
        deleting = to_seconds(pod["metadata"].get("deletionTimestamp"))
        loss = lost_pod(pod, deleted=True, now_s=draft.now_s)
        if deleting is not None and loss is not None and loss.failure_class == NODE_LOST:
            left = deleting + FORCE_DELETE_S - draft.now_s
            if left > 0:
                draft.look_again(left)
            else:
                draft.act(ForceDeletePod(pod["metadata"]["name"], str(pod["metadata"].get("uid", ""))))
    away_s = draft.since_s("Provisioned")
    left = draft.times.head_lost_s - away_s
    if left <= 0 and blocked and wait is not None:
        is_too_late(draft, attempt, wait)
        return
    if left > 0:
        draft.look_again(left)
        return
    loss = newest_head_loss(draft, within_s=away_s + HEAD_LOST_MARGIN_S)
    text = f"the head pod was not ready for {away_s:.0f} s and KubeRay did not bring it back"
    close(draft, head_lost(loss) if loss is not None else Failure(HEAD_LOST, False, False, text))


def _with_head(draft: Draft, head: Manifest) -> None:
    report = draft.observed.report
    if report is None or report.head_uid not in ("", head["metadata"].get("uid")):
        draft.set(phase=start_phase(draft))
        draft.set_condition("Training", False, "DriverStarting", "the driver is being started")
        _watch_silence(draft, draft.since_s("Training"))
        return
    silent_s = draft.now_s - report.received_s
    if silent_s > draft.times.driver_silent_s:
        draft.set(phase="Unknown")
        text = "the driver's status cannot be read any more; its last numbers are in status.training"
        draft.set_condition("Training", None, "DriverSilent", text, warn=True)
        draft.look_again(draft.times.poll_s)
        _watch_silence(draft, silent_s)
        return
    draft.look_again(draft.times.driver_silent_s - silent_s)  # whatever else is new makes for a look by itself
    if report.final is not None:
        return  # its end is about to be seen
    if report.phase == "Recovering":
        draft.set(phase="Recovering")
        text = str(report.values.get("message") or "the driver waits for lost pods to come back")
        draft.set_condition("Training", False, "WaitingForActors", text, warn=True)
        return
    if report.phase == "Starting":
        draft.set(phase=start_phase(draft))
        draft.set_condition("Training", False, "DriverStarting", "the driver starts evaluators and learner")
    else:
        draft.set(phase="Running")
        draft.set_condition("Training", True, "Training", "the driver trains")
    _watch_progress(draft, report)


def _watch_silence(draft: Draft, silent_s: float) -> None:
    """A driver that hangs says nothing. Where no other one answers either, it is the network that does."""
    timeout = draft.job.spec.stall_timeout
    if timeout is None or not draft.observed.drivers_answer:
        return
    if silent_s > parse_duration(timeout):
        text = f"the driver has said nothing for {silent_s:.0f} s (stallTimeout {timeout}), and others have"
        close(draft, Failure("Stalled", True, False, text))


def _watch_progress(draft: Draft, report: DriverReport) -> None:
    timeout = draft.job.spec.stall_timeout
    if timeout is None or report.phase not in ("Starting", "Running"):
        return
    still_s = draft.now_s - report.progressed_s
    draft.look_again(parse_duration(timeout) - still_s)
    if still_s > parse_duration(timeout):
        text = f"no timestep was trained for {still_s:.0f} s (stallTimeout {timeout}): an environment may hang"
        close(draft, Failure("Stalled", True, False, text))


# sizes --------------------


def _resize(draft: Draft) -> None:
    """Brings live changes of pools to the RayCluster; spot pools without nodes are made up for."""
    moved = judge_pools(draft)
    cluster = draft.observed.ray_cluster
    if cluster is None or cluster["metadata"].get("deletionTimestamp"):
        summarize(draft, moved)
        return
    groups = (cluster.get("spec") or {}).get("workerGroupSpecs") or []
    autoscaled = runs_autoscaler(draft)
    without_nodes = {name: placed(draft, name) for name, since in moved.items() if since is not None}
    sizes = wanted_sizes(draft, without_nodes)
    drain = judge_drain(draft, groups, sizes, autoscaled=autoscaled)
    given_up = set() if _has_begun(draft) else set(without_nodes)
    for name in given_up:
        # The cluster is ready when all its pods are; once it is, the autoscaler may ask for whatever it likes.
        if pods := unplaced(draft, name):
            drain.victims[name] = pods
    summarize(draft, moved, drain.since)
    if drain.held:
        touch_head(draft)
    patch = resize_patch(
        groups, sizes, autoscaled=autoscaled, held=drain.held, victims=drain.victims, given_up=given_up
    )
    if patch:
        draft.act(PatchRayCluster(cluster["metadata"]["name"], patch))
    if (patch or drain.held) and draft.old.observed_generation != draft.observed.generation:
        wanted = ", ".join(f"{name} {size.minimum}-{size.maximum}" for name, size in sizes.items())
        draft.event("PoolsResized", f"pods by group: {wanted}")


def _has_begun(draft: Draft) -> bool:
    """Whether KubeRay has found the cluster ready and submitted the driver."""
    return ((draft.observed.ray_job or {}).get("status") or {}).get("jobDeploymentStatus") == "Running"
