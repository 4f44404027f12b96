"""Who may write checkpoints: the newest driver of a job, by a token that every driver compares before it publishes.

Two drivers of one job can meet: a head on an unreachable node lives on while its successor starts. Each names itself in
`owner.json`; the one that finds a newer owner there stops, and whatever it was writing stays debris.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field

from rlcore.checkpoint.storage import Storage
from rlcore.errors import CheckpointError, FencedError

logger = logging.getLogger("rlcore.checkpoint")

OWNER_FILE = "owner.json"


@dataclass(frozen=True, order=True)
class Owner:
    """One driver process; the greater of two is the newer one.

    Attributes:
        attempt: of the job, from 1.
        started_ns: when the process started, in nanoseconds since 1970.
        pod: uid of its pod; it tells two drivers apart and decides nothing.
    """

    attempt: int
    started_ns: int
    pod: str = field(compare=False)

    @property
    def token(self) -> str:
        """`<attempt>.<pod uid>.<start time>`."""
        return f"{self.attempt}.{self.pod}.{self.started_ns}"

    @classmethod
    def parse(cls, token: str) -> Owner:
        """The owner behind a token.

        Raises:
            ValueError: it is none.
        """
        attempt, _, rest = token.partition(".")
        pod, _, started_ns = rest.rpartition(".")
        return cls(int(attempt), int(started_ns), pod)


class Ownership:
    """This driver's claim on a job's checkpoints.

    Args:
        storage: where they are.
        owner: this driver.
    """

    def __init__(self, storage: Storage, owner: Owner) -> None:
        self._storage = storage
        self._owner = owner

    def claim(self) -> None:
        """Takes the checkpoints over from whoever had them before.

        Raises:
            FencedError: a newer driver has them.
            CheckpointError: the storage cannot be read or written.
        """
        try:
            self.check()
        except OSError as error:
            raise CheckpointError(
                f"cannot take over {self._storage.location}: {OWNER_FILE}: {error}",
                hint="check that spec.checkpoint.storage exists, can be reached and may be written",
            ) from error

    def check(self) -> None:
        """Called before anything is published; an older driver's name is replaced by this one's.

        Raises:
            FencedError: a newer driver has the checkpoints.
            OSError: the storage cannot be read or written.
        """
        found = self._read()
        if found is not None and found > self._owner:
            raise FencedError(
                f"a newer driver owns {self._storage.location}: {found.token}; this one is {self._owner.token}"
            )
        if found is None or found.token != self._owner.token:
            record = {"attempt": self._owner.attempt, "token": self._owner.token, "time_s": time.time()}
            self._storage.publish(OWNER_FILE, json.dumps(record, indent=2).encode() + b"\n")

    def _read(self) -> Owner | None:
        try:
            data = self._storage.read(OWNER_FILE)
        except FileNotFoundError:
            return None
        try:
            return Owner.parse(json.loads(data)["token"])
        except (ValueError, KeyError, TypeError, AttributeError):
            logger.warning("%s/%s names no driver and is replaced", self._storage.location, OWNER_FILE)
            return None
