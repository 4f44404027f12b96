"""The paper's PolicyOptimizer: a strategy that coordinates evaluators and a learner, `step()` by `step()`.

    optimizer = LocalMultiGPUOptimizer(learner, evaluators, config)
    while not done:
        optimizer.step()
        progress = optimizer.collect_metrics()

Source: RLlib: Abstractions for Distributed Reinforcement Learning (arXiv 1712.09381), sections 3 and 4.3.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlcore.env.base import EnvFailure
from rlcore.env.normalize import MeanStdFilter
from rlcore.evaluation.episodes import Episode
from rlcore.evaluation.evaluator_set import CALL_DEADLINE_S, Evaluators, GlobalState, Sample
from rlcore.optimizers.learner import Learner, LearnerReport
from rlcore.optimizers.remote_learner import RemoteLearner
from rlcore.optimizers.self_play import SelfPlay
from rlcore.policy.policy_graph import Stats


@dataclass(frozen=True)
class OptimizerConfig:
    """What optimizers need to know of a job.

    Attributes:
        train_batch_size: timesteps of one update.
        fragment_size: timesteps of one sample of one evaluator.
        num_epochs: SGD passes over a train batch.
        minibatch_size: timesteps of one gradient step.
        straggler_mitigation: do not wait for the slowest evaluators; see LocalMultiGPUOptimizer.
        updates_per_step: updates that one `step()` makes, where they are short.
        seed: of what an optimizer draws by itself, such as replay.
    """

    train_batch_size: int
    fragment_size: int
    num_epochs: int = 1
    minibatch_size: int = 128
    straggler_mitigation: bool = False
    updates_per_step: int = 1
    seed: int = 0


@dataclass
class Progress:
    """What happened since the last `collect_metrics`.

    Attributes:
        timesteps_sampled: in collected batches; with several agents these are environment steps.
        timesteps_trained: agent steps trained on (once each, however many epochs).
        episodes: of the policies, in evaluator order.
        failures: environments that raised.
        learner: policy id -> statistics of the last update.
        times_s: seconds by stage: sample (evaluators at work), wait (for the slowest), load, sgd, broadcast;
            grad (evaluators' gradients) and apply where the learner only applies them.
        counts: late, discarded timesteps, bytes received, evaluators lost.
        staleness: age of the oldest batch, in policy versions.
    """

    timesteps_sampled: int = 0
    timesteps_trained: int = 0
    episodes: list[Episode] = field(default_factory=list)
    failures: list[EnvFailure] = field(default_factory=list)
    learner: dict[str, Stats] = field(default_factory=dict)
    times_s: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    staleness: int = 0


class PolicyOptimizer(ABC):
    """Base of all strategies.

    Args:
        learner: owns the policies that learn.
        evaluators: make experience; the paper's ev_1..n.
        config: see OptimizerConfig.
        filters: policy id -> the job's observation filter, merged from all evaluators'.

    Attributes:
        self_play: against past snapshots of a trained policy; None without.
        plays: its evaluators step environments; else it learns from what others recorded.
    """

    plays = True

    def __init__(
        self,
        learner: Learner | RemoteLearner,
        evaluators: Evaluators,
        config: OptimizerConfig,
        filters: dict[str, MeanStdFilter] | None = None,
    ) -> None:
        self.learner = learner
        self.evaluators = evaluators
        self.config = config
        self.filters = filters or {}
        self.timesteps_sampled = 0
        self.timesteps_trained = 0
        self.weight_syncs = 0
        self.version = 0
        self.self_play: SelfPlay | None = None
        self.counters: dict[str, int] = {"late_timesteps": 0, "discarded_timesteps": 0, "received_bytes": 0}
        self._lost_before = 0
        self._progress = Progress()

    @abstractmethod
    def step(self) -> None:
        """One round: experience from the evaluators, an update of the learner. Takes seconds, not minutes."""

    # parts that steps are made of --------------------

    def broadcast(self) -> None:
        """Weights, progress and filters to all evaluators."""
        with self.timed("broadcast"):
            self.learner.set_timesteps(self.timesteps_sampled)
            self.version = self.learner.get_version()
            self.evaluators.set_global_state(self.state_with(self.learner.get_weights()))
        self.weight_syncs += 1

    def state_with(self, weights: Any) -> GlobalState:
        """What evaluators need to sample with these weights, which are the policies' newest."""
        filters = {policy_id: filter_.get_state() for policy_id, filter_ in self.filters.items()}
        frozen = {} if self.self_play is None else self.self_play.opponents
        return GlobalState(weights, self.version, self.timesteps_sampled, filters, frozen)

    def begin_self_play(self, self_play: SelfPlay) -> None:
        """Opponents are snapshots of a trained policy from now on."""
        self.self_play = self_play
        self_play.begin(self._weights_of(self_play.spec.policy))

    def _weights_of(self, policy_id: str) -> np.ndarray:
        """A trained policy's newest parameters, float32 [P]."""
        weights = self.learner.get_weights()
        if not isinstance(weights, Mapping):
            import ray

            weights = ray.get(weights, timeout=CALL_DEADLINE_S)
        return np.asarray(weights[policy_id])

    def round_robin(self) -> list[int]:
        """Evaluator indices, as many fragments as fill a train batch, dealt out in turn."""
        indices = self.evaluators.indices
        fragments = max(1, -(-self.config.train_batch_size // self.config.fragment_size))
        return [indices[i % len(indices)] for i in range(fragments)]

    def collect_round(self) -> list[Any]:
        """One train batch of experience, in evaluator order; waits for all."""
        started = time.perf_counter()
        requests = sorted(self.round_robin())
        samples = self.evaluators.collect(requests)
        elapsed = time.perf_counter() - started
        return self.note(samples, elapsed)

    def note(self, samples: Sequence[Sample], elapsed_s: float) -> list[Any]:
        """Takes samples into the counts and filters; returns their batches (or references), in the same order."""
        busy: dict[int, float] = {}
        for sample in samples:
            self.note_events(sample)
            self.timesteps_sampled += sample.info.timesteps
            self._progress.timesteps_sampled += sample.info.timesteps
            busy[sample.index] = busy.get(sample.index, 0.0) + sample.info.sample_time_s
            self._progress.staleness = max(self._progress.staleness, self.version - sample.info.policy_version)
        # Sampling is what the average evaluator did; the rest of the round was waiting for the slowest and the wire.
        mean_busy_s = sum(busy.values()) / max(1, len(busy)) if self.evaluators.remote else elapsed_s
        gradients_s = sum(sample.info.gradient_time_s for sample in samples)
        share = gradients_s / max(1e-9, sum(busy.values()))
        self._add_time("sample", min(mean_busy_s, elapsed_s) * (1.0 - share))
        if gradients_s:
            self._add_time("grad", min(mean_busy_s, elapsed_s) * share)
        self._add_time("wait", max(0.0, elapsed_s - mean_busy_s))
        return [sample.batch for sample in samples]

    def note_events(self, sample: Sample) -> None:
        """What a sample tells whether or not it is trained on: episodes, failures, filter statistics, bytes."""
        info = sample.info
        self._progress.failures += info.failures
        for episodes in info.episodes.values():
            self._progress.episodes += episodes
        for policy_id, delta in info.filter_deltas.items():
            self.filters[policy_id].merge([delta])
        self.counters["received_bytes"] += info.size_bytes

    def load(self, batches: Sequence[Any]) -> None:
        """Gives batches to the learner: to one in this process the data, to one elsewhere the references."""
        if isinstance(self.learner, Learner):
            batches = self.evaluators.fetch(batches)
        self.learner.load(batches)

    def note_update(self, report: LearnerReport) -> None:
        """Takes an update into the counts."""
        self.timesteps_trained += report.timesteps
        self._progress.timesteps_trained += report.timesteps
        self._progress.learner = report.stats
        self._add_time("load", report.load_time_s)
        self._add_time("sgd", report.sgd_time_s)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Adds the seconds of its block to a stage."""
        started = time.perf_counter()
        yield
        self._add_time(stage, time.perf_counter() - started)

    def _add_time(self, stage: str, seconds: float) -> None:
        self._progress.times_s[stage] = self._progress.times_s.get(stage, 0.0) + seconds

    # the paper's other methods --------------------

    def collect_metrics(self) -> Progress:
        """What happened since the last call."""
        progress, self._progress = self._progress, Progress()
        progress.counts = {**self.counters, "evaluators_lost": self.evaluators_lost}
        if self.self_play is not None:
            self._play_on(self.self_play, progress)
        return progress

    def _play_on(self, self_play: SelfPlay, progress: Progress) -> None:
        policy_id = self_play.spec.policy
        self_play.iterated(progress.episodes, lambda: self._weights_of(policy_id))
        progress.counts["self_play_snapshots"] = self_play.taken
        if self_play.win_rate is not None and policy_id in progress.learner:
            progress.learner[policy_id] = {**progress.learner[policy_id], "win_rate": self_play.win_rate}

    def stats(self) -> dict[str, float]:
        """Counters of the whole run."""
        return {
            "timesteps_sampled": self.timesteps_sampled,
            "timesteps_trained": self.timesteps_trained,
            "weight_syncs": self.weight_syncs,
            "evaluators_lost": self.evaluators_lost,
            **self.counters,
        }

    @property
    def evaluators_lost(self) -> int:
        """Evaluators that died since the beginning of the job, over all resumes."""
        return self._lost_before + self.evaluators.losses

    def foreach_evaluator(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """`function(evaluator, *args)` on all evaluators; results in their order."""
        return self.evaluators.foreach(function, *args)

    def foreach_evaluator_with_index(self, function: Callable[[Any, int], Any]) -> list[Any]:
        """`function(evaluator, index)` on all evaluators; results in their order."""
        return self.evaluators.foreach_with_index(function, self.evaluators.indices)

    def set_fragment_size(self, size: int) -> None:
        """Evaluators give fragments of so many timesteps from now on."""
        self.config = replace(self.config, fragment_size=size)

    def reset(self, evaluators: Evaluators) -> None:
        """Goes on with other evaluators, with what was learned and counted."""
        self._lost_before += self.evaluators.losses
        self.evaluators = evaluators

    def save(self) -> dict[str, Any]:
        """Everything needed to go on exactly: the learner, filters, counters; arrays and JSON only."""
        return {
            "learner": self.learner.get_state(),
            "filters": {policy_id: filter_.get_state() for policy_id, filter_ in self.filters.items()},
            "timesteps_sampled": self.timesteps_sampled,
            "timesteps_trained": self.timesteps_trained,
            "weight_syncs": self.weight_syncs,
            "evaluators_lost": self.evaluators_lost,
            "counters": dict(self.counters),
            "self_play": None if self.self_play is None else self.self_play.get_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from `save`."""
        self.learner.set_state(state["learner"])
        for policy_id, filter_ in self.filters.items():
            filter_.set_state(state["filters"][policy_id])
        self.timesteps_sampled = state["timesteps_sampled"]
        self.timesteps_trained = state["timesteps_trained"]
        self.weight_syncs = state["weight_syncs"]
        self._lost_before = state["evaluators_lost"] - self.evaluators.losses
        self.counters.update(state["counters"])
        if self.self_play is not None and state.get("self_play") is not None:
            self.self_play.set_state(state["self_play"])

    def stop(self) -> None:
        """Ends evaluators and learner."""
        self.evaluators.stop()
        if isinstance(self.learner, RemoteLearner):
            self.learner.stop()
