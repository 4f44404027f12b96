"""The status of one attempt in a cluster: what the operator wants to know beside the numbers of training."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlcore.metrics.result import finite_json
from rlcore.metrics.status import StatusBoard, without_secrets


@dataclass(frozen=True)
class FinalStatus:
    """How an attempt ended; shown until the operator has stored it.

    Attributes:
        token: of the driver; the operator names it when it has stored the rest.
        phase: Succeeded or Failed.
        failure_class: ConfigInvalid, ApplicationFailed, OutOfMemory, EvaluatorsLost; empty for success.
        exit_code: that the process will end with.
        reason: one CamelCase word.
        message: a sentence for people.
    """

    token: str
    phase: str
    failure_class: str
    exit_code: int
    reason: str
    message: str


class AttemptBoard(StatusBoard):
    """A StatusBoard with the attempt, its checkpoints as they are saved, and its end."""

    def __init__(self, *, job: str, algorithm: str, environment: str, attempt: int, token: str) -> None:
        super().__init__(job=job, algorithm=algorithm, environment=environment)
        self._attempt_lock = threading.Lock()
        self._identity = {"attempt": attempt, "token": token}
        self._checkpoint: dict[str, Any] = {"location": None, "timesteps": None, "time_s": None, "request": None}
        self._final: FinalStatus | None = None
        self._completion: dict[str, Any] = {}
        self._pods: list[dict[str, Any]] = []
        self._learners_lost = 0

    def note_checkpoint(self, *, location: str, timesteps: int, time_s: float) -> None:
        """The newest complete checkpoint; `time_s` in seconds since 1970."""
        with self._attempt_lock:
            self._checkpoint |= {"location": without_secrets(location), "timesteps": timesteps, "time_s": time_s}

    def note_request(self, request: str) -> None:
        """The request that the newest checkpoint answers."""
        with self._attempt_lock:
            self._checkpoint["request"] = request

    def note_pods(self, pods: Sequence[Mapping[str, Any]]) -> None:
        """Evaluator pods and how many evaluators each one holds; one that holds none can go."""
        with self._attempt_lock:
            self._pods = [dict(pod) for pod in pods]

    def note_learner_lost(self) -> None:
        """A learner was lost, and training went back to the newest checkpoint."""
        with self._attempt_lock:
            self._learners_lost += 1

    def note_completion(self, completion: Mapping[str, Any]) -> None:
        """The numbers of a job that was complete before this attempt began."""
        names = {"iterations": "iteration"}
        shown = ("timesteps", "iterations", "episodes", "episode_reward_mean", "elapsed_s", "evaluation")
        with self._attempt_lock:
            self._completion = {names.get(key, key): finite_json(completion.get(key)) for key in shown}

    def set_final(self, final: FinalStatus) -> None:
        """The end; nothing changes after it."""
        self.set_phase(final.phase, final.message)
        with self._attempt_lock:
            self._final = final

    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        with self._attempt_lock:
            return {
                **state,
                **self._completion,
                **self._identity,
                "checkpoint": dict(self._checkpoint),
                "final": None if self._final is None else asdict(self._final),
                "evaluator_pods": list(self._pods),
                "learners_lost": self._learners_lost,
            }
