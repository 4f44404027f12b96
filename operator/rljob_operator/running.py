"""An attempt whose RayJob is there and has not ended: which phase it is in, and whether it must be helped."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api.quantity import parse_duration
from rlcore.api.status import Attempt
from rljob_operator import names
from rljob_operator.actions import ForceDeletePod, PatchRayCluster, TouchPod
from rljob_operator.draft import Draft
from rljob_operator.drain import judge_drain
from rljob_operator.endings import close, fail
from rljob_operator.failures import Failure, head_lost
from rljob_operator.history import head_losses_without_progress, last_head_loss_s
from rljob_operator.losses import NODE_LOST, lost_pod
from rljob_operator.observed import LostPod, Manifest, is_alive, is_ready
from rljob_operator.pools import group_sizes, resize_patch
from rljob_operator.spot import judge_pools
from rljob_operator.summary import summarize
from rljob_operator.timestamps import to_seconds
from rljob_operator.waiting import Wait, why_cluster_waits, why_pods_wait

FORCE_DELETE_S = 30.0
"""A Terminating head on a dead node still counts as the head: after this long beyond its grace it is forced."""

MOST_HEAD_LOSSES = 2
"""Without a checkpoint in between, and not by disruption: KubeRay alone would bring it back for ever."""

_UNDISTURBED = ("Suspended", "BudgetExhausted", "SpecChanged", "RestartRequested")


def start_phase(attempts: Sequence[Attempt]) -> str:
    """Phase of an attempt whose pods are not ready yet."""
    recovers = len(attempts) > 1 and attempts[-2].reason not in _UNDISTURBED
    return "Recovering" if recovers else "Provisioning"


def watch(draft: Draft, attempt: Attempt) -> None:
    """Phase, conditions, deadlines; sizes of pools."""
    found = draft.observed.ray_job
    assert found is not None
    status = found.get("status") or {}
    deployment = status.get("jobDeploymentStatus") or ""
    if deployment in ("Suspended", "Suspending") or (found.get("spec") or {}).get("suspend"):
        draft.set(phase="Pending")
        draft.set_condition("Provisioned", False, "Queued", f"waits for {_queue(found)}")
        return
    if deployment == "Running":
        _watch_running(draft, attempt)
    else:
        _watch_start(draft, attempt)
    if draft.open_attempt is not None:
        _resize(draft)


def _queue(found: Manifest) -> str:
    queue = (found["metadata"].get("labels") or {}).get(names.QUEUE_LABEL)
    return f"queue {queue} to admit it" if queue else "whoever suspended the RayJob"


# before the driver runs --------------------


def _watch_start(draft: Draft, attempt: Attempt) -> None:
    draft.set(phase=start_phase(draft.attempts))
    pods = draft.observed.pods_of(attempt.number)
    wait = why_cluster_waits(draft.observed.ray_cluster) or why_pods_wait(pods)
    wait = wait or Wait("WaitingForPods", "KubeRay makes the pods" if not pods else "the driver is being submitted")
    blocked = wait.reason != "WaitingForPods"
    draft.set_condition("Provisioned", False, wait.reason, wait.message, warn=blocked)
    draft.set_condition("Training", False, "NotStarted", "the pods are not ready yet", quiet=True)
    deadline = draft.job.spec.provisioning_deadline
    if deadline is None:
        return
    left = (to_seconds(attempt.started_at) or draft.now_s) + parse_duration(deadline) - draft.now_s
    if left > 0:
        draft.look_again(left)
        return
    text = f"pods were not ready within provisioningDeadline {deadline}: {wait.message}"
    fail(draft, Failure("ProvisioningDeadlineExceeded", True, True, text))


# while it runs --------------------


def _watch_running(draft: Draft, attempt: Attempt) -> None:
    draft.set_condition("Provisioned", True, "PodsReady", "the cluster is up")
    losses = head_losses_without_progress(draft)
    if len(losses) >= MOST_HEAD_LOSSES:
        close(draft, head_lost(_recent_head_losses(draft, len(losses))))
        return
    head = next((pod for pod in draft.observed.pods_of(attempt.number, names.HEAD) if is_alive(pod)), None)
    if head is None or not is_ready(head):
        _without_head(draft, attempt)
    else:
        _with_head(draft)


def _recent_head_losses(draft: Draft, count: int) -> list[LostPod]:
    last = draft.get("losses")[-1]
    seen = [loss for loss in draft.observed.lost if loss.role == names.HEAD]
    newest = seen[-1] if seen else LostPod(last.uid, last.pod, "", names.HEAD, 0, last.failure_class, None, "", 0.0)
    return [newest] * count


def _without_head(draft: Draft, attempt: Attempt) -> None:
    """KubeRay brings it back and submits again; the operator only steps in when that takes too long."""
    draft.set(phase="Recovering")
    draft.set_condition("Training", False, "HeadLost", "the head pod is not ready; KubeRay brings it back", warn=True)
    for pod in draft.observed.pods_of(attempt.number, names.HEAD):
        deleting = to_seconds(pod["metadata"].get("deletionTimestamp"))
        loss = lost_pod(pod, deleted=True, now_s=draft.now_s)
        if deleting is not None and loss is not None and loss.failure_class == NODE_LOST:
            if draft.now_s > deleting + FORCE_DELETE_S:
                draft.act(ForceDeletePod(pod["metadata"]["name"], pod["metadata"].get("uid", "")))
            else:
                draft.look_again(deleting + FORCE_DELETE_S - draft.now_s + 0.1)
    away_s = draft.since_s("Training")
    limit_s = draft.times.head_lost_s
    if away_s > limit_s:
        lost_at = last_head_loss_s(draft)
        seen = [loss for loss in draft.observed.lost if loss.role == names.HEAD]
        if lost_at is not None and seen:
            close(draft, head_lost([seen[-1]]))
        else:
            text = f"the head pod was not ready for {away_s:.0f} s and KubeRay did not bring it back"
            close(draft, Failure("HeadLost", False, False, text))
    else:
        draft.look_again(limit_s - away_s + 0.1)


def _with_head(draft: Draft) -> None:
    report = draft.observed.report
    draft.look_again(draft.times.poll_s)
    if report is None:
        draft.set(phase=start_phase(draft.attempts))
        draft.set_condition("Training", False, "DriverStarting", "the driver is being started")
        return
    silent_s = draft.now_s - report.received_s
    if silent_s > draft.times.driver_silent_s:
        draft.set(phase="Unknown")
        text = "the driver's status cannot be read any more; its last numbers are in status.training"
        draft.set_condition("Training", None, "DriverSilent", text, warn=True)
        return
    if report.final is not None:
        return  # its end is about to be seen
    if report.phase == "Starting":
        draft.set(phase=start_phase(draft.attempts))
        draft.set_condition("Training", False, "DriverStarting", "the driver starts evaluators and learner")
    elif report.phase == "Recovering":
        draft.set(phase="Recovering")
        text = str(report.values.get("message") or "the driver waits for lost pods to come back")
        draft.set_condition("Training", False, "WaitingForActors", text, warn=True)
    else:
        draft.set(phase="Running")
        draft.set_condition("Training", True, "Training", "the driver trains")
        _watch_progress(draft)


def _watch_progress(draft: Draft) -> None:
    report = draft.observed.report
    assert report is not None
    timeout = draft.job.spec.stall_timeout
    if timeout is None or report.phase != "Running":
        return
    still_s = draft.now_s - report.progressed_s
    if still_s > parse_duration(timeout):
        text = f"no timestep was trained for {still_s:.0f} s (stallTimeout {timeout}): an environment may hang"
        close(draft, Failure("Stalled", True, False, text))


# sizes --------------------


def _resize(draft: Draft) -> None:
    """Brings live changes of pools to the RayCluster; spot pools without nodes are made up for."""
    observed = draft.observed
    moved = judge_pools(draft)
    cluster = observed.ray_cluster
    if cluster is None or cluster["metadata"].get("deletionTimestamp"):
        summarize(draft, moved)
        return
    spec = cluster.get("spec") or {}
    groups = spec.get("workerGroupSpecs") or []
    autoscaled = bool(spec.get("enableInTreeAutoscaling"))
    unavailable = {name for name, since in moved.items() if since is not None}
    sizes = group_sizes(draft.job.spec, autoscaled=autoscaled, unavailable=unavailable)
    drain = judge_drain(draft, groups, sizes, autoscaled=autoscaled)
    summarize(draft, moved, drain.since)
    if drain.held:
        _touch_head(draft)
    patch = resize_patch(groups, sizes, autoscaled=autoscaled, held=drain.held, victims=drain.victims)
    if patch:
        draft.act(PatchRayCluster(cluster["metadata"]["name"], patch))
        wanted = ", ".join(f"{name} {size.minimum}-{size.maximum}" for name, size in sizes.items())
        draft.event("PoolsResized", f"pods by group: {wanted}")


def _touch_head(draft: Draft) -> None:
    """Makes the kubelet bring the ConfigMap to the driver at once."""
    for pod in draft.observed.pods_of(draft.current.number, names.HEAD):
        if is_alive(pod):
            draft.act(TouchPod(pod["metadata"]["name"]))
