"""control.json: what may change while a job runs, written by the operator and read by the driver.

The kubelet swaps the whole directory at once, but a file may also be half-written or wrong. Whatever cannot be
understood is left out with a warning, and what was last understood stays in force.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlcore.api import PoolLimits, StopSpec

logger = logging.getLogger("rlcore.driver")

CONTROL_FILE = "control.json"
VERSION = 1
POLL_EVERY_S = 1.0


@dataclass(frozen=True)
class Control:
    """One version of control.json.

    Attributes:
        stop: conditions that end training; None: those of the manifest.
        replicas: evaluator pods over all pools; None: each pool within its limits.
        pools: limits by pool name; a pool that is not named keeps the manifest's.
        checkpoint_request: token of a checkpoint that somebody waits for.
        pause: save, and train on only when it is false again.
        final_observed: token of the final status that the operator has stored.
    """

    stop: StopSpec | None = None
    replicas: int | None = None
    pools: Mapping[str, PoolLimits] = field(default_factory=dict)
    checkpoint_request: str | None = None
    pause: bool = False
    final_observed: str | None = None


class ControlFile:
    """Follows control.json in a directory.

    Args:
        directory: where it is, or will be.
        clock: seconds, monotonic.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = directory / CONTROL_FILE
        self._clock = clock
        self._read_at_s: float | None = None
        self._seen: bytes | None = None
        self._control = Control()

    def poll(self) -> Control:
        """The newest version that could be understood; the file is looked at once a second at most."""
        now_s = self._clock()
        if self._read_at_s is None or now_s - self._read_at_s >= POLL_EVERY_S:
            self._read_at_s = now_s
            self._read()
        return self._control

    def _read(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            data = b""  # there is none, or not yet: the manifest holds
        except OSError as error:
            logger.warning("control.json cannot be read, the last one stays in force: %s", error)
            return
        if data == self._seen:
            return
        self._seen = data
        if not data:
            return
        try:
            self._control = parse_control(data)
        except ValueError as error:
            logger.warning("control.json is not understood, the last one stays in force: %s", error)
            return
        logger.info("control.json: %s", " ".join(data.decode().split()))


def parse_control(data: bytes) -> Control:
    """The content of control.json.

    Raises:
        ValueError: it is not what this version of rlcore understands.
    """
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError(f"it holds {type(content).__name__}, not an object")
    if content.get("version") != VERSION:
        raise ValueError(f"version {content.get('version')!r}; this rlcore knows version {VERSION}")
    evaluators = _object(content, "evaluators")
    return Control(
        stop=_stop(content),
        replicas=_optional(evaluators, "replicas", int),
        pools={name: _limits(name, pool) for name, pool in _object(evaluators, "pools").items()},
        checkpoint_request=_optional(content, "checkpointRequest", str),
        pause=_optional(content, "pause", bool) or False,
        final_observed=_optional(content, "finalObserved", str),
    )


def _stop(content: Mapping[str, Any]) -> StopSpec | None:
    stop = content.get("stop")
    if stop is None:
        return None
    try:
        return StopSpec.model_validate(stop, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = "; ".join(f"stop.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ValueError(problems) from error


def _limits(name: str, pool: Any) -> PoolLimits:
    if not isinstance(pool, dict):
        raise ValueError(f"evaluators.pools.{name} is not an object")
    low, high = _optional(pool, "minReplicas", int), _optional(pool, "maxReplicas", int)
    if low is None or high is None or not 0 <= low <= high:
        raise ValueError(f"evaluators.pools.{name}: minReplicas {low!r}, maxReplicas {high!r}")
    return PoolLimits(low, high)


def _object(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key) or {}
    if not isinstance(value, dict):
        raise ValueError(f"{key} is not an object")
    return value


def _optional(content: Mapping[str, Any], key: str, kind: type) -> Any:
    value = content.get(key)
    if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise ValueError(f"{key} is {value!r}, not {kind.__name__}")
    return value
