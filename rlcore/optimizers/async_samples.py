"""AsyncSamplesOptimizer: evaluators sample without pause, the learner trains on whatever has come (IMPALA, APPO).

    evaluators --samples in flight--> waiting samples --train batches--> learner --weights, every so many updates--+
        ^                                                                                                         |
        +---------------------------------------------------------------------------------------------------------+

Everything between is bounded: each evaluator owes `samples_in_flight` samples at most, `learner_queue_size` train
batches may wait (then nobody is asked for more), and a learner on another pod is given `updates_in_flight` updates.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from rlcore.evaluation.evaluator_set import CALL_DEADLINE_S, GlobalState, Sample
from rlcore.optimizers.aggregation import EVALUATORS_PER_AGGREGATOR, AggregationTree, aggregators_needed
from rlcore.optimizers.learner import Learner, Update
from rlcore.optimizers.policy_optimizer import OptimizerConfig, PolicyOptimizer
from rlcore.optimizers.sample_replay import SampleReplay


@dataclass(frozen=True)
class AsyncSamplesConfig(OptimizerConfig):
    """What AsyncSamples needs to know of a job.

    Attributes:
        samples_in_flight: that each evaluator is asked for ahead of time.
        learner_queue_size: train batches that may wait.
        updates_in_flight: that a learner elsewhere is given ahead of time.
        broadcast_interval: updates between two sets of weights.
        replay_slots: samples kept for replay.
        replay_proportion: old samples for each new one.
        num_aggregators: actors that join samples, at least.
        evaluators_per_aggregator: beyond so many there is one aggregator for each so many.
    """

    samples_in_flight: int = 2
    learner_queue_size: int = 4
    updates_in_flight: int = 2
    broadcast_interval: int = 1
    replay_slots: int = 0
    replay_proportion: float = 0.0
    num_aggregators: int = 0
    evaluators_per_aggregator: int = EVALUATORS_PER_AGGREGATOR


class AsyncSamplesOptimizer(PolicyOptimizer):
    """IMPALA's optimizer: a step is `updates_per_step` train batches. In one process evaluators sample in turn."""

    config: AsyncSamplesConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = self.config
        self.replay = SampleReplay(config.replay_slots, config.replay_proportion, config.seed)
        self.counters |= {"learner_queue": 0, "replayed_samples": 0, "train_batches": 0}
        self._waiting: deque[Sample] = deque()
        self._waiting_timesteps = 0
        self._latest: GlobalState | None = None
        self._given: dict[int, int] = {}
        self._turn = 0
        self._submitted = 0
        self._busy_s = 0.0
        self._tree: AggregationTree | None = None

    def step(self) -> None:
        finished = 0
        while finished < self.config.updates_per_step:
            self._ask()
            self._collect(wait=not self._batch_ready())
            while self._batch_ready() and self._learner_has_room():
                self._train()
            finished += self._finish(wait=self._batch_ready())

    # evaluators --------------------

    def _ask(self) -> None:
        """Keeps every evaluator busy, as long as there is room for what it makes."""
        if self._latest is None:
            self.version = self.learner.get_version()
            self._publish(self.learner.get_weights())
        evaluators = self.evaluators
        if not evaluators.remote:
            # In turn, and with nothing left over at the end of a step: a checkpoint then holds everything.
            if not self._batch_ready():
                self._request(evaluators.indices[self._turn % len(evaluators.indices)])
                self._turn += 1
            return
        evaluators.await_one()
        owed = evaluators.owed()
        for index in evaluators.indices:
            for _ in range(self.config.samples_in_flight - owed[index]):
                if self._waiting_timesteps >= self.config.learner_queue_size * self.config.train_batch_size:
                    return
                self._request(index)

    def _request(self, index: int) -> None:
        assert self._latest is not None
        if self._given.get(index) != self._latest.version:
            self.evaluators.set_global_state(self._latest, [index])
            self._given[index] = self._latest.version
        self.evaluators.request(index)

    def _collect(self, *, wait: bool) -> None:
        """Takes in what has arrived; `wait` for one sample at least."""
        started = time.perf_counter()
        samples = self.evaluators.wait_any(CALL_DEADLINE_S) if wait else self.evaluators.poll()
        for sample in samples:
            self._waiting.append(sample)
            self._waiting_timesteps += self._size(sample)
        self._busy_s += time.perf_counter() - started

    def _size(self, sample: Sample) -> int:
        """Timesteps that a sample counts for in a train batch: a whole fragment, as for SyncSamples.

        The rows in which environments reset are no timesteps; for their sake alone no batch waits for a further sample.
        """
        return max(sample.info.timesteps, self.config.fragment_size)

    def _publish(self, weights: Any) -> None:
        """These weights are what evaluators get with their next request."""
        self._latest = self.state_with(weights)
        self.weight_syncs += 1

    # the learner --------------------

    def _batch_ready(self) -> bool:
        return self._waiting_timesteps > 0 and self._waiting_timesteps >= self._new_timesteps

    @property
    def _new_timesteps(self) -> float:
        """Timesteps of a train batch that are not replayed."""
        return self.config.train_batch_size / (1.0 + (self.config.replay_proportion if len(self.replay) else 0.0))

    def _learner_has_room(self) -> bool:
        most = 1 if isinstance(self.learner, Learner) else self.config.updates_in_flight
        return self.learner.updates_in_flight < most

    def _train(self) -> None:
        """Hands one train batch to the learner."""
        samples: list[Sample] = []
        wanted = self._new_timesteps
        while self._waiting and sum(map(self._size, samples)) < wanted:
            samples.append(self._waiting.popleft())
        self._waiting_timesteps = sum(map(self._size, self._waiting))
        self.counters["learner_queue"] = int(self._waiting_timesteps / max(1.0, wanted))
        batches = self.note(samples, self._busy_s)
        self._busy_s = 0.0
        mixed = self.replay.mix(batches)
        self.counters["replayed_samples"] += len(mixed) - len(batches)
        self.counters["train_batches"] += 1
        self._submitted += 1
        self.learner.submit(
            self._joined(mixed),
            num_epochs=self.config.num_epochs,
            minibatch_size=self.config.minibatch_size,
            timesteps=self.timesteps_sampled,
            want_weights=self._submitted % self.config.broadcast_interval == 0,
        )

    def _joined(self, batches: list[Any]) -> list[Any]:
        """One train batch as the learner takes it: here the data, elsewhere references, of aggregators if there are."""
        config, count = self.config, len(self.evaluators.indices)
        needed = aggregators_needed(config.num_aggregators, count, config.evaluators_per_aggregator)
        if self.evaluators.remote and needed:
            if self._tree is None or self._tree.leaves < needed:
                self._stop_tree()
                self._tree = AggregationTree(needed)
            batches = [self._tree.join(batches)]
        return self.evaluators.fetch(batches) if isinstance(self.learner, Learner) else batches

    def _finish(self, *, wait: bool) -> int:
        """Takes in finished updates; returns how many."""
        started = time.perf_counter()
        updates: list[Update] = self.learner.finished(wait=wait)
        if self.evaluators.remote and not isinstance(self.learner, Learner):
            self._add_time("wait", time.perf_counter() - started)
        for update in updates:
            self.note_update(update.report)
            self.version = update.report.version
            if update.weights is not None:
                self._publish(update.weights)
        return len(updates)

    # state --------------------

    def save(self) -> dict[str, Any]:
        while self.learner.updates_in_flight:
            self._finish(wait=True)
        latest = self._latest
        if latest is not None and not isinstance(latest.weights, dict):
            weights = self.evaluators.fetch([latest.weights])
            latest = self.state_with(weights[0]) if weights else None
        return {
            **super().save(),
            "turn": self._turn,
            "submitted": self._submitted,
            "replay": self.replay.get_state(self.evaluators.fetch),
            "latest": None if latest is None else {
                "weights": latest.weights,
                "version": latest.version,
                "timesteps": latest.timesteps,
                "filters": latest.filters,
                "frozen": dict(latest.frozen),
            },
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.version = self.learner.get_version()
        self._turn, self._submitted = state["turn"], state["submitted"]
        self.replay.set_state(state["replay"])
        latest = state["latest"]
        self._latest = None if latest is None else GlobalState(**latest)
        self._given.clear()
        self._waiting.clear()
        self._waiting_timesteps = 0

    def stop(self) -> None:
        super().stop()
        self._stop_tree()

    def _stop_tree(self) -> None:
        if self._tree is not None:
            self._tree.stop()
            self._tree = None
