"""All evaluators of a job behind one face, whether they are Ray actors or plain objects.

A sample is asked for with `request` and comes back from `wait_any` as a `Sample`: a batch (or a reference to it) and
its `SampleInfo`. Plain objects sample when they are waited for, one after the other; actors sample in parallel. A lost
actor is replaced by one with the same index, seed and global state, and the loss is counted.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rlcore.errors import RlcoreError, UserError
from rlcore.evaluation.config import EvaluatorConfig
from rlcore.evaluation.policy_evaluator import PolicyEvaluator, evaluator_for
from rlcore.evaluation.sample_info import SampleInfo

logger = logging.getLogger("rlcore.evaluation")

START_DEADLINE_S = 300.0
CALL_DEADLINE_S = 300.0
CLOSE_DEADLINE_S = 5.0
# Losses in a row, without a sample in between, after which a crash is no accident any more.
CONSECUTIVE_LOSSES = 3


@dataclass(frozen=True)
class Sample:
    """A finished sample: `batch` is what the method gave beside the info, or a Ray reference to it."""

    index: int
    batch: Any
    info: SampleInfo


SAMPLE = "sample_with_info"
"""The evaluators' method that `request` calls unless another one is named; each gives (payload, SampleInfo)."""


@dataclass(frozen=True)
class GlobalState:
    """What evaluators need from the learner before they sample; `weights` may be a Ray reference to them.

    `frozen` are parameters of policies that nobody trains, such as self-play's opponents.
    """

    weights: Mapping[str, np.ndarray] | Any
    version: int
    timesteps: int
    filters: Mapping[str, Any]
    frozen: Mapping[str, np.ndarray] = field(default_factory=dict)


