"""A Ray cluster as the place where a job trains: evaluators that come and go, a learner pod, the driver beside them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlcore.api import RLJob
from rlcore.checkpoint import CheckpointInfo
from rlcore.driver.build import Parts, build
from rlcore.driver.cluster_attendant import ClusterAttendant
from rlcore.driver.control import Control, ControlFile
from rlcore.driver.demand import Demand, ask_autoscaler
from rlcore.driver.driver import Driver
from rlcore.driver.elasticity import (
    EvaluatorNode,
    LearnerNode,
    evaluator_nodes,
    fewest_evaluators,
    learner_nodes,
    most_pods,
    wanted_evaluators,
)
from rlcore.driver.evaluation import EvaluationRunner
from rlcore.driver.interrupt import Interrupt
from rlcore.driver.outputs import Display
from rlcore.driver.plan import Machine, Plan, fragment_length, make_plan
from rlcore.driver.ray_session import ray_session, session_directory
from rlcore.driver.session import Place, describe
from rlcore.errors import LearnerLostError, NoEvaluatorsError, UserError
from rlcore.evaluation.config import EvaluatorConfig
from rlcore.evaluation.elastic_evaluators import ElasticEvaluators
from rlcore.evaluation.world import Spaces
from rlcore.metrics.attempt_status import AttemptBoard
from rlcore.metrics.result import IterationResult
from rlcore.optimizers.remote_learner import RemoteLearner

logger = logging.getLogger("rlcore.driver")

NODES_EVERY_S = 2.0
POLL_S = 0.2
SETTLE_S = 5.0
"""How long the job's minimum of evaluators is waited for once there is one."""
RETURN_DEADLINE_S = 600.0
"""How long nodes may be away that training cannot go on without."""
LEARNER_CRASHES_IN_A_ROW = 3
"""Learners that died on a living node without a new checkpoint in between, after which it is no accident any more."""


