"""LocalMultiGPUOptimizer: the batch is loaded onto the devices once, and all SGD passes are made there.

Straggler mitigation: as soon as enough timesteps are there, training starts; samples still under way are kept for the
next round if they are at most one policy version old then. The paper notes that leaving the slowest out biases the data
towards fast episodes; how many timesteps came late or were thrown away is counted.
"""

from __future__ import annotations

import time
from typing import Any

from rlcore.evaluation.evaluator_set import CALL_DEADLINE_S, RemoteEvaluators, Sample
from rlcore.optimizers.policy_optimizer import PolicyOptimizer

# Samples made with weights older than this many updates are thrown away.
LARGEST_STALENESS = 1


class LocalMultiGPUOptimizer(PolicyOptimizer):
    """PPO's optimizer of the paper: one tower a device, minibatch SGD on data that does not move."""

    def step(self) -> None:
        self.broadcast()
        mitigate = self.config.straggler_mitigation and isinstance(self.evaluators, RemoteEvaluators)
        batches = self.collect_ready() if mitigate else self.collect_round()
        self.load(batches)
        self.note_update(self.learner.sgd(num_epochs=self.config.num_epochs, minibatch_size=self.config.minibatch_size))

    def collect_ready(self) -> list[Any]:
        """A train batch from whoever is ready; every evaluator keeps sampling meanwhile."""
        evaluators = self.evaluators
        assert isinstance(evaluators, RemoteEvaluators)
        started = time.perf_counter()
        taken: list[Sample] = []
        timesteps = 0
        while timesteps < self.config.train_batch_size:
            for index in evaluators.indices:
                if not evaluators.pending(index):
                    evaluators.request(index)
            for sample in evaluators.wait_any(CALL_DEADLINE_S):
                if self._keep(sample):
                    taken.append(sample)
                    timesteps += sample.info.timesteps
                if timesteps < self.config.train_batch_size:
                    evaluators.request(sample.index)
        return self.note(sorted(taken, key=lambda s: s.index), time.perf_counter() - started)

    def _keep(self, sample: Sample) -> bool:
        age = self.version - sample.info.policy_version
        if age > LARGEST_STALENESS:
            self.counters["discarded_timesteps"] += sample.info.timesteps
            # Its episodes still happened: without them the slow evaluators' would be missing from the mean.
            self.note_events(sample)
            return False
        if age > 0:
            self.counters["late_timesteps"] += sample.info.timesteps
        return True
