"""The paper's PolicyEvaluator: policies and environments in one place, making experience.

    evaluator = PolicyEvaluator(config)                            # a plain object
    batch = evaluator.sample()

    actor = PolicyEvaluator.as_remote(num_cpus=1).remote(config)   # the same as a Ray actor
    batch_ref, info_ref = actor.sample_with_info.options(num_returns=2).remote()

Source: RLlib: Abstractions for Distributed Reinforcement Learning (arXiv 1712.09381), section 4.2.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch

from rlcore.compression import PackedBatch, pack
from rlcore.env.base import EnvFailure, derive_seed
from rlcore.errors import EnvironmentFailure, NonFiniteError, UserError
from rlcore.evaluation.config import EvaluatorConfig
from rlcore.evaluation.episodes import Episode
from rlcore.evaluation.fragments import collect_complete_episodes
from rlcore.evaluation.sample_info import Gradients, SampleInfo
from rlcore.evaluation.track import Track
from rlcore.evaluation.world import World, make_world
from rlcore.policy.policy_graph import Stats
from rlcore.policy.torch_policy_graph import TorchPolicyGraph
from rlcore.replay.frames import worth_splitting
from rlcore.replay.sample import ReplaySample, split_sample
from rlcore.sample_batch import Fragment, MultiAgentBatch

T = TypeVar("T")
Weights = Mapping[str, np.ndarray]

# Steps after which an episode is taken to have no end.
ENDLESS_STEPS = 1_000_000


@dataclass
class _Counters:
    episodes: dict[str, list[Episode]] = field(default_factory=dict)
    failures: list[EnvFailure] = field(default_factory=list)


class PolicyEvaluator:
    """Samples environments with policies.

    Args:
        config: what to sample, with which policies.

    Raises:
        UserError: the environment or the model cannot be made.
    """

    def __init__(self, config: EvaluatorConfig) -> None:
        self.config = config
        if config.torch_threads is not None:
            torch.set_num_threads(config.torch_threads)
        self.world: World = make_world(config)
        try:
            spaces = self.world.spaces
            self.policies = {p: config.build_policy(p, spaces[p]) for p in spaces}
            self.world.admit(self.policies)
            self.tracks = {
                policy_id: Track(
                    self.policies[policy_id],
                    slots,
                    filter_observations=config.observation_filter == "meanStd",
                    sequence_length=config.sequence_length,
                    turn_based=self.world.turn_based,
                )
                for policy_id, slots in self.world.slots.items()
            }
            self.failures_total = 0
            self.worker: Callable[[PolicyEvaluator], tuple[Any, SampleInfo]] | None = None
            self.keep: Any = None  # what an optimizer wants to live as long as this evaluator
            self._counters = _Counters()
            self._restart(derive_seed(config.seed, config.worker_index))
        except BaseException:
            self.world.close()
            raise

    @classmethod
    def as_remote(cls, **options: Any) -> Any:
        """The class as a Ray actor class, with Ray's actor options (num_cpus, resources, ...)."""
        import ray

        return ray.remote(**options)(_EvaluatorActor) if options else ray.remote(_EvaluatorActor)

    # sampling --------------------

    def sample(self) -> MultiAgentBatch:
        """One batch of experience, postprocessed policy by policy; its count is environment steps.

        Raises:
            EnvironmentFailure: environments raised more often than `max_failures`.
            NonFiniteError: an observation or reward is NaN or infinite.
        """
        if self.config.batch_mode == "truncate":
            fragments = self.run(self.config.fragment_length, explore=True)
        else:
            fragments = self._run_complete_episodes()
        fragments = self.transitions(fragments)
        self._absorb(fragments, learn_filter=True)
        rows = sum(int(np.count_nonzero(fragment.valid)) for fragment in fragments.values())
        if self.config.batch_mode == "truncate":
            fragments = {policy_id: self.tracks[policy_id].hold_back(part) for policy_id, part in fragments.items()}
        batches = {p: self.policies[p].postprocess(fragments[p], others_of(p, fragments)) for p in self.trained}
        return MultiAgentBatch(batches, self.world.take_env_steps(rows))

    def sample_with_info(self) -> tuple[MultiAgentBatch | PackedBatch, SampleInfo]:
        """`sample()`, packed for travelling, and what the driver needs to know of it."""
        started = time.perf_counter()
        batch = self.sample()
        packed = pack(batch, self.config.compression)
        return packed, self.info_of(batch, packed.size_bytes, started)

    def sample_for_replay(self) -> tuple[ReplaySample, SampleInfo]:
        """`sample()` as replay keeps it, with each image once, and what the driver needs to know of it."""
        started = time.perf_counter()
        batch = self.sample()
        split = [p for p in batch.policy_batches if keeps_frames_once(self.policies[p])]
        sample = split_sample(batch, split, self.config.compression)
        return sample, self.info_of(batch, sample.size_bytes, started)

    def gradients_with_info(self) -> tuple[Gradients, SampleInfo]:
        """Gradients on a sample of this evaluator's own, and what the driver needs to know of it."""
        started = time.perf_counter()
        batch = self.sample()
        sampled = time.perf_counter()
        gradients, stats = self.compute_gradients(batch)
        gradient_time_s = time.perf_counter() - sampled
        size_bytes = sum(gradient.nbytes for gradient in gradients.values())
        info = replace(self.info_of(batch, size_bytes, started), gradient_time_s=gradient_time_s)
        return Gradients(gradients, stats, batch.agent_steps), info

    def work_with_info(self) -> tuple[Any, SampleInfo]:
        """What an optimizer's `worker` makes of this evaluator; (None, nothing sampled) where none was given yet."""
        started = time.perf_counter()
        if self.worker is None:
            return None, self.info_of(MultiAgentBatch({}, 0), 0, started)
        return self.worker(self)

    def info_of(self, batch: MultiAgentBatch, size_bytes: int, started_s: float) -> SampleInfo:
        """What happened since the last call, with a batch that was begun at `started_s` of the performance counter."""
        counters, self._counters = self._counters, _Counters()
        return SampleInfo(
            worker_index=self.config.worker_index,
            timesteps=batch.count,
            episodes={p: episodes for p, episodes in counters.episodes.items() if p in self.config.trained},
            filter_deltas={p: t.filter.take_delta() for p, t in self.tracks.items() if t.filter is not None},
            failures=counters.failures,
            policy_version=batch.policy_version,
            sample_time_s=time.perf_counter() - started_s,
            size_bytes=size_bytes,
        )

    def evaluate(self, episodes: int, seed: int) -> list[Episode]:
        """The deterministic policy's next `episodes` episodes, from environments reset with `seed`.

        Every slot contributes equally many, or one less, so that short episodes are not counted more often than long
        ones. In a multi-agent environment these are the episodes of the first trained policy's agents.
        """
        self._restart(seed)
        first = next(iter(self.trained), next(iter(self.tracks)))
        track = self.tracks[first]
        by_slot: list[list[Episode]] = [[] for _ in range(track.slots)]
        present = np.zeros(track.slots, bool)
        steps = 0
        while True:
            fragments = self.run(self.config.fragment_length, explore=False)
            present |= fragments[first].valid.any(axis=0)
            self._absorb(self.transitions(fragments), learn_filter=False)
            for episode in self._counters.episodes.pop(first, []):
                by_slot[episode.slot].append(episode)
            steps += fragments[first].length
            share = -(-episodes // max(1, int(present.sum())))
            rows = [done for done, here in zip(by_slot, present, strict=True) if here]
            if rows and min(len(done) for done in rows) >= share:
                break
            if steps > ENDLESS_STEPS:
                raise self._endless(steps)
        self._counters = _Counters()
        return [done[turn] for turn in range(share) for done in rows][:episodes]

    def run(
        self, length: int, *, explore: bool, after_step: Callable[[int], None] = lambda t: None
    ) -> dict[str, Fragment]:
        """The next `length` steps, by policy; `after_step` is called with t once the tracks hold step t."""
        tracks, world = self.tracks, self.world
        for track in tracks.values():
            track.begin(length, explore=explore)
        for t in range(length):
            steps = world.step({policy_id: track.act(t) for policy_id, track in tracks.items()})
            for policy_id, track in tracks.items():
                track.record(t, steps[policy_id], world.paid(policy_id))
            after_step(t)
        fragments = {policy_id: track.finish() for policy_id, track in tracks.items()}
        self._check_failures()
        self._check_finite(fragments)
        return fragments

    def transitions(self, fragments: Mapping[str, Fragment]) -> dict[str, Fragment]:
        """What `run` gave, as each policy sees it: where agents take turns, in their own time."""
        return {policy_id: self.tracks[policy_id].transitions(fragment) for policy_id, fragment in fragments.items()}

    def run_watched(self, after_step: Callable[[int], None], ended: Callable[[], bool], chunk: int) -> int:
        """Plays new episodes with the policies as they are until `ended`; returns the transitions made.

        Args:
            after_step: see `run`; may take rows back by their `valid`.
            ended: looked at every `chunk` steps.
            chunk: in steps.
        """
        self._restart(None)
        steps = transitions = 0
        while not ended():
            fragments = self.run(chunk, explore=True, after_step=after_step)
            self._absorb(fragments, learn_filter=True)
            transitions += sum(int(np.count_nonzero(fragment.valid)) for fragment in fragments.values())
            steps += chunk
            if steps > ENDLESS_STEPS:
                raise self._endless(steps)
        return self.world.take_env_steps(transitions)

    def _run_complete_episodes(self) -> dict[str, Fragment]:
        config = self.config
        self._restart(None)
        # Recurrent states are kept evenly over joined parts, so a part is a whole number of sequences. Short parts:
        # what is played beyond the last end that is waited for is thrown away.
        every = config.sequence_length if any(policy.recurrent for policy in self.policies.values()) else 1
        length = -(-min(config.fragment_length, 128) // (4 * every)) * every
        try:
            return collect_complete_episodes(
                lambda: self.run(length, explore=True), config.fragment_length * config.num_envs, ENDLESS_STEPS
            )
        except TimeoutError as error:
            raise self._endless(ENDLESS_STEPS) from error

    def _absorb(self, fragments: Mapping[str, Fragment], *, learn_filter: bool) -> None:
        for policy_id, fragment in fragments.items():
            episodes = self.tracks[policy_id].absorb(fragment, learn_filter=learn_filter)
            self._counters.episodes.setdefault(policy_id, []).extend(episodes)

    def _endless(self, steps: int) -> UserError:
        return UserError(
            f"environment {self.config.environment.id} did not end an episode in {steps:,} steps",
            hint="set spec.environment.maxEpisodeSteps",
        )

    def _restart(self, seed: int | None) -> None:
        for policy_id, (observations, mask) in self.world.reset(seed).items():
            self.tracks[policy_id].restart(observations, mask)
            self.tracks[policy_id].counter.reset()

    def _check_failures(self) -> None:
        failures = self.world.drain_failures()
        self._counters.failures.extend(failures)
        self.failures_total += len(failures)
        if failures and self.failures_total > self.config.max_failures:
            raise EnvironmentFailure(
                f"environment {self.config.environment.id} failed {self.failures_total} times on evaluator "
                f"{self.config.worker_index}, more than spec.environment.maxFailures "
                f"{self.config.max_failures}; the last: {failures[-1]}",
                hint="mend the environment, or raise maxFailures; the last good checkpoint is kept",
            )

    def _check_finite(self, fragments: Mapping[str, Fragment]) -> None:
        for policy_id, fragment in fragments.items():
            # Before the filter: it clips infinities away, and would learn from them.
            raw = fragment.observations if fragment.raw_observations is None else fragment.raw_observations
            for name, array in (("observation", raw), ("reward", fragment.rewards)):
                if array.dtype.kind != "f" or np.isfinite(array).all():
                    continue
                t, n = np.argwhere(~np.isfinite(array))[0][:2]
                raise NonFiniteError(
                    f"environment {self.config.environment.id} gave a {name} that is not finite: {array[t, n]} "
                    f"(policy {policy_id}, evaluator {self.config.worker_index}, slot {n}, step {t} of the fragment)",
                    hint="mend the environment; the last good checkpoint is kept",
                )

    # weights, gradients, filters --------------------

    @property
    def trained(self) -> list[str]:
        """Ids of the policies that learn, in order."""
        return [p for p in self.tracks if p in self.config.trained]

    def for_policy(self, function: Callable[[TorchPolicyGraph], T], policy_id: str) -> T:
        """`function(policy)`."""
        return function(self.policies[policy_id])

    def foreach_policy(self, function: Callable[[TorchPolicyGraph, str], T]) -> list[T]:
        """`function(policy, id)` for all policies."""
        return [function(policy, policy_id) for policy_id, policy in self.policies.items()]

    def foreach_trainable_policy(self, function: Callable[[TorchPolicyGraph, str], T]) -> list[T]:
        """`function(policy, id)` for the policies that learn."""
        return [function(self.policies[policy_id], policy_id) for policy_id in self.trained]

    def get_weights(self) -> dict[str, np.ndarray]:
        """Policy id -> parameters float32 [P]."""
        return {policy_id: policy.get_weights() for policy_id, policy in self.policies.items()}

    def set_weights(self, weights: Weights, version: int) -> None:
        """Takes over parameters."""
        for policy_id, vector in weights.items():
            self.policies[policy_id].set_weights(vector, version)

    def set_global_state(self, weights: Weights, version: int, timesteps: int, filters: Mapping[str, Any]) -> None:
        """Everything that a new round of sampling needs, in one call: weights, progress, filter statistics."""
        self.set_weights(weights, version)
        for policy in self.policies.values():
            policy.on_global_timesteps(timesteps)
        self.set_filters(filters)

    def compute_gradients(self, batch: MultiAgentBatch) -> tuple[dict[str, np.ndarray], dict[str, Stats]]:
        """Policy id -> gradient float32 [P], and statistics."""
        results = {p: self.policies[p].gradients(b) for p, b in batch.policy_batches.items() if b.count}
        return {p: g for p, (g, _) in results.items()}, {p: s for p, (_, s) in results.items()}

    def apply_gradients(self, gradients: Mapping[str, np.ndarray]) -> None:
        """One optimizer step a policy."""
        for policy_id, gradient in gradients.items():
            self.policies[policy_id].apply_gradients(gradient)

    def learn_on_batch(self, batch: MultiAgentBatch) -> dict[str, Stats]:
        """Gradients and optimizer step in one."""
        gradients, stats = self.compute_gradients(batch)
        self.apply_gradients(gradients)
        return stats

    def get_filters(self) -> dict[str, dict[str, Any]]:
        """Policy id -> the observation filter's statistics."""
        return {p: t.filter.get_state() for p, t in self.tracks.items() if t.filter is not None}

    def set_filters(self, filters: Mapping[str, dict[str, Any]]) -> None:
        """Takes over filter statistics."""
        for policy_id, state in filters.items():
            filter_ = self.tracks[policy_id].filter
            if filter_ is not None:
                filter_.set_state(state)

    def set_fragment_length(self, length: int) -> None:
        """Steps T of the next samples."""
        self.config = replace(self.config, fragment_length=length)

    def apply(self, function: Callable[..., T], *args: Any) -> T:
        """`function(self, *args)`: for `PolicyOptimizer.foreach_evaluator`."""
        return function(self, *args)

    # state --------------------

    def save(self) -> dict[str, Any]:
        """Where sampling is: environments (None where they do not offer their state), unfinished episodes, generators.

        Weights and filter statistics are the learner's and the optimizer's to save: see `set_global_state`.
        """
        return {
            "layout": self._layout(),
            "environments": self.world.get_state(),
            "tracks": {p: t.get_state() for p, t in self.tracks.items()},
            "rngs": {p: policy.rng.bit_generator.state for p, policy in self.policies.items()},
            "failures_total": self.failures_total,
        }

    def restore(self, state: dict[str, Any] | None, salt: int) -> int:
        """Goes on from `save`; returns the timesteps of unfinished episodes that had to begin anew.

        Args:
            state: of an evaluator with this index; None or one of other environments begins new episodes.
            salt: makes these episodes differ from those at the run's start.
        """
        if state is None or state["layout"] != self._layout():
            self.begin_anew(salt)
            return 0 if state is None else unfinished_timesteps(state)
        self.failures_total = state["failures_total"]
        for policy_id, rng in state["rngs"].items():
            self.policies[policy_id].rng.bit_generator.state = rng
        if state["environments"] is None:
            self._restart(derive_seed(self.config.seed, self.config.worker_index, salt))
            return unfinished_timesteps(state)
        for policy_id, track in state["tracks"].items():
            self.tracks[policy_id].set_state(track)
        self.world.set_state(state["environments"])
        return 0

    def begin_anew(self, salt: int) -> None:
        """New episodes and new action noise: this evaluator must not play the run's beginning again."""
        for number, policy_id in enumerate(sorted(self.policies)):
            seeds = [self.config.seed, self.config.worker_index, salt, number]
            self.policies[policy_id].rng = np.random.default_rng(seeds)
        self._restart(derive_seed(self.config.seed, self.config.worker_index, salt))

    def _layout(self) -> dict[str, Any]:
        environment = self.config.environment
        return {
            "environments": self.config.num_envs,
            "vectorization": environment.vectorization,
            "max_episode_steps": environment.max_episode_steps,
            "slots": dict(self.world.slots),
        }

    def close(self) -> None:
        """Releases the environments; may be called twice."""
        self.world.close()


class _EvaluatorActor(PolicyEvaluator):
    """What prevents its start is raised by its first call: of a constructor's error Ray keeps the text alone."""

    def __init__(self, config: EvaluatorConfig) -> None:
        self._prevented_by: Exception | None = None
        try:
            super().__init__(config)
        except Exception as error:
            self._prevented_by = error

    def apply(self, function: Callable[..., T], *args: Any) -> T:
        self._require_start()
        return super().apply(function, *args)

    def sample_with_info(self) -> tuple[MultiAgentBatch | PackedBatch, SampleInfo]:
        self._require_start()
        return super().sample_with_info()

    def sample_for_replay(self) -> tuple[ReplaySample, SampleInfo]:
        self._require_start()
        return super().sample_for_replay()

    def gradients_with_info(self) -> tuple[Gradients, SampleInfo]:
        self._require_start()
        return super().gradients_with_info()

    def work_with_info(self) -> tuple[Any, SampleInfo]:
        self._require_start()
        return super().work_with_info()

    def _require_start(self) -> None:
        if self._prevented_by is not None:
            raise self._prevented_by


def set_worker(evaluator: PolicyEvaluator, worker: Callable[[PolicyEvaluator], tuple[Any, SampleInfo]] | None) -> None:
    """Gives an evaluator what `work_with_info` does."""
    evaluator.worker = worker


def others_of(policy_id: str, fragments: Mapping[str, Fragment]) -> dict[str, Fragment]:
    """The other policies' fragments of the same steps: the paper's b*."""
    return {other: fragment for other, fragment in fragments.items() if other != policy_id}


def keeps_frames_once(policy: TorchPolicyGraph) -> bool:
    """Whether a policy's transitions are kept with their images apart."""
    return bool(getattr(policy.config, "replay_frames", False)) and worth_splitting(policy.observation_space)


def unfinished_timesteps(state: Mapping[str, Any]) -> int:
    """Timesteps of the episodes under way in a saved evaluator."""
    return int(sum(np.sum(track["episodes"]["lengths"]) for track in state["tracks"].values()))


def evaluator_for(config: EvaluatorConfig, worker_index: int) -> EvaluatorConfig:
    """The same job's configuration for another worker."""
    return replace(config, worker_index=worker_index)
