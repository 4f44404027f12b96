"""The state of a job as one JSON object, for the operator, scripts and people with curl."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

from rlcore.metrics.result import IterationResult, finite_json

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_QUERY = re.compile(r"\?\S*")


class StatusBoard:
    """Holds the newest state; written by the driver, read by server threads."""

    def __init__(self, *, job: str, algorithm: str, environment: str, checkpoint_location: str | None = None) -> None:
        self._lock = threading.Lock()
        self._result: IterationResult | None = None
        self._updated_s = time.time()
        self._phase, self._message = "Starting", ""
        self._fixed = {"job": job, "algorithm": algorithm, "environment": environment}
        self._checkpoint_location = checkpoint_location and without_secrets(checkpoint_location)

    def set_phase(self, phase: str, message: str = "") -> None:
        """Starting, Running, Recovering, Stopping, Succeeded, Failed, ...; with a sentence for people, or none."""
        with self._lock:
            self._phase, self._message, self._updated_s = phase, message, time.time()

    def observe(self, result: IterationResult) -> None:
        """Take in one iteration."""
        with self._lock:
            self._result, self._updated_s = result, time.time()

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values: no NaN, no credentials. Training numbers are null before the first iteration."""
        with self._lock:
            result, phase, message, updated_s = self._result, self._phase, self._message, self._updated_s
        values = {} if result is None else result.to_json_dict()
        numbers = {
            name: values.get(name)
            for name in (
                "iteration",
                "timesteps",
                "episodes",
                "episode_reward_mean",
                "episode_length_mean",
                "timesteps_per_s",
                "elapsed_s",
                "evaluators",
                "environment_failures",
                "evaluation",
                "learner",
                "optimizer",
            )
        }
        return {
            **self._fixed,
            "phase": phase,
            "message": message,
            "updated_s": finite_json(updated_s),
            **numbers,
            "time_shares": {} if result is None else finite_json(result.time_shares()),
            "bottleneck": None if result is None else result.bottleneck(),
            "checkpoint": {"location": self._checkpoint_location, "timesteps": values.get("checkpoint_timesteps")},
        }


def without_secrets(location: str) -> str:
    """A storage URL without user, password and query, which may hold keys; paths stay as they are."""
    if "://" not in location:
        return location
    return _QUERY.sub("", _CREDENTIALS.sub("", location))
