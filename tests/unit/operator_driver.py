"""Drivers of the small world: they train by the second, follow control.json, and do what a script says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

FINAL_WAIT_S = 60


@dataclass
class Script:
    """How drivers behave.

    Attributes:
        failures: how many drivers fail, after `fail_after_s` and with `exit_code`.
        answers: whether checkpoints are written when asked for.
        reachable: whether the status can be read.
        stalls: whether no timestep is trained.
    """

    timesteps_per_s: int = 1000
    start_s: int = 3
    checkpoint_every_s: int = 10
    failures: int = 0
    fail_after_s: int = 5
    exit_code: int = 3
    message: str = "NaN in the loss"
    stalls: bool = False
    answers: bool = True
    reachable: bool = True


@dataclass
class Storage:
    """Checkpoints; they outlive everything."""

    timesteps: int = 0
    time_s: float | None = None
    complete: bool = False


@dataclass
class Driver:
    """One driver process on a head pod."""

    attempt: int
    head_uid: str
    started_s: float
    script: Script
    storage: Storage
    timesteps: int = 0
    phase: str = "Starting"
    request: str | None = None
    final: Object | None = None
    final_s: float = 0.0
    exit_code: int | None = None

    @property
    def token(self) -> str:
        return f"{self.attempt}.{self.head_uid}.1"

    def serves(self, now_s: float) -> bool:
        """Whether its status can be read."""
        return self.script.reachable and self.exit_code is None and now_s >= self.started_s + self.script.start_s

    def step(self, now_s: float, control: Object) -> None:
        """One second."""
        script, age_s = self.script, now_s - self.started_s - self.script.start_s
        if self.exit_code is not None or age_s < 0:
            return
        if self.final is not None:
            if control.get("finalObserved") == self.token or now_s - self.final_s >= FINAL_WAIT_S:
                self.exit_code = self.final["exit_code"]
            return
        if self.phase == "Starting":
            self.phase, self.timesteps = "Running", self.storage.timesteps
        if self.storage.complete and self.storage.timesteps >= control["stop"]["timesteps"]:
            self._end(0, now_s)
        elif script.failures > 0 and age_s >= script.fail_after_s:
            script.failures -= 1
            self._end(script.exit_code, now_s)
        else:
            self._train(now_s, control, age_s)

    def _train(self, now_s: float, control: Object, age_s: float) -> None:
        script, asked = self.script, control.get("checkpointRequest")
        if self.phase == "Running" and not script.stalls:
            self.timesteps += script.timesteps_per_s
        if self.timesteps >= control["stop"]["timesteps"]:
            self.storage.complete = True
            self._save(now_s)
            self._end(0, now_s)
            return
        if asked and asked != self.request and script.answers:
            self._save(now_s)
            self.request = asked
        elif age_s and age_s % script.checkpoint_every_s == 0:
            self._save(now_s)
        self.phase = "Paused" if control.get("pause") else "Running"

    def _save(self, now_s: float) -> None:
        self.storage.timesteps, self.storage.time_s = self.timesteps, now_s

    def _end(self, code: int, now_s: float) -> None:
        if code not in (0, 2, 3, 70):
            self.exit_code = code
            return
        self.phase = "Failed" if code else "Succeeded"
        self.final_s = now_s
        self.final = {
            "token": self.token,
            "phase": self.phase,
            "failure_class": {0: "", 2: "ConfigInvalid"}.get(code, "ApplicationFailed"),
            "exit_code": code,
            "reason": "Reason",
            "message": self.script.message if code else "the goal is reached",
        }

    def status(self, job: str, evaluator_pods: list[Object]) -> Object:
        """What GET /status answers."""
        storage = self.storage
        return {
            "job": job,
            "phase": self.phase,
            "message": "",
            "attempt": self.attempt,
            "token": self.token,
            "iteration": self.timesteps // 1000,
            "timesteps": self.timesteps,
            "checkpoint": {
                "location": "/ckpt",
                "timesteps": storage.timesteps if storage.time_s is not None else None,
                "time_s": storage.time_s,
                "request": self.request,
            },
            "evaluator_pods": evaluator_pods,
            "final": self.final,
        }