class LocalEvaluators:
    """Evaluators in this process, asked one after the other.

    Args:
        evaluators: at least one; their position is their index.
    """

    remote = False

    def __init__(self, evaluators: Sequence[PolicyEvaluator]) -> None:
        self._evaluators = list(evaluators)
        self._asked: deque[tuple[int, str]] = deque()
        self.losses = 0

    @property
    def indices(self) -> list[int]:
        """Indices of all evaluators, in order."""
        return list(range(len(self._evaluators)))

    def await_one(self) -> None:
        """Waits until there is somebody who samples: here there always is."""

    def set_global_state(self, state: GlobalState, indices: Sequence[int] | None = None) -> None:
        """Gives weights, progress and filters to all, or to some."""
        for index in self.indices if indices is None else indices:
            self._evaluators[index].set_global_state(
                {**state.weights, **state.frozen}, state.version, state.timesteps, state.filters
            )

    def request(self, index: int, method: str = SAMPLE) -> None:
        """Asks one evaluator for one more sample."""
        self._asked.append((index, method))

    def pending(self, index: int) -> int:
        """Samples that this evaluator still owes."""
        return sum(1 for owner, _ in self._asked if owner == index)

    def owed(self) -> Counter[int]:
        """`pending` of all at once."""
        return Counter(owner for owner, _ in self._asked)

    def wait_any(self, deadline_s: float) -> list[Sample]:
        """The sample that was asked for first, made now; it takes as long as it takes."""
        index, method = self._asked.popleft()
        return [Sample(index, *getattr(self._evaluators[index], method)())]

    def poll(self) -> list[Sample]:
        """The samples that are there without waiting: here the one that was asked for first, if any, made now."""
        return self.wait_any(CALL_DEADLINE_S) if self._asked else []

    def collect(self, requests: Sequence[int]) -> list[Sample]:
        """One sample a requested index, in the order of indices."""
        return [Sample(index, *self._evaluators[index].sample_with_info()) for index in sorted(requests)]

    def fetch(self, batches: Sequence[Any]) -> list[Any]:
        """The batches themselves: they are here."""
        return list(batches)

    def foreach(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """`function(evaluator, *args)` on all, in order."""
        return [evaluator.apply(function, *args) for evaluator in self._evaluators]

    def foreach_with_index(self, function: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
        """`function(evaluator, arguments[i])` on evaluator i, in order."""
        return [e.apply(function, a) for e, a in zip(self._evaluators, arguments, strict=True)]

    def stop(self) -> None:
        """Closes all environments."""
        with ExitStack() as stack:
            for evaluator in self._evaluators:
                stack.callback(evaluator.close)


class _Call(NamedTuple):
    """A sample under way."""

    owner: int
    batch: Any
    method: str


class RemoteEvaluators:
    """Evaluators as Ray actors.

    Args:
        config: of every evaluator; actor i gets `worker_index` i + 1.
        count: how many.
        actor_options: Ray's options of each (num_cpus, resources).
    """

    remote = True

    def __init__(self, config: EvaluatorConfig, count: int, actor_options: Mapping[str, Any]) -> None:
        self._config = config
        self._factory = PolicyEvaluator.as_remote(max_concurrency=1, **actor_options)
        self._actors = {index: self._start(index) for index in range(count)}
        self._state_ref: Any = None
        self._state_version = -1
        self._timesteps = 0
        self._in_flight: dict[Any, _Call] = {}
        self._losses_in_a_row: dict[int, int] = {}
        self.losses = 0
        try:
            self._await_start()
        except BaseException:
            self.stop()
            raise

    @property
    def indices(self) -> list[int]:
        """Indices of all evaluators, in order."""
        return sorted(self._actors)

    def await_one(self) -> None:
        """Waits until there is somebody who samples: here there always is."""

    def set_global_state(self, state: GlobalState, indices: Sequence[int] | None = None) -> None:
        """Gives weights, progress and filters to all, or to some; they are put into the object store once a version."""
        import ray

        if indices is None or state.version != self._state_version or self._state_ref is None:
            self._timesteps, self._state_version = state.timesteps, state.version
            weights = state.weights if isinstance(state.weights, ray.ObjectRef) else dict(state.weights)
            self._state_ref = ray.put(
                (weights, state.version, state.timesteps, dict(state.filters), dict(state.frozen))
            )
        for index, actor in self._actors.items():
            if indices is None or index in indices:
                actor.apply.remote(take_global_state, self._state_ref)

    def request(self, index: int, method: str = SAMPLE) -> None:
        """Asks one evaluator for one more sample."""
        batch_ref, info_ref = getattr(self._actors[index], method).options(num_returns=2).remote()
        self._in_flight[info_ref] = _Call(index, batch_ref, method)

    def pending(self, index: int) -> int:
        """Samples that this evaluator still owes."""
        return sum(1 for call in self._in_flight.values() if call.owner == index)

    def owed(self) -> Counter[int]:
        """`pending` of all at once."""
        return Counter(call.owner for call in self._in_flight.values())

    def collect(self, requests: Sequence[int]) -> list[Sample]:
        """As many samples as requested, in the order of indices, whatever order they arrive in."""
        for index in requests:
            self.request(index)
        arrived: list[Sample] = []
        while len(arrived) < len(requests):
            arrived += self.wait_any(CALL_DEADLINE_S)
        # The sort is stable, and one evaluator's samples arrive in the order they were asked for.
        return sorted(arrived, key=lambda sample: sample.index)

    def wait_any(self, deadline_s: float) -> list[Sample]:
        """The samples that have arrived, at least one; a lost evaluator is replaced and asked again.

        Raises:
            UserError: what the environment or policy raised, evaluators lost again and again, or nothing that
                arrived in time from anyone.
        """
        samples: list[Sample] = []
        while not samples:
            samples = self._take(self._arrived(deadline_s))
        return samples

    def poll(self) -> list[Sample]:
        """The samples that are there without waiting; otherwise as `wait_any`."""
        import ray

        in_flight = list(self._in_flight)
        return self._take(ray.wait(in_flight, num_returns=len(in_flight), timeout=0)[0]) if in_flight else []

    def _take(self, arrived: Sequence[Any]) -> list[Sample]:
        """Samples behind references that have arrived; a lost evaluator is replaced and asked again."""
        import ray
        from ray.exceptions import ObjectLostError, RayTaskError

        samples: list[Sample] = []
        for info_ref in arrived:
            if info_ref not in self._in_flight:
                continue  # its evaluator was lost meanwhile
            index, batch_ref, method = self._in_flight[info_ref]
            try:
                info = ray.get(info_ref, timeout=CALL_DEADLINE_S)
            except lost_errors() as error:
                self._replace(index, error)
            except ObjectLostError:
                del self._in_flight[info_ref]
                self.request(index, method)
            except RayTaskError as error:
                raise unwrap(error) from error
            else:
                del self._in_flight[info_ref]
                self._losses_in_a_row[index] = 0
                samples.append(Sample(index, batch_ref, info))
        return samples

    def _arrived(self, deadline_s: float) -> list[Any]:
        """References to what has arrived, at least one."""
        import ray

        # In request order, or two samples of one evaluator could come back swapped.
        ready, _ = ray.wait(list(self._in_flight), num_returns=1, timeout=deadline_s)
        if not ready:
            raise self._silence(deadline_s)
        more: list[Any] = ray.wait(list(self._in_flight), num_returns=len(self._in_flight), timeout=0)[0]
        return more

    def _silence(self, deadline_s: float) -> UserError:
        return UserError(
            f"no evaluator delivered a sample within {deadline_s:.0f} s ({len(self._in_flight)} asked)",
            hint="an environment may hang or be very slow: look at it with --in-process under a debugger",
        )

    def fetch(self, batches: Sequence[Any]) -> list[Any]:
        """The batches behind references, as views of the object store's memory; lost ones are left out, and said."""
        import ray
        from ray.exceptions import ObjectLostError

        fetched = []
        for reference in batches:
            try:
                here = not isinstance(reference, ray.ObjectRef)
                fetched.append(reference if here else ray.get(reference, timeout=CALL_DEADLINE_S))
            except ObjectLostError as error:
                logger.warning("a sample was lost with its node: %s", error)
        return fetched

    def foreach(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """`function(evaluator, *args)` on all, in order; None for one that died, which is replaced."""
        return self.foreach_with_index(_star, [(function, args)] * len(self._actors))

    def foreach_with_index(self, function: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
        """`function(evaluator, arguments[i])` on evaluator i, in order; None for one that died, which is replaced."""
        import ray
        from ray.exceptions import RayTaskError

        calls = {i: self._actors[i].apply.remote(function, a) for i, a in zip(self.indices, arguments, strict=True)}
        results = []
        for index, reference in calls.items():
            try:
                results.append(ray.get(reference, timeout=CALL_DEADLINE_S))
            except lost_errors() as error:
                self._replace(index, error)
                results.append(None)
            except RayTaskError as error:
                raise unwrap(error) from error
            except ray.exceptions.GetTimeoutError as error:
                raise UserError(
                    f"evaluator {index + 1} did not answer within {CALL_DEADLINE_S:.0f} s",
                    hint="its environment may hang: run with --in-process under a debugger",
                ) from error
        return results

    def stop(self) -> None:
        """Closes all environments, then ends the actors."""
        import ray

        refs = [actor.close.remote() for actor in self._actors.values()]
        if refs:
            ray.wait(refs, num_returns=len(refs), timeout=CLOSE_DEADLINE_S)
        for actor in self._actors.values():
            ray.kill(actor)
        self._actors.clear()
        self._in_flight.clear()

    def _start(self, index: int) -> Any:
        return self._factory.remote(evaluator_for(self._config, index + 1))

    def _await_start(self) -> None:
        """Waits until all are up, so that a missing environment is said at once and by its own message."""
        import ray
        from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

        refs = [actor.apply.remote(is_up) for actor in self._actors.values()]
        try:
            ray.get(refs, timeout=START_DEADLINE_S)
        except (RayActorError, RayTaskError) as error:
            cause = unwrap(error)
            if isinstance(cause, RlcoreError):
                raise cause from error
            raise UserError(
                f"an evaluator died while it started: {cause}",
                hint="run with --in-process to see the environment's own output",
            ) from error
        except GetTimeoutError as error:
            raise UserError(
                f"{len(refs)} evaluators did not start within {START_DEADLINE_S:.0f} s",
                hint="the cluster may lack CPUs or the custom resource that evaluators ask for: see `ray status`",
            ) from error

    def _replace(self, index: int, error: Exception) -> None:
        """Starts an actor in a lost one's place, with its weights, and asks it for what the lost one still owed."""
        import ray

        self.losses += 1
        self._losses_in_a_row[index] = self._losses_in_a_row.get(index, 0) + 1
        if self._losses_in_a_row[index] > CONSECUTIVE_LOSSES:
            raise died_again_and_again(index, error) from error
        owed = {ref: call for ref, call in self._in_flight.items() if call.owner == index}
        logger.warning("evaluator lost, replaced: index=%d owed=%d reason=%s", index + 1, len(owed), error)
        # Unavailable is not dead: what comes back to life must not sample beside its successor.
        ray.kill(self._actors[index])
        self._actors[index] = self._start(index)
        self._actors[index].apply.remote(begin_anew, self._timesteps + self.losses)
        if self._state_ref is not None:
            self._actors[index].apply.remote(take_global_state, self._state_ref)
        for ref, call in owed.items():
            del self._in_flight[ref]
            self.request(index, call.method)


Evaluators = LocalEvaluators | RemoteEvaluators


def lost_errors() -> tuple[type[Exception], ...]:
    """What Ray raises where an actor's process or node is gone."""
    from ray.exceptions import ActorUnschedulableError, NodeDiedError, OutOfMemoryError, RayActorError

    return (RayActorError, OutOfMemoryError, ActorUnschedulableError, NodeDiedError)


def died_again_and_again(index: int, error: Exception) -> UserError:
    """A crash that is no accident any more."""
    return UserError(
        f"evaluator {index + 1} died {CONSECUTIVE_LOSSES + 1} times in a row: {error}",
        hint="out of memory? lower spec.evaluators.envsPerEvaluator or give the pool more memory",
    )


def unwrap(error: Exception) -> Exception:
    """The error that was raised in another process, as it was raised there, where it is one of ours."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, RlcoreError):
        return cause
    if isinstance(error, RlcoreError):
        return error
    # An actor whose constructor raised: Ray keeps the cause's text only inside of its own.
    inner = getattr(cause, "cause", None)
    return inner if isinstance(inner, RlcoreError) else error


def take_global_state(evaluator: PolicyEvaluator, state: tuple[Any, int, int, Any, Any]) -> None:
    """`set_global_state` with everything in one reference; weights may be a reference inside of it."""
    weights, version, timesteps, filters, frozen = state
    if not isinstance(weights, Mapping):
        import ray

        weights = ray.get(weights, timeout=CALL_DEADLINE_S)
    evaluator.set_global_state({**weights, **frozen}, version, timesteps, filters)


def begin_anew(evaluator: PolicyEvaluator, salt: int) -> None:
    """See PolicyEvaluator."""
    evaluator.begin_anew(salt)


def is_up(evaluator: PolicyEvaluator) -> bool:
    """Whether its environments and policies are made."""
    return bool(evaluator.tracks)


def _star(evaluator: PolicyEvaluator, call: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    function, args = call
    return function(evaluator, *args)
