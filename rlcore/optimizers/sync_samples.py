"""SyncSamplesOptimizer: gather a train batch from all evaluators, update, broadcast."""

from __future__ import annotations

import sys

from rlcore.optimizers.policy_optimizer import PolicyOptimizer


class SyncSamplesOptimizer(PolicyOptimizer):
    """The simplest strategy: one gradient step on the whole batch, `num_epochs` times."""

    def step(self) -> None:
        for _ in range(self.config.updates_per_step):
            self.broadcast()
            batches = self.collect_round()
            self.load(batches)
            self.note_update(self.learner.sgd(num_epochs=self.config.num_epochs, minibatch_size=sys.maxsize))
