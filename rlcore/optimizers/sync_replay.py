"""SyncReplayOptimizer: sample a little, keep it, train on what replay gives (DQN's loop, on one core or a few)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rlcore.evaluation.evaluator_set import CALL_DEADLINE_S, Sample
from rlcore.optimizers.learner import Learner, LearnerReport
from rlcore.optimizers.policy_optimizer import PolicyOptimizer
from rlcore.optimizers.replay_config import ReplayConfig
from rlcore.optimizers.replay_shard import make_buffer
from rlcore.optimizers.train_debt import TrainDebt
from rlcore.replay import ReplayBuffer, Replayed
from rlcore.sample_batch import MultiAgentBatch

SAMPLE_FOR_REPLAY = "sample_for_replay"


class SyncReplayOptimizer(PolicyOptimizer):
    """Replay in the driver's process; a step samples `iteration_timesteps`, a fragment of each evaluator at a time."""

    config: ReplayConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.buffers: dict[str, ReplayBuffer] = {}
        self.debt = TrainDebt(self.config.train_ratio, self.config.train_batch_size)
        self.counters |= {"replay_timesteps": 0, "replay_bytes": 0, "outdated_priorities": 0}

    def step(self) -> None:
        goal = self.timesteps_sampled + self.config.iteration_timesteps
        while self.timesteps_sampled < goal:
            self.broadcast()
            for sample in self.sample_all():
                self.keep(sample)
            while self.debt.due:
                replayed = self.replay()
                report = self.train(replayed)
                self.feed_back(replayed, report)
        self.counters["replay_timesteps"] = sum(len(buffer) for buffer in self.buffers.values())
        self.counters["replay_bytes"] = sum(buffer.size_bytes for buffer in self.buffers.values())

    def sample_all(self) -> list[Sample]:
        """One sample of each evaluator, in their order."""
        started = time.perf_counter()
        indices = self.evaluators.indices
        for index in indices:
            self.evaluators.request(index, SAMPLE_FOR_REPLAY)
        arrived: list[Sample] = []
        while len(arrived) < len(indices):
            arrived += self.evaluators.wait_any(CALL_DEADLINE_S)
        arrived.sort(key=lambda sample: sample.index)
        self.note(arrived, time.perf_counter() - started)
        return arrived

    def keep(self, sample: Sample) -> None:
        """Puts each policy's rows into its buffer."""
        for fetched in self.evaluators.fetch([sample.batch]):
            for policy_id, rows in fetched.rows().items():
                self.buffer(policy_id).add(rows)
            if self.learning:
                self.debt.sampled(sample.info.timesteps)

    @property
    def learning(self) -> bool:
        """Whether replay holds enough to train on."""
        return min(map(len, self.buffers.values()), default=0) >= max(1, self.config.learning_starts)

    def replay(self) -> dict[str, Replayed]:
        """One gradient step's rows of each policy."""
        size, beta = self.config.train_batch_size, self.config.beta_at(self.timesteps_sampled)
        return {policy_id: buffer.sample(size, beta=beta) for policy_id, buffer in self.buffers.items() if len(buffer)}

    def train(self, replayed: Mapping[str, Replayed]) -> LearnerReport:
        """One gradient step of each policy."""
        size = self.config.train_batch_size
        batch = MultiAgentBatch({policy_id: found.batch for policy_id, found in replayed.items()}, size)
        if isinstance(self.learner, Learner):
            report = self.learner.update([batch], num_epochs=1, minibatch_size=size)
        else:
            self.learner.load([batch])
            report = self.learner.sgd(num_epochs=1, minibatch_size=size)
        self.debt.trained()
        self.note_update(report)
        return report

    def feed_back(self, replayed: Mapping[str, Replayed], report: LearnerReport) -> None:
        """New priorities to the rows that were trained on."""
        for policy_id, priorities in report.priorities.items():
            outdated = self.buffers[policy_id].update_priorities(replayed[policy_id].numbers, priorities)
            self.counters["outdated_priorities"] += outdated

    def buffer(self, policy_id: str) -> ReplayBuffer:
        """A policy's replay, made when its first rows come."""
        if policy_id not in self.buffers:
            self.buffers[policy_id] = make_buffer(self.config, self.config.capacity, len(self.buffers))
        return self.buffers[policy_id]

    def save(self) -> dict[str, Any]:
        share = self.config.checkpoint_bytes // max(1, len(self.buffers))
        return {
            **super().save(),
            "debt": self.debt.owed,
            "replay": {policy_id: buffer.get_state(share) for policy_id, buffer in self.buffers.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.buffers.clear()
        for policy_id, saved in state["replay"].items():
            self.buffer(policy_id).set_state(saved)
        # What was owed is forgiven where there is nothing to train on any more.
        self.debt.owed = float(state["debt"]) if self.learning else 0.0
