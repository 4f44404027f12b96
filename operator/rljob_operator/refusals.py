"""What the API server will not let be made: for good, until the manifest is mended; or for now."""

from __future__ import annotations

import time

from rljob_operator import names
from rljob_operator.actions import Action, ApplyClaim, ApplyConfigMap, CreateRayJob, TryRayJob
from rljob_operator.cache import JobRecord, Rejection
from rljob_operator.kube import ApiError
from rljob_operator.observed import Manifest

REFUSED = (400, 422)
"""The object itself is wrong: until KubeRay, a webhook or what is in the way changes, trying again brings nothing."""

FORBIDDEN = 403
"""A quota, an admission webhook, missing rights: all of them may change."""

NAME_TAKEN = "NameTaken"

MESSAGE_CHARACTERS = 1000

_REASONS = {
    ApplyClaim: "ClaimRejected",
    ApplyConfigMap: "ConfigMapRejected",
    CreateRayJob: "RayJobRejected",
    TryRayJob: "RayJobRejected",
}


def note_refusal(record: JobRecord, action: Action, error: ApiError) -> bool | None:
    """Keeps what the API server refused and why; whether that is news, None where the error is no such answer."""
    reason = NAME_TAKEN if error.reason == NAME_TAKEN else _REASONS.get(type(action))
    if reason is None or record.raw is None:
        return None
    message = error.message[:MESSAGE_CHARACTERS]
    if error.code in REFUSED or reason == NAME_TAKEN:
        rejection = Rejection(int(record.raw["metadata"].get("generation") or 0), reason, message, time.time())
        news = record.rejected is None or record.rejected[:3] != rejection[:3]
        record.rejected = rejection
        return news
    # What runs has all it needs; that its ConfigMap cannot be changed is tried again as any other error.
    if error.code != FORBIDDEN or (isinstance(action, ApplyConfigMap) and record.ray_jobs):
        return None
    news = record.forbidden != message
    record.forbidden = message
    return news


def note_accepted(record: JobRecord, ray_job: Manifest) -> None:
    """The API server took this RayJob, or would take it."""
    record.forbidden, record.rejected = "", None
    record.accepted = str((ray_job["metadata"].get("annotations") or {}).get(names.ANNOTATION_SPEC_HASH) or "")
