"""How an attempt ends: exit code and class of an error, and the wait until the operator has stored them."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator

from rlcore.driver.interrupt import Interrupt
from rlcore.errors import FencedError, NoEvaluatorsError, UserError
from rlcore.metrics.attempt_status import FinalStatus

logger = logging.getLogger("rlcore.driver")

EXIT_COMPLETE = 0
EXIT_PERMANENT = 2
"""No restart can mend it."""
EXIT_FAILED = 3
"""Worth another attempt."""
EXIT_BUG = 70
EXIT_FENCED = 75
"""A newer driver owns the checkpoints."""

OBSERVED_DEADLINE_S = 60.0
POLL_EVERY_S = 0.1
LONGEST_MESSAGE = 4000


def judge(error: BaseException) -> tuple[int, str]:
    """Exit code and failure class of what ended a run."""
    if isinstance(error, FencedError):
        return EXIT_FENCED, ""
    if any(_is_out_of_memory(cause) for cause in _chain(error)):
        return EXIT_FAILED, "OutOfMemory"
    if isinstance(error, NoEvaluatorsError):
        return EXIT_FAILED, "EvaluatorsLost"
    if isinstance(error, UserError):
        return (EXIT_PERMANENT, "ConfigInvalid") if error.permanent else (EXIT_FAILED, "ApplicationFailed")
    if isinstance(error, ImportError):
        return EXIT_PERMANENT, "ConfigInvalid"
    # A Ray that fails is the cluster's business, an OSError the storage's: neither is a bug.
    if isinstance(error, OSError) or type(error).__module__.startswith("ray."):
        return EXIT_FAILED, "ApplicationFailed"
    return EXIT_BUG, "ApplicationFailed"


def failed(error: BaseException, token: str) -> FinalStatus:
    """The final status of an attempt that `error` ended."""
    exit_code, failure_class = judge(error)
    return FinalStatus(token, "Failed", failure_class, exit_code, _reason(error), _message(error))


def succeeded(message: str, token: str) -> FinalStatus:
    """The final status of a complete job."""
    return FinalStatus(token, "Succeeded", "", EXIT_COMPLETE, "Complete", message[:LONGEST_MESSAGE])


def wait_until_observed(
    final: FinalStatus,
    observed: Callable[[], str | None],
    interrupt: Interrupt,
    *,
    deadline_s: float = OBSERVED_DEADLINE_S,
) -> bool:
    """Waits until the operator has stored the final status; False after the deadline or a signal.

    Args:
        final: what is shown.
        observed: the token that the operator has named last.
        interrupt: a signal ends the wait.
        deadline_s: in seconds.
    """
    end_s = time.monotonic() + deadline_s
    while observed() != final.token:
        if interrupt.requested or time.monotonic() >= end_s:
            logger.warning("the final status was not observed by the operator")
            return False
        time.sleep(POLL_EVERY_S)
    return True


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what caused it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or getattr(error, "cause", None) or error.__context__


def _is_out_of_memory(error: BaseException) -> bool:
    # By name, for neither torch nor Ray may be there where this is judged.
    return isinstance(error, MemoryError) or type(error).__name__ in ("OutOfMemoryError", "ObjectStoreFullError")


def _reason(error: BaseException) -> str:
    return re.sub(r"\W+", "", type(error).__name__) or "Error"


def _message(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    named = text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"
    return named[:LONGEST_MESSAGE]
