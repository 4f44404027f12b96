"""What a population knows of itself between two rounds: population.json, replaced as a whole, and lineage.jsonl.

Everything that was decided is in it, random numbers included: after a crash the round that was cut off is trained to
its end and decided once more, in the same way.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlcore.driver.pbt import Values
from rlcore.errors import UserError

STATE_FILE = "population.json"
LINEAGE_FILE = "lineage.jsonl"
FORMAT = 1


@dataclass
class Member:
    """One trial.

    Attributes:
        values: its hyper-parameters.
        score: mean reward of its last episodes, None before the first.
        iteration: iterations made.
        timesteps: sampled, in the life of its weights.
        copies: how often it became a copy of another trial.
        source: the trial that it is to copy before the next round, None for none.
    """

    values: Values
    score: float | None = None
    iteration: int = 0
    timesteps: int = 0
    copies: int = 0
    source: int | None = None


@dataclass
class PopulationState:
    """The population after a round.

    Attributes:
        rng: state of the generator of all decisions.
        members: the trials, by number.
        round: rounds that are over.
        elapsed_s: seconds of training, over all resumes.
        restarted_timesteps: of unfinished episodes that resumes began anew.
        lineage: one entry a birth or copy: round, trial, source, scores, values.
    """

    rng: dict[str, Any]
    members: list[Member]
    round: int = 0
    elapsed_s: float = 0.0
    restarted_timesteps: int = 0
    lineage: list[dict[str, Any]] = field(default_factory=list)

    @property
    def best(self) -> int:
        """The trial with the largest score; the first one where there is none yet."""
        scored = [(m.score, -i) for i, m in enumerate(self.members) if m.score is not None]
        return -max(scored)[1] if scored else 0

    def save(self, directory: Path) -> None:
        """Writes both files.

        Raises:
            UserError: they cannot be written.
        """
        try:
            _replace(directory / STATE_FILE, json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")
            _replace(directory / LINEAGE_FILE, "".join(json.dumps(entry) + "\n" for entry in self.lineage))
        except OSError as error:
            raise UserError(
                f"cannot write {directory / STATE_FILE}: {error.strerror}", hint="free some space there, then run again"
            ) from error

    @classmethod
    def load(cls, directory: Path) -> PopulationState | None:
        """What `save` wrote, None where there is none.

        Raises:
            UserError: it cannot be understood.
        """
        path = directory / STATE_FILE
        try:
            content = json.loads(path.read_bytes())
            if content.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            return cls(**{**content, "members": [Member(**member) for member in content["members"]]})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} cannot be used: {error!r}", hint="start over with --fresh") from error


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
