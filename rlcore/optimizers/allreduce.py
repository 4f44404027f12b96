"""AllreduceOptimizer: every evaluator learns from its own batch, and gradients are averaged among them (PPO).

No batch and no gradient leaves its evaluator but as a part of a sum. The driver starts rounds and keeps a copy of the
policies after each, from which a group is built again when a member was lost: the others do not wait longer than the
sum's deadline for it, and the round counts as not made.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from rlcore.errors import UserError
from rlcore.evaluation.evaluator_set import CALL_DEADLINE_S, Sample
from rlcore.evaluation.policy_evaluator import PolicyEvaluator, set_worker
from rlcore.evaluation.sample_info import SampleInfo
from rlcore.optimizers.allreduce_group import JOIN_DEADLINE_S, SUM_DEADLINE_S, Member, Membership, Parts, Round
from rlcore.optimizers.learner import LearnerReport
from rlcore.optimizers.policy_optimizer import PolicyOptimizer
from rlcore.policy.torch_policy_graph import TorchPolicyGraph
from rlcore.sample_batch import MultiAgentBatch

logger = logging.getLogger("rlcore.optimizers")

WORK = "work_with_info"
FAILURES_IN_A_ROW = 3


class AllreduceOptimizer(PolicyOptimizer):
    """The paper's allreduce strategy: as many learners as evaluators, which all stay equal."""

    sum_deadline_s = SUM_DEADLINE_S

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.counters |= {"rounds_failed": 0, "groups_built": 0}
        self._members: list[int] = []
        self._losses = -1
        self._failures_in_a_row = 0

    def step(self) -> None:
        while True:
            self.evaluators.await_one()
            if self._members != self.evaluators.indices or self._losses != self.evaluators.losses:
                self._build_group()
            with self.timed("broadcast"):
                self.evaluators.set_global_state(self.state_with({}))
            samples, rounds = self._round()
            if rounds is not None:
                break
            self._note_failure(samples)
        self._failures_in_a_row = 0
        states = rounds[0].states
        assert states is not None
        with self.timed("load"):
            self.version += 1
            self.learner.take_policies(states, self.version)
        timesteps = sum(found.timesteps for found in rounds)
        self.note_update(LearnerReport(rounds[0].stats, timesteps, 0.0, rounds[0].sgd_time_s, version=self.version))

    # rounds --------------------

    def _round(self) -> tuple[list[Sample], list[Round] | None]:
        """What all members did, by rank; None where the round came to nothing."""
        started = time.perf_counter()
        if not self.evaluators.remote:
            samples = self._round_here()
        else:
            for index in self._members:
                self.evaluators.request(index, WORK)
            samples = []
            while len(samples) < len(self._members):
                samples += self.evaluators.wait_any(CALL_DEADLINE_S)
            samples.sort(key=lambda sample: self._members.index(sample.index) if sample.index in self._members else -1)
        rounds = self.evaluators.fetch([sample.batch for sample in samples])
        whole = len(rounds) == len(self._members) and all(done is not None and not done.failed for done in rounds)
        if not whole or rounds[0].states is None:
            for failed in {done.failed for done in rounds if done is not None and done.failed}:
                logger.warning("a round of allreduce failed: %s", failed)
            return samples, None
        sgd_time_s = rounds[0].sgd_time_s
        self.note(samples, max(0.0, time.perf_counter() - started - sgd_time_s))
        return samples, rounds

    def _round_here(self) -> list[Sample]:
        """A round of members in this process: the same passes, and their sums made here."""
        infos = self.evaluators.foreach(begin_round)
        started = time.perf_counter()
        parts = self.evaluators.foreach(next_part, None)
        while parts[0] is not None:
            total = sum(parts[1:], start=parts[0])
            parts = self.evaluators.foreach(next_part, total)
        rounds = self.evaluators.foreach(end_round, time.perf_counter() - started)
        return [Sample(i, done, info) for i, done, info in zip(self._members, rounds, infos, strict=True)]

    def _note_failure(self, samples: Sequence[Sample]) -> None:
        """Counts a round that came to nothing.

        Raises:
            UserError: it is not the first in a row.
        """
        for sample in samples:
            self.note_events(sample)
            self.counters["discarded_timesteps"] += sample.info.timesteps
        self.counters["rounds_failed"] += 1
        self._failures_in_a_row += 1
        self._members = []
        if self._failures_in_a_row > FAILURES_IN_A_ROW:
            raise UserError(
                f"{self._failures_in_a_row} rounds of allreduce failed in a row",
                hint="can the evaluators' pods reach each other? The driver's log says what they met with",
            )

    # the group --------------------

    def _build_group(self) -> None:
        """All evaluators as one group, with the policies as the learner has them.

        Raises:
            UserError: they cannot meet.
        """
        for _ in range(FAILURES_IN_A_ROW):
            self._losses = self.evaluators.losses
            indices = list(self.evaluators.indices)
            state = self.learner.get_state()
            self.version = state["version"]
            address = None
            if self.evaluators.remote:
                first = [index == indices[0] for index in indices]
                address = next((a for a in self.evaluators.foreach_with_index(open_store, first) if a), None)
            memberships = [self._membership(rank, len(indices), address) for rank in range(len(indices))]
            arguments = [(membership, state["policies"]) for membership in memberships]
            if self.evaluators.indices != indices:
                continue
            joined = self.evaluators.foreach_with_index(join_group, arguments)
            if all(joined) and self.evaluators.losses == self._losses:
                self._members = indices
                self.counters["groups_built"] += 1
                return
            logger.warning("a group of %d evaluators could not be built: %s", len(indices), joined)
        raise UserError(
            f"the evaluators could not form a group for allreduce within {FAILURES_IN_A_ROW * JOIN_DEADLINE_S:.0f} s",
            hint="can their pods reach each other?",
        )

    def _membership(self, rank: int, size: int, address: tuple[str, int] | None) -> Membership:
        config = self.config
        return Membership(
            rank=rank,
            size=size,
            address=address,
            samples=max(1, round(config.train_batch_size / (size * config.fragment_size))),
            num_epochs=config.num_epochs,
            minibatches=max(1, config.train_batch_size // config.minibatch_size),
            sum_deadline_s=self.sum_deadline_s,
        )

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._members = []

    def set_fragment_size(self, size: int) -> None:
        super().set_fragment_size(size)
        self._members = []


# on the evaluators --------------------


def open_store(evaluator: PolicyEvaluator, first: bool) -> tuple[str, int] | None:
    """Where the members meet: at the first one's address, on a port that was free."""
    if not first:
        return None
    import ray
    import torch.distributed as dist

    host = ray.util.get_node_ip_address()
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    evaluator.keep = store  # the store lives as long as this reference
    return host, int(store.port)


def join_group(evaluator: PolicyEvaluator, argument: tuple[Membership, dict[str, dict[str, Any]]]) -> bool:
    """Takes over the policies' state and joins the others; whether all came."""
    membership, states = argument
    for policy_id, state in states.items():
        take_state(evaluator.policies[policy_id], state)
    member = Member(membership)
    if membership.address is not None:
        cuda = any(evaluator.policies[policy_id].device.type == "cuda" for policy_id in states)
        try:
            member.join("nccl" if cuda else "gloo")
        except RuntimeError as error:
            logger.warning("no group: %s", error)
            set_worker(evaluator, None)
            return False
    set_worker(evaluator, member)
    return True


def take_state(policy: TorchPolicyGraph, state: dict[str, Any]) -> None:
    """Everything but the random numbers: members explore each in its own way."""
    own = policy.rng.bit_generator.state
    policy.set_state(state)
    policy.rng.bit_generator.state = own


class HereMember(Member):
    """A member between two parts of a round in the optimizer's own process."""

    batch: MultiAgentBatch
    running: Parts
    stats: Any = None


def begin_round(evaluator: PolicyEvaluator) -> SampleInfo:
    """Samples, in one process."""
    assert isinstance(evaluator.worker, Member)
    here = HereMember(evaluator.worker.membership)
    started = time.perf_counter()
    here.batch = here.sample(evaluator)
    here.running = here.parts(evaluator, here.batch)
    evaluator.worker = here
    return evaluator.info_of(here.batch, 0, started)


def next_part(evaluator: PolicyEvaluator, total: Any) -> Any:
    """The member's next part of a sum; None at the end."""
    here = evaluator.worker
    assert isinstance(here, HereMember)
    try:
        return next(here.running) if total is None else here.running.send(total)
    except StopIteration as end:
        here.stats = end.value
        return None


def end_round(evaluator: PolicyEvaluator, sgd_time_s: float) -> Round:
    """What the member did."""
    here = evaluator.worker
    assert isinstance(here, HereMember)
    return here.report(evaluator, here.stats, here.batch.agent_steps, sgd_time_s)
