"""Evaluation of the deterministic policy beside training, with an evaluator of its own.

With Ray it is an actor of low priority and training never waits for it; without Ray it is done on the spot.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlcore.errors import RlcoreError
from rlcore.evaluation.config import EvaluatorConfig
from rlcore.evaluation.episodes import Episode
from rlcore.evaluation.evaluator_set import GlobalState, unwrap
from rlcore.evaluation.policy_evaluator import PolicyEvaluator

# Above every training evaluator's, so that its seeds are nobody else's.
WORKER_INDEX = 1_000_000
LARGEST_WIDTH = 16

logger = logging.getLogger("rlcore.driver")


@dataclass(frozen=True)
class EvaluationResult:
    """Episodes of the deterministic policy.

    Attributes:
        timesteps: of training, when the weights were taken.
        episode_returns: one an episode, undiscounted.
        episode_lengths: timesteps of each.
        games: they were games against another player.
    """

    timesteps: int
    episode_returns: tuple[float, ...]
    episode_lengths: tuple[int, ...]
    games: bool = False

    @classmethod
    def of(cls, episodes: Sequence[Episode], timesteps: int, *, games: bool = False) -> EvaluationResult:
        """The result of having played these episodes."""
        returns, lengths = tuple(e.episode_return for e in episodes), tuple(e.length for e in episodes)
        return cls(timesteps, returns, lengths, games)

    @property
    def mean(self) -> float:
        """Mean episode reward."""
        return float(np.mean(self.episode_returns))

    def to_dict(self) -> dict[str, Any]:
        """For metrics."""
        return {
            "timesteps": self.timesteps,
            "episodes": len(self.episode_returns),
            "episode_reward_mean": self.mean,
            "episode_reward_min": min(self.episode_returns),
            "episode_reward_max": max(self.episode_returns),
            "episode_length_mean": float(np.mean(self.episode_lengths)),
            **(self._rates() if self.games else {}),
        }

    def _rates(self) -> dict[str, float]:
        """Shares of the games that were won, drawn and lost."""
        signs = np.sign(self.episode_returns)
        return {f"{name}_rate": float(np.mean(signs == s)) for name, s in (("win", 1), ("draw", 0), ("loss", -1))}


class EvaluationRunner:
    """Starts evaluations and hands out their results.

    Args:
        config: the job's evaluators'; environments and policies are the same, seeds are not.
        episodes: of one evaluation.
        remote: as a Ray actor.
        place: Ray's options of that actor, None where there is no place for it at present.
    """

    def __init__(
        self,
        config: EvaluatorConfig,
        episodes: int,
        *,
        remote: bool,
        place: Callable[[], Mapping[str, Any] | None] = lambda: {"num_cpus": 0},
    ) -> None:
        self._config = replace(
            config.judged,
            num_envs=min(episodes, LARGEST_WIDTH),
            fragment_length=min(config.fragment_length, 200),
            worker_index=WORKER_INDEX,
            torch_threads=1 if remote else config.torch_threads,
        )
        self._episodes = episodes
        self._remote = remote
        self._place = place
        self._evaluator: Any = None
        self._pending: tuple[Any, int] | None = None

    @property
    def busy(self) -> bool:
        """Whether an evaluation is under way."""
        return self._pending is not None

    def start(self, state: GlobalState) -> None:
        """Begins an evaluation of these weights; one that is under way goes on, and this one is left out."""
        if self.busy:
            return
        weights = {**state.weights, **state.frozen}
        arguments = (weights, state.version, state.timesteps, dict(state.filters), self._episodes)
        if self._remote:
            actor = self._evaluator or self._start_actor()
            if actor is None:
                return
            self._pending = (actor.apply.remote(_evaluate, *arguments), state.timesteps)
        else:
            try:
                self._evaluator = self._evaluator or PolicyEvaluator(self._config)
                self._pending = (_evaluate(self._evaluator, *arguments), state.timesteps)
            except RlcoreError as error:
                logger.warning("evaluation failed at %d timesteps: %s", state.timesteps, error)
                self.stop()

    def poll(self, *, wait_s: float = 0.0) -> EvaluationResult | None:
        """The result of the evaluation under way, if it is there (within `wait_s` seconds).

        An evaluation that fails is no reason to end training: it is logged, and the next one starts with a new actor.
        """
        if self._pending is None:
            return None
        value, timesteps = self._pending
        if self._remote:
            import ray
            from ray.exceptions import RayError

            ready, _ = ray.wait([value], timeout=wait_s)
            if not ready:
                return None
            try:
                value = ray.get(value)
            except RayError as error:
                logger.warning("evaluation failed at %d timesteps: %s", timesteps, unwrap(error))
                self.stop()
                return None
        self._pending = None
        return EvaluationResult.of(value, timesteps, games=self._config.seats is not None)

    def stop(self) -> None:
        """Ends the evaluator."""
        if self._evaluator is None:
            return
        if self._remote:
            import ray

            ray.kill(self._evaluator)
        else:
            self._evaluator.close()
        self._evaluator = None
        self._pending = None

    def _start_actor(self) -> Any:
        options = self._place()
        if options is None:
            return None
        self._evaluator = PolicyEvaluator.as_remote(**options).remote(self._config)
        self._evaluator.apply.remote(_lower_priority)
        return self._evaluator


def _evaluate(
    evaluator: PolicyEvaluator, weights: Any, version: int, timesteps: int, filters: Any, episodes: int
) -> list[Episode]:
    evaluator.set_global_state(weights, version, timesteps, filters)
    # Every evaluation plays the same episodes, so that two of them differ by the policy alone.
    return evaluator.evaluate(episodes, seed=evaluator.config.seed + WORKER_INDEX)


def _lower_priority(_evaluator: PolicyEvaluator) -> None:
    os.nice(10)
