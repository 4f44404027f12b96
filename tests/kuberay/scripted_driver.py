"""A training driver that trains nothing: it follows a script, control.json and the clock. Pure, but for the clock.

The script is the annotation `standin.rlcore.io/script` of the RLJob (or of a RayJob without one), JSON, every key
optional:

    timestepsPerS 1000       progress
    rewardPerTimestep 0      the mean episode reward is this times the timesteps
    startDelayS 0            until the driver serves its status, as long as imports would take
    checkpointEveryS 5
    failures 1               of so many runs of the driver (not attempts: a recreated head runs it anew)
    failAfterS null          each fails after so long,
    exitCode 1               with this code (0, 2, 3 and 70 show a final status first; others are a sudden death),
    message ""               this message,
    failureClass null        and this class, instead of the one that belongs to the code;
    hang false               or makes no timestep from then on (at once without failAfterS), and answers nothing new
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.kuberay.names import Object

SCRIPT_ANNOTATION = "standin.rlcore.io/script"
_FINAL_WAIT_S = 60.0
_TERMINATED = 143
_TIMESTEPS_PER_ITERATION = 4096
_TIMESTEPS_PER_EPISODE = 200
_CLASS_OF_CODE = {0: "", 2: "ConfigInvalid", 3: "ApplicationFailed", 70: "ApplicationFailed"}
"""Of the exit codes before which a driver shows its final status."""
_REASON_OF_CODE = {0: "Complete", 2: "ManifestError", 3: "EnvironmentFailure", 70: "RuntimeError"}


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a driver is to do."""

    timesteps_per_s: float = 1000.0
    reward_per_timestep: float = 0.0
    start_delay_s: float = 0.0
    checkpoint_every_s: float = 5.0
    failures: int = 1
    fail_after_s: float | None = None
    exit_code: int = 1
    message: str = ""
    failure_class: str | None = None
    hang: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError, TypeError for what is no script."""
        given: dict[str, Any] = json.loads(text or "{}")
        return cls(**{_snake_case(name): value for name, value in given.items()})

    @property
    def misbehaves(self) -> bool:
        return self.hang or self.fail_after_s is not None


@dataclass(kw_only=True)
class Storage:
    """What a job has in its checkpoint directory: it outlives every driver."""

    timesteps: int = 0
    time_s: float | None = None
    elapsed_s: float = 0.0
    failures: int = 0
    """Runs that have misbehaved."""
    complete: bool = False


@dataclass(kw_only=True)
class Run:
    """One run of the driver, on one head."""

    job: str
    attempt: int
    head_uid: str
    started_s: float
    """Of the clock that `advance` is given; so are the other times."""
    storage: Storage
    script: Script
    algorithm: str = ""
    environment: str = ""
    location: str = "scripted"
    phase: str = "Starting"
    timesteps: float = 0.0
    elapsed_s: float = 0.0
    seen_s: float = 0.0
    checkpoint_s: float = 0.0
    request: str | None = None
    hung: bool = False
    final: Object | None = None
    final_s: float = 0.0
    log: list[str] = field(default_factory=list)
    exit_code: int | None = None
    """None while it runs."""

    @property
    def token(self) -> str:
        return f"{self.attempt}.{self.head_uid}.{int(self.started_s * 1e9)}"

    @property
    def serves(self) -> bool:
        """Whether its status can be read."""
        return self.phase != "Starting" and self.exit_code is None

    def advance(self, now_s: float, control: Mapping[str, Any]) -> None:
        """Lives until now, with what control.json says."""
        if self.exit_code is not None:
            return
        if self.phase == "Starting":
            if now_s < self.started_s + self.script.start_delay_s:
                return
            self._begin(control)
        if self.final is not None:
            self._wait_for_observation(now_s, control)
            return
        self._misbehave(now_s)
        if self.exit_code is None and not self.hung and self.final is None:
            self._train(now_s, control)

    def terminate(self, now_s: float) -> None:
        """SIGTERM, or a preStop hook that asked for a last checkpoint: one is saved, and the driver ends."""
        if self.exit_code is None:
            if self.serves and not self.hung and self.final is None:
                self._save(now_s)
            self.log.append("SIGTERM: stopping")
            self.exit_code = _TERMINATED

    def checkpoint(self, now_s: float) -> None:
        """The head's preStop hook asks for one."""
        if self.serves and not self.hung and self.final is None:
            self._save(now_s)

    def status(self, now_s: float, evaluator_pods: Sequence[Object]) -> Object:
        """What GET /status answers."""
        timesteps = int(self.timesteps)
        return {
            "job": self.job,
            "algorithm": self.algorithm,
            "environment": self.environment,
            "phase": self.phase,
            "message": "" if self.final is None else self.final["message"],
            "updated_s": self.seen_s if self.hung else now_s,
            "iteration": timesteps // _TIMESTEPS_PER_ITERATION,
            "timesteps": timesteps,
            "episodes": timesteps // _TIMESTEPS_PER_EPISODE,
            "episode_reward_mean": self.reward,
            "episode_length_mean": float(_TIMESTEPS_PER_EPISODE),
            "timesteps_per_s": self.script.timesteps_per_s if self.phase == "Running" else 0.0,
            "elapsed_s": self.elapsed_s,
            "evaluators": sum(pod["evaluators"] for pod in evaluator_pods),
            "evaluator_pods": list(evaluator_pods),
            "learners_lost": 0,
            "environment_failures": 0,
            "evaluation": None,
            "learner": {},
            "optimizer": {},
            "time_shares": {"sample": 0.2, "learn": 0.7, "wait": 0.1},
            "bottleneck": "learning-bound: 70 % of the time in SGD; more evaluators will not help",
            "checkpoint": {
                "location": self.location if self.storage.time_s else None,
                "timesteps": self.storage.timesteps if self.storage.time_s else None,
                "time_s": self.storage.time_s,
                "request": self.request,
            },
            "attempt": self.attempt,
            "token": self.token,
            "final": self.final,
        }

    @property
    def reward(self) -> float:
        return self.timesteps * self.script.reward_per_timestep

    @property
    def message(self) -> str:
        """Ray's words on how the entrypoint ended."""
        if self.exit_code == 0:
            return "Job finished successfully."
        if self.exit_code == _TERMINATED:
            return "Job was intentionally stopped."
        tail = "\n".join(self.log)[-20_000:]
        return (
            f"Job entrypoint command failed with exit code {self.exit_code}, "
            f"last available logs (truncated to 20,000 chars):\n{tail}\n"
        )

    def _begin(self, control: Mapping[str, Any]) -> None:
        self.timesteps, self.elapsed_s = float(self.storage.timesteps), self.storage.elapsed_s
        self.seen_s = self.checkpoint_s = self.started_s + self.script.start_delay_s
        self.phase = "Running"
        self.log.append(f"attempt={self.attempt} resumed_at={self.storage.timesteps}")
        if self.storage.time_s is None:
            self._save(self.seen_s)  # storage that cannot be written is found at once
        if self.storage.complete and self._stop_reason(control.get("stop") or {}):
            self._finish(0, "the job was complete before", self.seen_s)

    def _misbehave(self, now_s: float) -> None:
        script = self.script
        if not script.misbehaves or self.storage.failures >= script.failures:
            return
        since_s = self.started_s + script.start_delay_s + (script.fail_after_s or 0.0)
        if now_s < since_s:
            return
        self.storage.failures += 1
        if script.hang:
            self.hung = True
        elif script.exit_code in _CLASS_OF_CODE:
            self._finish(script.exit_code, script.message, now_s)
        else:
            self.log.append(script.message)
            self.exit_code = script.exit_code

    def _train(self, now_s: float, control: Mapping[str, Any]) -> None:
        passed_s = max(now_s - self.seen_s, 0.0)
        self.seen_s = now_s
        if self.phase == "Running":
            self.timesteps += passed_s * self.script.timesteps_per_s
            self.elapsed_s += passed_s
        if reason := self._stop_reason(control.get("stop") or {}):
            self._finish(0, reason, now_s)
            return
        request = control.get("checkpointRequest")
        if (request and request != self.request) or now_s - self.checkpoint_s >= self.script.checkpoint_every_s:
            self._save(now_s)
        self.request = request or self.request
        paused = bool(control.get("pause"))
        if paused and self.phase == "Running":
            self._save(now_s)
        self.phase = "Paused" if paused else "Running"

    def _stop_reason(self, stop: Mapping[str, Any]) -> str:
        limit, goal = stop.get("timesteps"), stop.get("episodeReward")
        if goal is not None and self.timesteps and self.reward >= goal:
            return f"mean episode reward {self.reward:g} reached the goal of {goal:g}"
        if limit is not None and self.timesteps >= limit:
            self.timesteps = float(limit)
            return f"{limit} timesteps are done"
        return ""

    def _finish(self, code: int, message: str, now_s: float) -> None:
        """Shows the final status, and waits until it was read."""
        if code == 0:
            self.storage.complete = True
            self._save(now_s)
        self.phase = "Succeeded" if code == 0 else "Failed"
        failure_class = _CLASS_OF_CODE[code] if self.script.failure_class is None else self.script.failure_class
        self.final_s = now_s
        self.final = {
            "token": self.token,
            "phase": self.phase,
            "failure_class": "" if code == 0 else failure_class,
            "exit_code": code,
            "reason": _REASON_OF_CODE[code],
            "message": message,
        }
        self.log.append(message)

    def _wait_for_observation(self, now_s: float, control: Mapping[str, Any]) -> None:
        assert self.final is not None
        if control.get("finalObserved") == self.final["token"] or now_s - self.final_s >= _FINAL_WAIT_S:
            self.exit_code = self.final["exit_code"]

    def _save(self, now_s: float) -> None:
        self.storage.timesteps, self.storage.elapsed_s = int(self.timesteps), self.elapsed_s
        self.storage.time_s = self.checkpoint_s = now_s


def _snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
