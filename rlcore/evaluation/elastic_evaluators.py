"""Evaluators that follow a cluster: nodes come and go, and whoever is there samples.

An evaluator is started on a named node and joins when it is alive; training never waits for it. What a lost one still
owed is asked of the others. An evaluator in excess is drained: it gets no new request, its last samples are used, then
it ends. Where nobody is left, `wait_any` waits until somebody joins.

A lost node is no failure. Evaluators that die again and again on living nodes are one: a node where they do is left
alone for a while, and where that happens everywhere it is an error.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlcore.errors import RlcoreError, UserError
from rlcore.evaluation.config import EvaluatorConfig
from rlcore.evaluation.evaluator_set import (
    CLOSE_DEADLINE_S,
    CONSECUTIVE_LOSSES,
    SAMPLE,
    START_DEADLINE_S,
    RemoteEvaluators,
    begin_anew,
    died_again_and_again,
    is_up,
    lost_errors,
    take_global_state,
    unwrap,
)
from rlcore.evaluation.policy_evaluator import PolicyEvaluator, evaluator_for

logger = logging.getLogger("rlcore.evaluation")

POLL_S = 0.5
BENCH_S = 300.0
"""How long a node where evaluators die again and again is left alone."""


@dataclass
class _Newcomer:
    """An evaluator that is not up yet."""

    actor: Any
    alive: Any
    since_s: float


@dataclass
class _Leaver:
    """An evaluator that gets no more requests; `closed` is its last call, once its samples are here."""

    actor: Any
    closed: Any = None
    since_s: float = 0.0


class ElasticEvaluators(RemoteEvaluators):
    """Ray actors on the nodes that `follow` names.

    Args:
        config: of every evaluator; the one with index i gets `worker_index` i + 1.
        options: Ray's options of an evaluator on a node.
        meanwhile: called twice a second while this waits for evaluators; the argument says that nobody is left who
            could sample. It may call `follow`, and ends the wait by raising.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        config: EvaluatorConfig,
        options: Callable[[str], Mapping[str, Any]],
        meanwhile: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(config, 0, {})
        self._options = options
        self._meanwhile = meanwhile
        self._clock = clock
        self._homes: dict[int, str] = {}
        self._last_homes: dict[int, str] = {}
        self._newcomers: dict[int, _Newcomer] = {}
        self._leavers: dict[int, _Leaver] = {}
        self._benched: dict[str, float] = {}
        self._unexplained: list[tuple[int, str, Exception]] = []
        self._unassigned: list[str] = []
        self._started = 0
        self._training = False

    # following the cluster --------------------

    def begin(self, wanted: Mapping[str, int]) -> None:
        """Starts the first evaluators and waits for them, so that a missing environment is said at once.

        Raises:
            UserError: none came up.
        """
        self.follow(wanted)
        end_s = self._clock() + START_DEADLINE_S
        while self._newcomers and self._clock() < end_s:
            self._wait_for([newcomer.alive for newcomer in self._newcomers.values()])
            self._meanwhile(False)
            self._welcome()
        if not self._actors:
            raise UserError(
                f"no evaluator started within {START_DEADLINE_S:.0f} s",
                hint="see the evaluator pods' logs, and `ray status` on the head",
            )
        self._training = True

    def follow(self, wanted: Mapping[str, int]) -> None:
        """Starts and drains evaluators until each node holds as many as it shall; returns at once.

        Args:
            wanted: node id -> evaluators; a node that is not named is gone.

        Raises:
            UserError: on every living node evaluators die again and again.
        """
        for index in [i for i, node in self._homes.items() if node not in wanted]:
            self._gone(index)
        self._judge(wanted)
        self._welcome()
        self._see_off()
        held = Counter(node for index, node in self._homes.items() if index not in self._leavers)
        for node, count in wanted.items():
            if held[node] > count:
                for index in sorted(self._staying(node), reverse=True)[: held[node] - count]:
                    self._drain(index)
            elif held[node] < count and self._benched.get(node, 0.0) <= self._clock():
                for _ in range(count - held[node]):
                    self._hire(node)

    @property
    def unexplained_losses(self) -> bool:
        """Whether evaluators were lost that `follow` has not judged: it needs to know which nodes are alive now."""
        return bool(self._unexplained)

    def holding(self, *, leaving: bool) -> dict[str, int]:
        """Node id -> evaluators there, those that start included, and those that leave if asked for."""
        return dict(Counter(node for index, node in self._homes.items() if leaving or index not in self._leavers))

    def set_fragment_length(self, length: int) -> None:
        """Steps T of all evaluators' next samples."""
        self._config = replace(self._config, fragment_length=length)
        for actor in self._actors.values():
            actor.apply.remote(PolicyEvaluator.set_fragment_length, length)

    def forget_requests(self) -> None:
        """Nobody waits for the samples under way any more."""
        self._in_flight.clear()
        self._unassigned.clear()

    def await_one(self) -> None:
        """Waits until there is somebody who samples; `meanwhile` bounds it."""
        while not self._actors:
            self._meanwhile(True)
            self._welcome()
            if not self._actors:
                self._wait_for([newcomer.alive for newcomer in self._newcomers.values()])

    # sampling --------------------

    def request(self, index: int, method: str = SAMPLE) -> None:
        """Asks an evaluator for one more sample; where it is gone, the one that owes least."""
        if index in self._actors:
            super().request(index, method)
        elif self._actors:
            super().request(min(self._actors, key=lambda i: (self.pending(i), i)), method)
        else:
            self._unassigned.append(method)

    def stop(self) -> None:
        import ray

        for newcomer in self._newcomers.values():
            ray.kill(newcomer.actor)
        for leaver in self._leavers.values():
            ray.kill(leaver.actor)
        self._newcomers.clear()
        self._leavers.clear()
        self._homes.clear()
        super().stop()

    def _arrived(self, deadline_s: float) -> list[Any]:
        """References to what has arrived, at least one; time in which nobody could sample does not count."""
        import ray

        end_s = self._clock() + deadline_s
        while True:
            if self._in_flight:
                references = list(self._in_flight)
                if ray.wait(references, num_returns=1, timeout=POLL_S)[0]:
                    more: list[Any] = ray.wait(references, num_returns=len(references), timeout=0)[0]
                    return more
                self._meanwhile(False)
                if self._clock() >= end_s:
                    raise self._silence(deadline_s)
            elif self._unassigned:
                self.await_one()
                end_s = self._clock() + deadline_s
            else:
                raise RuntimeError("no sample was asked for")

    def _replace(self, index: int, error: Exception) -> None:
        """Gives a lost evaluator up; `follow` starts another where its node is still there."""
        if index in self._leavers:
            self._gone(index)
            return
        node = self._homes[index]
        logger.warning("evaluator lost: index=%d node=%s reason=%s", index + 1, node[:8], _first_line(error))
        self._unexplained.append((index, node, error))
        self._gone(index)

    # comings and goings --------------------

    def _staying(self, node: str) -> list[int]:
        return [index for index, home in self._homes.items() if home == node and index not in self._leavers]

    def _hire(self, node: str) -> None:
        """Starts an evaluator on a node."""
        free = [i for i in range(len(self._homes) + 1) if i not in self._homes]
        index = min(free, key=lambda i: (self._last_homes.get(i) != node, i))
        if self._last_homes.get(index) != node:
            self._losses_in_a_row.pop(index, None)  # what died elsewhere says nothing about this node
        self._started += 1
        actor = self._factory.options(**self._options(node)).remote(evaluator_for(self._config, index + 1))
        self._newcomers[index] = _Newcomer(actor, actor.apply.remote(is_up), self._clock())
        self._homes[index] = node

    def _welcome(self) -> None:
        """Takes in newcomers that are up, and hands out what nobody could be asked for."""
        import ray
        from ray.exceptions import RayTaskError

        for index, newcomer in list(self._newcomers.items()):
            late = self._clock() - newcomer.since_s > START_DEADLINE_S
            if not late and not ray.wait([newcomer.alive], timeout=0)[0]:
                continue
            try:
                ray.get(newcomer.alive, timeout=0)
            except (*lost_errors(), RayTaskError, ray.exceptions.GetTimeoutError) as error:
                cause = unwrap(error)
                if isinstance(cause, RlcoreError) and not self._training:
                    raise cause from error
                self._replace(index, cause)
                continue
            del self._newcomers[index]
            self._join(index, newcomer.actor)
        while self._unassigned and self._actors:
            self.request(min(self._actors), self._unassigned.pop(0))

    def _join(self, index: int, actor: Any) -> None:
        if self._training:
            # Its episodes must be nobody else's: an index may have been another evaluator's before.
            actor.apply.remote(begin_anew, self._timesteps + self._started)
            actor.apply.remote(PolicyEvaluator.set_fragment_length, self._config.fragment_length)
            logger.info("evaluator joined: index=%d node=%s", index + 1, self._homes[index][:8])
        if self._state_ref is not None:
            actor.apply.remote(take_global_state, self._state_ref)
        self._actors[index] = actor

    def _drain(self, index: int) -> None:
        """No more requests for an evaluator; one that has not begun yet just ends."""
        if index in self._newcomers:
            self._gone(index)
        elif index in self._actors:
            logger.info("evaluator drained: index=%d node=%s", index + 1, self._homes[index][:8])
            self._leavers[index] = _Leaver(self._actors.pop(index))

    def _see_off(self) -> None:
        """Ends leavers whose samples are all here: environments are closed first."""
        import ray

        for index, leaver in list(self._leavers.items()):
            if self.pending(index):
                continue
            if leaver.closed is None:
                leaver.closed, leaver.since_s = leaver.actor.close.remote(), self._clock()
            late = self._clock() - leaver.since_s > CLOSE_DEADLINE_S
            if late or ray.wait([leaver.closed], timeout=0)[0]:
                self._gone(index)

    def _gone(self, index: int) -> None:
        """Forgets an evaluator and asks others for what it owed."""
        import ray

        newcomer, leaver = self._newcomers.pop(index, None), self._leavers.pop(index, None)
        actor = self._actors.pop(index, None)
        for each in (actor, newcomer and newcomer.actor, leaver and leaver.actor):
            if each is not None:
                # Unavailable is not dead: what comes back to life must not sample beside its successor.
                ray.kill(each)
        if actor is not None:
            self.losses += 1
        self._last_homes[index] = self._homes.pop(index)
        for reference, call in [(ref, call) for ref, call in self._in_flight.items() if call.owner == index]:
            del self._in_flight[reference]
            self.request(index, call.method)

    def _judge(self, alive: Container[str]) -> None:
        """Tells crashes from lost nodes: what died on a node that is still there crashed."""
        from ray.exceptions import ActorUnschedulableError

        losses, self._unexplained = self._unexplained, []
        for index, node, error in losses:
            if node not in alive or isinstance(error, ActorUnschedulableError):
                self._losses_in_a_row.pop(index, None)
                continue
            self._losses_in_a_row[index] = self._losses_in_a_row.get(index, 0) + 1
            if self._losses_in_a_row[index] > CONSECUTIVE_LOSSES:
                self._give_node_up(index, node, error)

    def _give_node_up(self, index: int, node: str, error: Exception) -> None:
        """Leaves a node alone where evaluators only die.

        Raises:
            UserError: they do so everywhere.
        """
        if not any(self._losses_in_a_row.get(i, 0) == 0 for i in self._actors):
            raise died_again_and_again(index, error) from error
        logger.warning("node %s is left alone for %.0f s: evaluators only die there", node[:8], BENCH_S)
        self._benched[node] = self._clock() + BENCH_S
        self._losses_in_a_row.pop(index)

    @staticmethod
    def _wait_for(references: list[Any]) -> None:
        """Until all of them are there, half a second at most."""
        import ray

        if references:
            ray.wait(references, num_returns=len(references), timeout=POLL_S)
        else:
            time.sleep(POLL_S)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
