"""Every error that rlcore raises on purpose.

RlcoreError
├── FencedError                a newer driver owns the checkpoints: this one has to stop
└── UserError                  input or surroundings are wrong: printed on one screen, exit code 2
    ├── ManifestError          the RLJob manifest is not valid
    ├── EnvironmentFailure     an environment is missing, or raised too often
    ├── NonFiniteError         NaN or infinity in observations, rewards, actions or losses
    ├── CheckpointError        a checkpoint cannot be written, or belongs to another job
    ├── UnsupportedError       a combination that the chosen algorithm cannot train
    ├── NoEvaluatorsError      all evaluators are gone, and none came back in time
    └── LearnerLostError       the learner's process or node is gone
"""

from __future__ import annotations


class RlcoreError(Exception):
    """Base of all errors that rlcore raises on purpose."""


class FencedError(RlcoreError):
    """A newer driver owns the checkpoints; nothing more may be written to them."""


class UserError(RlcoreError):
    """The user's input or surroundings are wrong; the text says what, where and what to do.

    Args:
        message: what is wrong and where, one sentence.
        hint: what to do about it; shown on a line of its own.
        permanent: no restart can mend it, so that none is made; None: as the class says.
    """

    permanent = False

    def __init__(self, message: str, *, hint: str | None = None, permanent: bool | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if permanent is not None:
            self.permanent = permanent

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  -> {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions, and these cross Ray.
        return (_rebuild, (type(self), self.__dict__.copy()))


class ManifestError(UserError):
    """The RLJob manifest is not valid."""

    permanent = True


class EnvironmentFailure(UserError):  # noqa: N818 - it is the environment that failed
    """An environment is not installed, cannot be made, or raised more often than allowed."""


class NonFiniteError(UserError):
    """NaN or infinity where a finite number must be."""


class CheckpointError(UserError):
    """A checkpoint cannot be written, or belongs to another job."""


class UnsupportedError(UserError):
    """A combination of algorithm, optimizer, space or model that cannot be trained."""

    permanent = True


class NoEvaluatorsError(UserError):
    """Nobody samples any more, and no evaluator came (back) in time."""


class LearnerLostError(UserError):
    """The learner's process or node is gone, and with it what came after the newest checkpoint."""


def _rebuild(cls: type[UserError], state: dict[str, object]) -> UserError:
    error = cls.__new__(cls)
    Exception.__init__(error, state.get("message", ""))
    error.__dict__.update(state)
    return error
