"""The ConfigMap of a running attempt: what the driver is told, and how its answers are recognised."""

from __future__ import annotations

import hashlib

from rlcore.api.status import Attempt
from rljob_operator import names
from rljob_operator.actions import ApplyConfigMap, TouchPod
from rljob_operator.draft import Draft
from rljob_operator.observed import Observed, is_alive, pod_phase
from rljob_operator.provision import config_hash, config_map, control_document, frozen_config, job_document
from rljob_operator.sizes import wanted_sizes
from rljob_operator.spot import moved_pools


def apply_config(draft: Draft) -> None:
    """Asks for the ConfigMap as the present state wants it; a later call takes the place of an earlier one."""
    observed, job, attempt = draft.observed, draft.job, draft.current
    frozen = observed.frozen or frozen_config(job)
    if not draft.get("resolved_config_hash"):
        draft.set(resolved_config_hash=config_hash(frozen["config"]))
    request = checkpoint_request(draft)
    final = observed.report.final if observed.report else None
    control = control_document(
        job,
        attempt.number,
        wanted_sizes(draft, moved_pools(draft)),
        checkpoint_request=request,
        pause=attempt.stopping_at is not None,
        final_observed=str(final.get("token")) if final else None,
    )
    draft.actions = [action for action in draft.actions if not isinstance(action, ApplyConfigMap | TouchPod)]
    draft.act(ApplyConfigMap(config_map(job, job_document(job, frozen), control)))
    if request or final:
        touch_head(draft)  # somebody waits for it


def touch_head(draft: Draft) -> None:
    """Makes the kubelet bring the ConfigMap to the driver at once, not within a minute or two."""
    for pod in draft.observed.pods_of(draft.current.number, names.HEAD):
        if is_alive(pod):
            draft.act(TouchPod(pod["metadata"]["name"]))


def checkpoint_request(draft: Draft) -> str | None:
    """Token of the checkpoint to write now: before pods are given back, or because a person asked."""
    attempt = draft.open_attempt
    if attempt is not None and attempt.stopping_at is not None:
        return stop_token(attempt)
    asked = draft.observed.request(names.ANNOTATION_CHECKPOINT)
    if not asked or asked == draft.requests.checkpoint:
        return learner_token(draft)
    token = person_token(asked)
    if checkpoint_answered(draft.observed, token):
        draft.set(requests=draft.requests.model_copy(update={"checkpoint": asked}))
        draft.event("CheckpointWritten", f"the checkpoint asked for by {names.ANNOTATION_CHECKPOINT} is written")
        return None
    return token


def learner_token(draft: Draft) -> str | None:
    """Of the checkpoint that a learner pod waits for which is to go: weights since the last one are there alone."""
    if draft.open_attempt is None:
        return None
    pods = draft.observed.pods_of(draft.current.number, names.LEARNER)
    going = [pod for pod in pods if pod["metadata"].get("deletionTimestamp") and pod_phase(pod) == "Running"]
    tokens = [f"learner-{pod['metadata']['uid']}" for pod in going]
    return next((token for token in tokens if not checkpoint_answered(draft.observed, token)), None)


def stop_token(attempt: Attempt) -> str:
    """Of the checkpoint before an orderly end."""
    return f"stop-{attempt.number}-{attempt.stopping_at}"


def person_token(value: str) -> str:
    """Of the checkpoint that an annotation asks for; its value may be anything."""
    return f"annotation-{hashlib.sha256(value.encode()).hexdigest()[:12]}"


def checkpoint_answered(observed: Observed, token: str) -> bool:
    """Whether the driver says that it wrote the checkpoint of this token."""
    return observed.report is not None and observed.report.checkpoint.get("request") == token