class ClusterPlace(Place):
    """The Ray cluster at RAY_ADDRESS.

    Args:
        job: what trains.
        control: the operator's limits.
        board: the status.
        attendant: whom the driver listens to; it looks after the evaluators through this.
    """

    attendant: ClusterAttendant
    ray_logs: Path | None = None
    """Ray's session directory on this machine, once it is known."""

    def __init__(self, job: RLJob, control: ControlFile, board: AttemptBoard, attendant: ClusterAttendant) -> None:
        self._job, self._control, self._board = job, control, board
        self.attendant = attendant
        attendant.look_after = self._look_after
        self._nodes: dict[str, EvaluatorNode] = {}
        self._looked_at_s = float("-inf")
        self._evaluators: ElasticEvaluators | None = None
        self._fragments_for = 0
        self._starved_since_s: float | None = None
        self._training: tuple[Driver, Interrupt] | None = None
        self._demand = Demand(job.spec, ask_autoscaler)
        self._learner_nodes: set[str] = set()
        self._recovered_at: int | None = None
        self._learner_crashes = 0

    # before training --------------------

    def connect(self, stack: ExitStack, interrupt: Interrupt, display: Display) -> Plan:
        os.environ.setdefault("RAY_ADDRESS", "auto")
        stack.enter_context(ray_session(cores=1))
        interrupt.take_over()
        self.ray_logs = session_directory()
        self._demand.update(self._control.poll(), 0)
        learner = self._await_nodes()
        self._learner_nodes = {learner.node}
        count = sum(self._wanted(self._control.poll()).values())
        self._fragments_for = count
        machine = Machine(1, 0, cluster_evaluators=count, cluster_learner_gpus=learner.gpus, elastic=True)
        return replace(make_plan(self._job.spec, machine), learner_threads=max(1, int(learner.cores)))

    def describe(self, plan: Plan) -> str:
        return describe(self._job, plan, in_process=False)

    def build(self, plan: Plan, seed: int, spaces: dict[str, Spaces]) -> Parts:
        return build(self._job.spec, plan, seed, use_ray=True, start_evaluators=self._start_evaluators, spaces=spaces)

    def evaluation(self, parts: Parts) -> EvaluationRunner | None:
        spec = self._job.spec.evaluation
        if not spec.every:
            return None
        return EvaluationRunner(parts.config, spec.episodes, remote=True, place=self._place_of_evaluation)

    def observers(self) -> list[Callable[[IterationResult], object]]:
        return [self._demand.observe]

    def _await_nodes(self) -> LearnerNode:
        """Waits for a learner and for the fewest evaluators, or for some of them.

        Raises:
            UserError: they did not come in time.
        """
        since_s = time.monotonic()
        some_since_s: float | None = None
        while True:
            nodes, control = self._look(), self._control.poll()
            fewest = fewest_evaluators(self._job.spec, control)
            learners, evaluators = learner_nodes(nodes), sum(self._wanted(control).values())
            now_s = time.monotonic()
            if learners and evaluators:
                some_since_s = now_s if some_since_s is None else some_since_s
                if evaluators >= fewest or now_s - some_since_s >= SETTLE_S:
                    return learners[0]
            missing = f"{len(learners)} learner nodes and {evaluators} of {fewest} evaluators are there"
            if now_s - since_s >= RETURN_DEADLINE_S:
                raise UserError(
                    f"the cluster did not come up within {RETURN_DEADLINE_S:.0f} s: {missing}",
                    hint="see the pods of this job, and `ray status` on the head",
                )
            self._board.set_phase("Starting", f"waiting for nodes: {missing}")
            time.sleep(POLL_S)

    def _start_evaluators(self, config: EvaluatorConfig) -> ElasticEvaluators:
        evaluators = ElasticEvaluators(config, self._options, self._meanwhile)
        self._evaluators = evaluators
        try:
            evaluators.begin(self._wanted(self._control.poll()))
        except BaseException:
            evaluators.stop()
            raise
        return evaluators

    # while training --------------------

    def _look_after(self, control: Control, driver: Driver, interrupt: Interrupt) -> None:
        """Between two steps: evaluators follow the cluster, fragments their number; at least one is there after it."""
        evaluators = self._evaluators
        assert evaluators is not None
        self._training = (driver, interrupt)
        self._follow(control)
        if not evaluators.indices and not interrupt.requested:
            try:
                evaluators.await_one()
            except NoEvaluatorsError:
                if not interrupt.requested:
                    raise
        count = len(evaluators.indices)
        self._demand.update(control, count)
        if self._starved_since_s is not None and count:
            logger.info("evaluators are back: %d", count)
            self._starved_since_s = None
            self._board.set_phase("Running")
        if count and count != self._fragments_for:
            self._fragments_for = count
            length = fragment_length(self._job.spec, count)
            evaluators.set_fragment_length(length)
            driver.set_fragment_size(length * self._job.spec.evaluators.envs_per_evaluator)

    def _meanwhile(self, starved: bool) -> None:
        """While evaluators are waited for: follow the cluster; where nobody is left, serve whoever asks.

        Raises:
            NoEvaluatorsError: nobody came back in time, or a signal ends the wait.
        """
        control = self._control.poll()
        self._follow(control)
        if not starved or self._training is None:
            return
        driver, interrupt = self._training
        now_s = time.monotonic()
        expected = sum(most_pods(self._job.spec, control).values()) > 0
        if self._starved_since_s is None or not expected:
            if self._starved_since_s is None:
                text = "no evaluator is left; waiting for nodes" if expected else "all evaluator pools are empty"
                logger.warning("%s", text)
                self._board.set_phase("Recovering", text)
                driver.checkpoint(last=False)  # the rest of the pods may be next
            self._starved_since_s = now_s
        if interrupt.requested:
            raise NoEvaluatorsError("stopped while no evaluator was left")
        self.attendant.answer(control, driver)
        if now_s - self._starved_since_s >= RETURN_DEADLINE_S:
            raise NoEvaluatorsError(
                f"no evaluator came back within {RETURN_DEADLINE_S:.0f} s",
                hint="see the evaluator pods of this job: preempted, or out of quota?",
            )

    def recover(self, error: LearnerLostError, driver: Driver, interrupt: Interrupt) -> CheckpointInfo | None:
        learner, evaluators = driver.learner, self._evaluators
        assert isinstance(learner, RemoteLearner)
        assert evaluators is not None
        self._board.note_learner_lost()
        logger.warning("the learner is lost; training goes back to the newest checkpoint: %s", error.message)
        newest = driver.last_checkpoint.timesteps if driver.last_checkpoint else None
        if newest != self._recovered_at:
            self._recovered_at, self._learner_crashes = newest, 0
        if self._learner_crashes >= LEARNER_CRASHES_IN_A_ROW:
            raise error
        evaluators.forget_requests()

        def meanwhile() -> None:
            self._follow(self._control.poll())
            self.attendant.refuse(f"no learner; the newest checkpoint has {newest} timesteps")
            if interrupt.requested:
                raise _StoppedError

        try:
            learner.restart(RETURN_DEADLINE_S, meanwhile)
        except _StoppedError:
            return None
        alive = {node.node for node in learner_nodes(self._look())}
        self._learner_crashes += bool(alive & self._learner_nodes)  # by now a lost node would be known to be one
        self._learner_nodes = alive
        checkpoint = driver.resume()
        if checkpoint is None:
            raise error  # it died before the first one was written
        logger.info("resumed at %d timesteps", checkpoint.timesteps)
        return checkpoint

    # nodes --------------------

    def _look(self) -> list[dict[str, Any]]:
        import ray

        nodes: list[dict[str, Any]] = ray.nodes()
        self._looked_at_s = time.monotonic()
        self._nodes = {node.node: node for node in evaluator_nodes(nodes)}
        return nodes

    def _wanted(self, control: Control) -> dict[str, int]:
        holding = self._evaluators.holding(leaving=False) if self._evaluators else {}
        return wanted_evaluators(list(self._nodes.values()), most_pods(self._job.spec, control), holding)

    def _follow(self, control: Control) -> None:
        evaluators = self._evaluators
        assert evaluators is not None
        if evaluators.unexplained_losses or time.monotonic() - self._looked_at_s >= NODES_EVERY_S:
            self._look()
        evaluators.follow(self._wanted(control))
        present = evaluators.holding(leaving=True)
        self._board.note_pods(
            [
                {"pod": n.pod, "address": n.address, "pool": n.pool, "evaluators": present.get(n.node, 0)}
                for n in self._nodes.values()
            ]
        )

    def _options(self, node: str) -> Mapping[str, Any]:
        return {
            "num_cpus": self._nodes[node].cores_each,
            "resources": {"evaluator": 1},
            "scheduling_strategy": _only_on(node),
        }

    def _place_of_evaluation(self) -> Mapping[str, Any] | None:
        """A living evaluator node, one that is not preemptible if there is one; it takes no evaluator's place there."""
        preemptible = {pool.name for pool in self._job.spec.evaluators.pools if pool.preemptible}
        held = self._evaluators.holding(leaving=False) if self._evaluators else {}
        nodes = sorted(self._nodes.values(), key=lambda node: (node.node not in held, node.pool in preemptible))
        return {"num_cpus": 0, "scheduling_strategy": _only_on(nodes[0].node)} if nodes else None


class _StoppedError(Exception):
    """A signal ended a wait."""


def _only_on(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)
