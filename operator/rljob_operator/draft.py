"""A decision in the making: the status as it will be, what to do, what to tell, when to look again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlcore.api import RLJob
from rlcore.api.status import Attempt, Condition, Requests, RLJobStatus
from rljob_operator.actions import Action, DeleteRayJob, Event
from rljob_operator.observed import Manifest, Observed
from rljob_operator.settings import Settings
from rljob_operator.timestamps import to_rfc3339, to_seconds

MESSAGE_CHARACTERS = 1024
ATTEMPTS_KEPT = 10


@dataclass(frozen=True)
class Decision:
    """What follows from an observation.

    Attributes:
        status: to write, before anything is done: what was intended survives a crash.
        actions: to do, in this order.
        events: to emit.
        requeue_s: seconds until the job is looked at again, if nothing happens before.
    """

    status: dict[str, Any]
    actions: tuple[Action, ...]
    events: tuple[Event, ...]
    requeue_s: float


class Draft:
    """Mutable, lives for one decision."""

    def __init__(self, observed: Observed, settings: Settings) -> None:
        self.observed = observed
        self.settings = settings
        self.times = settings.times
        self.old = RLJobStatus.model_validate(dict(observed.status))
        self._changes: dict[str, Any] = {}
        self._conditions = {condition.type: condition for condition in self.old.conditions}
        self.invalid = False
        """Whether this manifest was found to be one of which nothing can be made."""
        self.actions: list[Action] = []
        self.events: list[Event] = []
        self._requeue_s = settings.times.resync_s

    @property
    def now_s(self) -> float:
        """Seconds since 1970."""
        return self.observed.now_s

    @property
    def now(self) -> str:
        """The same as RFC 3339."""
        return to_rfc3339(self.observed.now_s)

    @property
    def job(self) -> RLJob:
        """The job, where it is known to be valid."""
        assert self.observed.job is not None
        return self.observed.job

    def get(self, field: str) -> Any:
        """A status field as it is by now."""
        return self._changes.get(field, getattr(self.old, field))

    def set(self, **fields: Any) -> None:
        """Changes status fields."""
        self._changes |= fields

    # attempts --------------------

    @property
    def attempts(self) -> list[Attempt]:
        """The last ten, oldest first."""
        return list(self.get("attempts"))

    @property
    def attempt(self) -> Attempt | None:
        """The newest."""
        attempts = self.attempts
        return attempts[-1] if attempts else None

    @property
    def open_attempt(self) -> Attempt | None:
        """The newest, while it has not ended."""
        attempt = self.attempt
        return attempt if attempt is not None and attempt.ended_at is None else None

    @property
    def current(self) -> Attempt:
        """The open attempt, where there is known to be one."""
        attempt = self.open_attempt
        assert attempt is not None
        return attempt

    def add_attempt(self, attempt: Attempt) -> None:
        """Begins one, of which nothing is observed yet."""
        old = self.observed.ray_job
        left = self.observed.old_ray_jobs if old is None else (*self.observed.old_ray_jobs, old)
        self.observed = replace(self.observed, ray_job=None, ray_cluster=None, report=None, old_ray_jobs=left)
        self.set(attempts=[*self.attempts, attempt][-ATTEMPTS_KEPT:], attempt=attempt.number)

    def change_attempt(self, **fields: Any) -> None:
        """Changes the newest one."""
        attempts = self.attempts
        attempts[-1] = attempts[-1].model_copy(update=fields)
        self.set(attempts=attempts)

    @property
    def requests(self) -> Requests:
        """Requests of people that were acted on."""
        return self.get("requests") or Requests()

    # conditions and events --------------------

    def condition(self, kind: str) -> Condition | None:
        """A condition as it is by now."""
        return self._conditions.get(kind)

    def holds(self, kind: str) -> bool:
        """Whether a condition is True."""
        found = self._conditions.get(kind)
        return found is not None and found.status == "True"

    def since_s(self, kind: str) -> float:
        """Seconds that a condition has had its status."""
        found = self._conditions.get(kind)
        since = to_seconds(found.last_transition_time) if found else None
        return 0.0 if since is None else self.now_s - since

    def set_condition(
        self, kind: str, status: bool | None, reason: str, message: str, *, warn: bool = False, quiet: bool = False
    ) -> None:
        """Sets a condition; a new status or reason is also an event.

        Args:
            kind: its type.
            status: None: Unknown.
            reason: one CamelCase word.
            message: a sentence.
            warn: whether the event is a warning.
            quiet: no event: another one says the same.
        """
        text = {True: "True", False: "False", None: "Unknown"}[status]
        message = clip(message)
        old = self._conditions.get(kind)
        same_status = old is not None and old.status == text
        self._conditions[kind] = Condition(
            type=kind,
            status=text,  # type: ignore[arg-type]
            reason=reason,
            message=message,
            last_transition_time=old.last_transition_time if old and same_status else self.now,
            observed_generation=self.observed.generation,
        )
        if not quiet and (old is None or not same_status or old.reason != reason):
            self.event(reason, message, warn=warn)

    def refuse(self, reason: str, message: str) -> None:
        """Of this manifest nothing can be made: somebody has to mend it."""
        self.invalid = True
        self.set_condition("Valid", False, reason, message, warn=True)

    def drop_condition(self, kind: str) -> None:
        """Removes a condition that says nothing any more."""
        self._conditions.pop(kind, None)

    def event(self, reason: str, message: str, *, warn: bool = False) -> None:
        """An event on the RLJob."""
        self.events.append(Event("Warning" if warn else "Normal", reason, clip(message)))

    # the end --------------------

    def act(self, *actions: Action) -> None:
        """Adds actions, each once."""
        self.actions += [action for action in actions if action not in self.actions]

    def delete_ray_job(self, found: Manifest) -> None:
        """Has it deleted, unless somebody did so already."""
        if not found["metadata"].get("deletionTimestamp"):
            self.act(DeleteRayJob(found["metadata"]["name"], str(found["metadata"].get("uid", ""))))

    def look_again(self, seconds: float) -> None:
        """At the latest in so many seconds."""
        self._requeue_s = min(self._requeue_s, max(0.05, seconds))

    def decision(self) -> Decision:
        """The finished decision."""
        fields = {**self._changes, "conditions": list(self._conditions.values())}
        status = self.old.model_copy(update=fields)
        return Decision(to_manifest(status), tuple(self.actions), tuple(self.events), self._requeue_s)


def to_manifest(status: RLJobStatus) -> dict[str, Any]:
    """A status as the API server keeps it: nothing that says nothing."""
    dumped = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: value for key, value in dumped.items() if value not in ("", [], {})}


def clip(text: str, characters: int = MESSAGE_CHARACTERS) -> str:
    """A text within the schema's limit."""
    return text if len(text) <= characters else f"{text[: characters - 3]}..."


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """JSON merge patch (RFC 7386) from one object to another; empty where they are equal."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = merge_patch(before, value)
            if inner:
                patch[key] = inner
        elif before != value:
            patch[key] = value
    return patch
