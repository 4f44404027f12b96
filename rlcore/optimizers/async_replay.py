"""AsyncReplayOptimizer: evaluators fill sharded replay, the learner empties it, neither waits for the other (Ape-X).

    evaluators --samples in flight--> shards --batches drawn ahead--> learner
        ^                               ^                              |  |
        |                               +------- priorities -----------+  |
        +--------------------- weights, by age ---------------------------+

Source: Horgan et al. 2018, Distributed Prioritized Experience Replay (arXiv 1803.00933).

Nothing is dropped to keep up: where shards or the learner fall behind, evaluators are asked for less, and where the
learner is ahead of `train_ratio` it waits for samples. In one process the same code takes turns.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from rlcore.evaluation.evaluator_set import CALL_DEADLINE_S, Evaluators, GlobalState
from rlcore.optimizers.learner import Learner
from rlcore.optimizers.policy_optimizer import PolicyOptimizer
from rlcore.optimizers.replay_config import ReplayConfig
from rlcore.optimizers.replay_shards import Batch, LocalShards, RemoteShards, Shards
from rlcore.optimizers.sync_replay import SAMPLE_FOR_REPLAY
from rlcore.optimizers.train_debt import TrainDebt

# Gradient steps that may be owed before evaluators have to wait.
LARGEST_DEBT_STEPS = 16
# Samples on their way into each shard before evaluators have to wait.
ADDS_IN_FLIGHT = 4
# Updates that a learner on another pod is given ahead of time.
UPDATES_IN_FLIGHT = 2


class AsyncReplayOptimizer(PolicyOptimizer):
    """Ape-X's optimizer; a step ends after `iteration_timesteps` more samples."""

    config: ReplayConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shards: Shards = RemoteShards(self.config) if self.evaluators.remote else LocalShards(self.config)
        self.debt = TrainDebt(self.config.train_ratio, self.config.train_batch_size)
        self.counters |= dict.fromkeys(
            ("replay_timesteps", "replay_bytes", "replay_queue", "outdated_priorities", "shards_lost",
             "dropped_timesteps", "backpressure_waits"), 0,
        )  # fmt: skip
        self._ready: deque[Batch] = deque()
        self._training: deque[Batch] = deque()
        self._latest: GlobalState | None = None
        self._age: dict[int, int] = {}
        self._turn = 0
        self._asked_weights_at = 0
        self._lost_shards_before = self._dropped_before = self._outdated_before = 0

    def step(self) -> None:
        goal = self.timesteps_sampled + self.config.iteration_timesteps
        while self.timesteps_sampled < goal:
            self.ask_evaluators()
            self.ask_shards()
            moved = self.take_samples(wait=False) + self.train() + self.finish(wait=False)
            if not moved:
                self.wait()
        self._count()

    # evaluators --------------------

    def ask_evaluators(self) -> None:
        """Keeps every evaluator busy, as long as shards and learner keep up."""
        if self._latest is None:
            self.version = self.learner.get_version()
            self._latest = self.state_with(self.learner.get_weights())
        evaluators = self.evaluators
        if self.shards.adds_in_flight >= ADDS_IN_FLIGHT * self.config.shards:
            self.counters["backpressure_waits"] += 1
            return
        if not evaluators.remote:
            # In turn, and with nothing left over at the end of a step: a checkpoint then holds everything.
            if not (self._learning and self.debt.due):
                self._ask(evaluators.indices[self._turn % len(evaluators.indices)])
                self._turn += 1
            return
        if self._learning and self.debt.exceeds(LARGEST_DEBT_STEPS):
            self.counters["backpressure_waits"] += 1
            return
        evaluators.await_one()
        for index in evaluators.indices:
            for _ in range(self.config.samples_in_flight - evaluators.pending(index)):
                self._ask(index)

    def _ask(self, index: int) -> None:
        """One more sample; first newer weights, where the evaluator's are old."""
        if self._age.get(index, self.config.max_weight_sync_delay) >= self.config.max_weight_sync_delay:
            assert self._latest is not None
            started = time.perf_counter()
            self.evaluators.set_global_state(self._latest, [index])
            self._age[index] = 0
            self.weight_syncs += 1
            self._add_time("broadcast", time.perf_counter() - started)
        self.evaluators.request(index, SAMPLE_FOR_REPLAY)

    def take_samples(self, *, wait: bool) -> int:
        """Hands samples that have arrived to the shards; returns how many."""
        started = time.perf_counter()
        samples = self.evaluators.wait_any(CALL_DEADLINE_S) if wait else self.evaluators.poll()
        elapsed_s = time.perf_counter() - started
        if not samples:
            return 0
        for sample, batch in zip(samples, self.note(samples, elapsed_s), strict=True):
            self.shards.add(batch, sample.info.timesteps)
            self._age[sample.index] = self._age.get(sample.index, 0) + sample.info.timesteps
            if self._learning:
                self.debt.sampled(sample.info.timesteps)
        return len(samples)

    # replay --------------------

    @property
    def _learning(self) -> bool:
        return self.shards.timesteps >= max(1, self.config.learning_starts)

    def ask_shards(self) -> None:
        """Has batches drawn ahead of the learner."""
        self.shards.take_adds()
        if not (self._learning and self.debt.due):
            return
        ahead = self.config.batches_in_flight if self.evaluators.remote else 1
        for _ in range(ahead - self.shards.batches_asked - len(self._ready)):
            self.shards.ask(self.config.beta_at(self.timesteps_sampled))

    def train(self) -> int:
        """Gives the learner what it may train on; returns how many updates that are."""
        self._ready += self.shards.take(wait_s=0.0)
        most = 1 if isinstance(self.learner, Learner) else UPDATES_IN_FLIGHT
        submitted = 0
        while self._ready and self.debt.due and self.learner.updates_in_flight < most:
            batch = self._ready.popleft()
            data = self.evaluators.fetch([batch.batch]) if isinstance(self.learner, Learner) else [batch.batch]
            if not data:
                continue  # lost with its node
            want_weights = self.timesteps_sampled - self._asked_weights_at >= self.config.max_weight_sync_delay // 2
            if want_weights:
                self._asked_weights_at = self.timesteps_sampled
            self.learner.submit(
                data,
                num_epochs=1,
                minibatch_size=self.config.train_batch_size,
                timesteps=self.timesteps_sampled,
                want_weights=want_weights,
            )
            self.debt.trained()
            self._training.append(batch)
            submitted += 1
        return submitted

    def finish(self, *, wait: bool) -> int:
        """Takes in finished updates, and sends their priorities back; returns how many."""
        updates = self.learner.finished(wait=wait)
        for update in updates:
            self.note_update(update.report)
            self.version = update.report.version
            self.shards.update_priorities(self._training.popleft(), update.report.priorities)
            if update.weights is not None:
                self._latest = self.state_with(update.weights)
        return len(updates)

    def wait(self) -> None:
        """Nothing could be done: waits for what is needed next."""
        started = time.perf_counter()
        if self.learner.updates_in_flight:
            self.finish(wait=True)
        elif self.debt.due and self.shards.batches_asked:
            self._ready += self.shards.take(wait_s=CALL_DEADLINE_S)
        elif any(self.evaluators.pending(index) for index in self.evaluators.indices):
            self.take_samples(wait=True)
            return
        else:
            time.sleep(0.001)  # samples are on their way into their shards
        self._add_time("wait", time.perf_counter() - started)

    # state --------------------

    def _count(self) -> None:
        shards = self.shards
        self.counters |= {
            "replay_timesteps": shards.timesteps,
            "replay_bytes": shards.size_bytes,
            "replay_queue": len(self._ready) + shards.batches_asked,
            "outdated_priorities": self._outdated_before + shards.outdated,
            "shards_lost": self._lost_shards_before + shards.losses,
            "dropped_timesteps": self._dropped_before + shards.dropped_timesteps,
        }

    def save(self) -> dict[str, Any]:
        while self.learner.updates_in_flight:
            self.finish(wait=True)
        self._count()
        return {**super().save(), "debt": self.debt.owed, "turn": self._turn, "shards": self.shards.get_state()}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._turn = state["turn"]
        self._ready.clear()
        self._latest = None
        self._age.clear()
        self._asked_weights_at = self.timesteps_sampled
        counted = state["counters"]
        self._lost_shards_before = counted["shards_lost"] - self.shards.losses
        self._dropped_before = counted["dropped_timesteps"] - self.shards.dropped_timesteps
        self._outdated_before = counted["outdated_priorities"]
        if len(state["shards"]) == self.config.shards:
            self.shards.set_state(state["shards"])
        # What was owed is forgiven where there is nothing to train on any more.
        self.debt.owed = float(state["debt"]) if self._learning else 0.0

    def reset(self, evaluators: Evaluators) -> None:
        super().reset(evaluators)
        self._age.clear()

    def stop(self) -> None:
        self.shards.stop()
        super().stop()
