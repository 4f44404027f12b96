"""The learner as a Ray actor on another pod: batches and weights travel as references, never through the driver."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlcore.errors import LearnerLostError, RlcoreError, UserError
from rlcore.evaluation.config import EvaluatorConfig
from rlcore.evaluation.evaluator_set import lost_errors, unwrap
from rlcore.evaluation.world import Spaces
from rlcore.optimizers.learner import Learner, LearnerReport, Update

logger = logging.getLogger("rlcore.optimizers")

CALL_DEADLINE_S = 600.0
FETCH_DEADLINE_S = 120.0
POLL_S = 0.5


class _LearnerActor(Learner):
    """Builds its policies where it runs, on the devices it finds there."""

    def __init__(
        self, config: EvaluatorConfig, spaces: dict[str, Spaces], devices: Sequence[str], threads: int | None
    ) -> None:
        if threads is not None:
            import torch

            # Ray gives an actor that books no core a single thread. Small policies go back to one when they are built.
            torch.set_num_threads(threads)
        policies = {p: config.build_policy(p, spaces[p], devices[0]) for p in spaces if p in config.trained}
        super().__init__(policies, devices=devices, seed=config.seed)

    def load_references(self, references: Sequence[Any]) -> int:
        """`load` of what the references stand for; returns how many of them were lost with their nodes."""
        batches = _fetch(references)
        self.load([batch for batch in batches if batch is not None])
        return sum(batch is None for batch in batches)

    def update_references(
        self, references: Sequence[Any], num_epochs: int, minibatch_size: int, timesteps: int, want_weights: bool
    ) -> tuple[LearnerReport, Any]:
        """`submit` of what the references stand for; what was lost with its node is left out."""
        started = time.perf_counter()
        batches = [batch for batch in _fetch(references) if batch is not None]
        if len(batches) < len(references):
            logger.warning(
                "%d of %d samples were lost with their nodes", len(references) - len(batches), len(references)
            )
        fetch_time_s = time.perf_counter() - started
        self.submit(
            batches,
            num_epochs=num_epochs,
            minibatch_size=minibatch_size,
            timesteps=timesteps,
            want_weights=want_weights,
        )
        ((report, weights),) = self.finished(wait=True)
        report.load_time_s += fetch_time_s
        return report, weights

    def apply_references(self, references: Sequence[Any], timesteps: int) -> tuple[LearnerReport | None, Any]:
        """`apply_gradients` of what one reference stands for; nothing where that was lost with its node."""
        (gradients,) = _fetch(references)
        if gradients is None:
            return None, None
        report, weights = self.apply_gradients(gradients, timesteps)
        return report, weights


class RemoteLearner:
    """A `Learner` behind an actor handle, with the same methods.

    Args:
        config: of the job's evaluators: names the policies.
        spaces: policy id -> (observation space, action space).
        devices: towers on the actor's machine.
        actor_options: Ray's options (num_cpus, num_gpus, resources).
        threads: torch's on the actor's machine; None leaves Ray's choice.

    Every method raises LearnerLostError where the actor's process or node is gone; `restart` makes another one.
    """

    def __init__(
        self,
        config: EvaluatorConfig,
        spaces: dict[str, Spaces],
        devices: Sequence[str],
        actor_options: dict[str, Any],
        threads: int | None = None,
    ) -> None:
        import ray

        make = ray.remote(**actor_options)(_LearnerActor)
        self._start: Callable[[], Any] = lambda: make.remote(config, spaces, list(devices), threads)
        self._actor = self._start()
        self._submitted: deque[tuple[Any, Any]] = deque()
        try:
            self._call("get_version")
        except BaseException:
            self.stop()
            raise

    def restart(self, deadline_s: float, meanwhile: Callable[[], None]) -> None:
        """Another actor with the policies of the very beginning; the rest is `set_state`'s.

        Args:
            deadline_s: how long a place and a start are waited for.
            meanwhile: called twice a second; it ends the wait by raising.

        Raises:
            UserError: none came up in time.
        """
        import ray

        end_s = time.monotonic() + deadline_s
        self.stop()
        self._submitted.clear()
        self._actor = self._start()
        up = self._actor.get_version.remote()
        while time.monotonic() < end_s:
            meanwhile()
            if not ray.wait([up], timeout=POLL_S)[0]:
                continue
            try:
                self._answer("get_version", up)
                return
            except LearnerLostError as error:
                logger.warning("a learner died while it started: %s", error.message)
                time.sleep(POLL_S)
                self._actor = self._start()
                up = self._actor.get_version.remote()
        raise UserError(
            f"no learner came back within {deadline_s:.0f} s", hint="see the learner pod, and `ray status` on the head"
        )

    def load(self, batches: Sequence[Any]) -> None:
        """Batches by reference."""
        lost = self._call("load_references", list(batches))
        if lost:
            logger.warning("%d of %d samples were lost with their nodes", lost, len(batches))

    def sgd(self, *, num_epochs: int, minibatch_size: int) -> LearnerReport:
        """See Learner."""
        report: LearnerReport = self._call("sgd", num_epochs=num_epochs, minibatch_size=minibatch_size)
        return report

    def submit(
        self, batches: Sequence[Any], *, num_epochs: int, minibatch_size: int, timesteps: int, want_weights: bool
    ) -> None:
        """An update with batches by reference that is not waited for: `finished` tells of it."""
        call = self._actor.update_references.options(num_returns=2)
        report, weights = call.remote(list(batches), num_epochs, minibatch_size, timesteps, want_weights)
        self._submitted.append((report, weights if want_weights else None))

    def finished(self, *, wait: bool) -> list[Update]:
        """Submitted updates that are done, in their order; `wait` for one at least. Weights are references."""
        import ray

        done: list[Update] = []
        while self._submitted:
            report, weights = self._submitted[0]
            if not (wait and not done) and not ray.wait([report], timeout=0)[0]:
                break
            found = self._answer("submit", report)
            self._submitted.popleft()
            done.append(Update(found, weights))
        return done

    @property
    def updates_in_flight(self) -> int:
        """Submitted updates that `finished` has not given yet."""
        return len(self._submitted)

    def apply_gradients(self, gradients: Any, timesteps: int) -> Update | None:
        """See Learner; gradients are a reference, and so are the weights. None where they were lost with their node."""
        report, weights = self._actor.apply_references.options(num_returns=2).remote([gradients], timesteps)
        found = self._answer("apply_gradients", report)
        return None if found is None else Update(found, weights)

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

    def take_policies(self, states: Mapping[str, Mapping[str, Any]], version: int) -> None:
        """See Learner."""
        self._call("take_policies", states, version)

    def set_state(self, state: dict[str, Any]) -> None:
        """See Learner."""
        self._submitted.clear()
        self._call("set_state", state)

    def stop(self) -> None:
        """Ends the actor."""
        import ray

        ray.kill(self._actor)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._answer(method, getattr(self._actor, method).remote(*args, **kwargs))

    def _answer(self, method: str, reference: Any) -> Any:
        import ray
        from ray.exceptions import GetTimeoutError, ObjectLostError, RayTaskError

        try:
            return ray.get(reference, timeout=CALL_DEADLINE_S)
        except RayTaskError as error:
            raise unwrap(error) from error
        except (*lost_errors(), ObjectLostError) as error:
            cause = unwrap(error)
            if isinstance(cause, RlcoreError):
                raise cause from error
            raise LearnerLostError(
                f"the learner died: {str(error).partition(chr(10))[0]}",
                hint="run again: it resumes from the newest checkpoint",
            ) from error
        except GetTimeoutError as error:
            raise UserError(
                f"the learner did not answer {method} within {CALL_DEADLINE_S:.0f} s",
                hint="the cluster may lack the learner's GPU: see `ray status`",
            ) from error


def _fetch(references: Sequence[Any]) -> list[Any]:
    """What the references stand for, in their order; None for what was lost."""
    import ray
    from ray.exceptions import GetTimeoutError, ObjectLostError

    remote = [reference for reference in references if isinstance(reference, ray.ObjectRef)]
    if remote:
        unique = list(dict.fromkeys(remote))  # a replayed sample may be there twice
        ray.wait(unique, num_returns=len(unique), timeout=FETCH_DEADLINE_S)  # all of them travel at once
    fetched: list[Any] = []
    for reference in references:
        try:
            fetched.append(ray.get(reference, timeout=1.0) if isinstance(reference, ray.ObjectRef) else reference)
        except (*lost_errors(), ObjectLostError, GetTimeoutError):
            fetched.append(None)
    return fetched
