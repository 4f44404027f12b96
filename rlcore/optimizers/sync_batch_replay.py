"""SyncBatchReplayOptimizer: replay of whole samples, so that sequences of recurrent policies stay as they were."""

from __future__ import annotations

import time
from typing import Any

from rlcore.compression import unpack
from rlcore.evaluation.evaluator_set import Sample
from rlcore.optimizers.learner import Learner
from rlcore.optimizers.policy_optimizer import PolicyOptimizer
from rlcore.optimizers.replay_config import ReplayConfig
from rlcore.optimizers.train_debt import TrainDebt
from rlcore.replay import BatchReplay
from rlcore.sample_batch import OBSERVATIONS, MultiAgentBatch


class SyncBatchReplayOptimizer(PolicyOptimizer):
    """Like SyncReplay, but what is kept and drawn are sequences (of feed-forward policies: whole samples)."""

    config: ReplayConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.buffers: dict[str, BatchReplay] = {}
        self.debt = TrainDebt(self.config.train_ratio, self.config.train_batch_size)
        self.counters |= {"replay_timesteps": 0, "replay_bytes": 0}

    def step(self) -> None:
        goal = self.timesteps_sampled + self.config.iteration_timesteps
        while self.timesteps_sampled < goal:
            self.broadcast()
            for sample in self.sample_all():
                self.keep(sample)
            while self.debt.due:
                self.train()
        self.counters["replay_timesteps"] = sum(len(buffer) for buffer in self.buffers.values())
        self.counters["replay_bytes"] = sum(buffer.size_bytes for buffer in self.buffers.values())

    def sample_all(self) -> list[Sample]:
        """One sample of each evaluator, in their order."""
        started = time.perf_counter()
        samples = self.evaluators.collect(self.evaluators.indices)
        self.note(samples, time.perf_counter() - started)
        return samples

    def keep(self, sample: Sample) -> None:
        """Puts each policy's batch into its buffer."""
        for fetched in self.evaluators.fetch([sample.batch]):
            for policy_id, batch in unpack(fetched).policy_batches.items():
                self.buffer(policy_id).add(batch)
            if self.learning:
                self.debt.sampled(sample.info.timesteps)

    @property
    def learning(self) -> bool:
        """Whether replay holds enough to train on."""
        return min(map(len, self.buffers.values()), default=0) >= max(1, self.config.learning_starts)

    def train(self) -> None:
        """One gradient step of each policy, on at least a train batch of timesteps."""
        size = self.config.train_batch_size
        batches = {policy_id: buffer.sample(size) for policy_id, buffer in self.buffers.items() if len(buffer)}
        joined = MultiAgentBatch(batches, size)
        # As large as what was drawn: a gradient step is on the whole.
        whole = max(len(b[OBSERVATIONS]) * b.size if b.time_major else b.size for b in batches.values())
        if isinstance(self.learner, Learner):
            report = self.learner.update([joined], num_epochs=1, minibatch_size=whole)
        else:
            self.learner.load([joined])
            report = self.learner.sgd(num_epochs=1, minibatch_size=whole)
        self.debt.trained(report.timesteps)
        self.note_update(report)

    def buffer(self, policy_id: str) -> BatchReplay:
        """A policy's replay, made when its first batch comes."""
        if policy_id not in self.buffers:
            seed = self.config.seed + 7919 * len(self.buffers)
            self.buffers[policy_id] = BatchReplay(self.config.capacity, seed=seed)
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
