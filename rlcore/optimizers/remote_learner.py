"""The learner as a Ray actor on another pod: batches and weights travel as references, never through the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlcore.errors import RlcoreError, UserError
from rlcore.evaluation.config import EvaluatorConfig
from rlcore.evaluation.evaluator_set import unwrap
from rlcore.evaluation.world import Spaces
from rlcore.optimizers.learner import Learner, LearnerReport

CALL_DEADLINE_S = 600.0


class _LearnerActor(Learner):
    """Builds its policies where it runs, on the devices it finds there."""

    def __init__(self, config: EvaluatorConfig, spaces: dict[str, Spaces], devices: Sequence[str]) -> None:
        policies = {p: config.build_policy(p, spaces[p], devices[0]) for p in spaces if p in config.trained}
        super().__init__(policies, devices=devices, seed=config.seed)

    def load_many(self, *batches: Any) -> None:
        """`load` with each batch an argument of its own, so that Ray fetches references here."""
        self.load(batches)


class RemoteLearner:
    """A `Learner` behind an actor handle, with the same methods.

    Args:
        config: of the job's evaluators: names the policies.
        spaces: policy id -> (observation space, action space).
        devices: towers on the actor's machine.
        actor_options: Ray's options (num_cpus, num_gpus, resources).
    """

    def __init__(
        self, config: EvaluatorConfig, spaces: dict[str, Spaces], devices: Sequence[str], actor_options: dict[str, Any]
    ) -> None:
        import ray

        self._actor = ray.remote(**actor_options)(_LearnerActor).remote(config, spaces, list(devices))
        try:
            self._call("get_version")
        except BaseException:
            self.stop()
            raise

    def load(self, batches: Sequence[Any]) -> None:
        """Batches by reference."""
        self._call("load_many", *batches)

    def sgd(self, *, num_epochs: int, minibatch_size: int) -> LearnerReport:
        """See Learner."""
        report: LearnerReport = self._call("sgd", num_epochs=num_epochs, minibatch_size=minibatch_size)
        return report

    def set_timesteps(self, timesteps: int) -> None:
        """See Learner."""
        self._call("set_timesteps", timesteps)

    def get_weights(self) -> Any:
        """See Learner."""
        return self._call("get_weights")

    def get_version(self) -> int:
        """See Learner."""
        return int(self._call("get_version"))

    def get_state(self) -> dict[str, Any]:
        """See Learner."""
        state: dict[str, Any] = self._call("get_state")
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """See Learner."""
        self._call("set_state", state)

    def stop(self) -> None:
        """Ends the actor."""
        import ray

        ray.kill(self._actor)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        import ray
        from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

        try:
            return ray.get(getattr(self._actor, method).remote(*args, **kwargs), timeout=CALL_DEADLINE_S)
        except RayTaskError as error:
            raise unwrap(error) from error
        except RayActorError as error:
            cause = unwrap(error)
            if isinstance(cause, RlcoreError):
                raise cause from error
            raise UserError(
                f"the learner died: {error}", hint="run again: it resumes from the newest checkpoint"
            ) from error
        except GetTimeoutError as error:
            raise UserError(
                f"the learner did not answer {method} within {CALL_DEADLINE_S:.0f} s",
                hint="the cluster may lack the learner's GPU: see `ray status`",
            ) from error
