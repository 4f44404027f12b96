"""Every error that rlcore raises on purpose.

RlcoreError
└── UserError                  input or surroundings are wrong: printed on one screen, exit code 2
    ├── ManifestError          the RLJob manifest is not valid
    ├── EnvironmentFailure     an environment is missing, or raised too often
    ├── NonFiniteError         NaN or infinity in observations, rewards, actions or losses
    ├── CheckpointError        a checkpoint cannot be written, or belongs to another job
    └── UnsupportedError       a combination that the chosen algorithm cannot train
"""

from __future__ import annotations


class RlcoreError(Exception):
    """Base of all errors that rlcore raises on purpose."""


class UserError(RlcoreError):
    """The user's input or surroundings are wrong; the text says what, where and what to do.

    Args:
        message: what is wrong and where, one sentence.
        hint: what to do about it; shown on a line of its own.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  -> {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions, and these cross Ray.
        return (_rebuild, (type(self), self.__dict__.copy()))


class ManifestError(UserError):
    """The RLJob manifest is not valid."""


class EnvironmentFailure(UserError):  # noqa: N818 - it is the environment that failed
    """An environment is not installed, cannot be made, or raised more often than allowed."""


class NonFiniteError(UserError):
    """NaN or infinity where a finite number must be."""


class CheckpointError(UserError):
    """A checkpoint cannot be written, or belongs to another job."""


class UnsupportedError(UserError):
    """A combination of algorithm, optimizer, space or model that cannot be trained."""


def _rebuild(cls: type[UserError], state: dict[str, object]) -> UserError:
    error = cls.__new__(cls)
    Exception.__init__(error, state.get("message", ""))
    error.__dict__.update(state)
    return error
