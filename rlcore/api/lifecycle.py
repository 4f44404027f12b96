"""Restarts and budget of a job: what happens when it fails, and what it may cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlcore.api.base import ApiModel
from rlcore.api.fields import CURRENCY, PolicyName, duration
from rlcore.api.quantity import parse_duration


class RestartPolicy(ApiModel):
    """How often a failed application is started again; a preemption is never counted."""

    max_restarts: int = Field(
        default=3, ge=0, le=900, description="Restarts after failures of the application, a count."
    )
    backoff: Annotated[str, *duration(1, 3_600)] = Field(
        default="10s", description="Wait before the first counted restart; doubled for each one after it."
    )
    max_backoff: Annotated[str, *duration(1, 86_400)] = Field(
        default="5m", description="Longest wait before a restart."
    )

    permanent_exit_codes: list[Annotated[int, Field(ge=1, le=255)]] = Field(
        default_factory=list[int],
        max_length=32,
        description="Exit codes of the driver that no restart can mend: the job fails at once; 2 always is one.",
    )

    @property
    def backoff_s(self) -> int:
        """backoff in seconds."""
        return parse_duration(self.backoff)

    @property
    def max_backoff_s(self) -> int:
        """maxBackoff in seconds."""
        return parse_duration(self.max_backoff)


class BudgetSpec(ApiModel):
    """Prices, for the estimated cost in the status, and a limit."""

    currency: Annotated[str, Field(min_length=3, max_length=3, pattern=CURRENCY)] = Field(
        default="USD", description="Currency of all amounts, an ISO 4217 code."
    )
    price_per_hour: Annotated[dict[PolicyName, Annotated[float, Field(ge=0, le=1e6)]], Field(max_length=18)] = Field(
        default_factory=dict[str, float],
        description="Price of one pod for one hour, by pool name, and of head and learner; a missing one costs 0.",
    )
    maximum_cost: float | None = Field(
        default=None,
        gt=0,
        le=1e9,
        description="The job is checkpointed and suspended when its estimated cost reaches this; null: no limit.",
    )
