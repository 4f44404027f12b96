"""The paper's PolicyGraph: everything an algorithm needs to say about acting and learning.

The loop that uses one:

    state = policy.initial_state(n)
    noise = policy.draw_noise(length, n)
    for t in range(length):
        actions, state, extras = policy.act(observations, state, noise=noise[t])
        ...
    batch = policy.postprocess(fragment, other_fragments)
    gradient, stats = policy.gradients(batch)      # anywhere: on an evaluator, on a learner
    policy.apply_gradients(gradient)
    other.set_weights(policy.get_weights())

Source: RLlib: Abstractions for Distributed Reinforcement Learning (arXiv 1712.09381), section 4.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from rlcore.sample_batch import Fragment, SampleBatch

if TYPE_CHECKING:
    from rlcore.env.base import VectorEnv

Stats = dict[str, float]
State = list[np.ndarray]


class PolicyGraph(ABC):
    """Acting, postprocessing and gradients of one policy.

    Attributes:
        observation_space: Box of one flattened observation.
        action_space: space of one action.
        action_shape: of one action, as `act` gives it.
        action_dtype: of actions.
        version: counts weight updates; stamped on every batch that these weights sample.
        plays_both_seats: both seats of a game are its own in training; how good it is shows in evaluation alone, where
            it plays one seat against another player.
        lookahead: steps after a transition that `postprocess` must see to make it, such as n - 1 for n-step returns.
    """

    observation_space: gym.spaces.Box
    action_space: gym.Space[Any]
    action_shape: tuple[int, ...]
    action_dtype: np.dtype[Any]
    version: int = 0
    plays_both_seats: bool = False
    lookahead: int = 0

    @abstractmethod
    def initial_state(self, slots: int) -> State:
        """Recurrent state of `slots` new episodes, each float32 [slots, H]; empty without recurrence."""

    @abstractmethod
    def draw_noise(self, length: int, slots: int) -> np.ndarray:
        """Random numbers for `length` calls of `act` on `slots` observations: float32 [length, slots, ...]."""

    @abstractmethod
    def act(
        self,
        observations: np.ndarray,
        state: State,
        *,
        noise: np.ndarray | None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, State, dict[str, np.ndarray]]:
        """act(obs, h) -> a, h, y*: actions [N, ...], the next state, and extra outputs [N, ...] by name.

        Args:
            observations: [N, *obs].
            state: as `initial_state` or the last `act` gave it.
            noise: one row of `draw_noise`; None acts deterministically.
            action_mask: bool [N, A], True where an action is allowed.
        """

    @abstractmethod
    def postprocess(self, fragment: Fragment, others: Mapping[str, Fragment] | None = None) -> SampleBatch:
        """postprocess(batch, b*): what learners need, computed where the data is; `others` are the other policies'."""

    @abstractmethod
    def gradients(self, batch: SampleBatch) -> tuple[np.ndarray, Stats]:
        """Gradient of the loss on a batch, float32 [P], and statistics of it."""

    @abstractmethod
    def apply_gradients(self, gradient: np.ndarray) -> None:
        """One optimizer step with a gradient from `gradients`."""

    @abstractmethod
    def get_weights(self) -> np.ndarray:
        """A copy of all parameters, float32 [P]."""

    @abstractmethod
    def set_weights(self, weights: np.ndarray, version: int) -> None:
        """Takes over parameters, float32 [P]."""

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Everything needed to go on exactly: weights, optimizer, schedules, random numbers; arrays and JSON only."""

    @abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""

    def enter(self, env: VectorEnv) -> None:  # noqa: B027 - what does not plan has no use for it
        """Utility u*: told of the environments that it acts in, for policies that look ahead with `env.simulator`."""

    def on_global_timesteps(self, timesteps: int) -> None:  # noqa: B027 - a policy without schedules needs none
        """Utility u*: told how far training is, for schedules."""

    def prepare(self, batch: SampleBatch) -> tuple[SampleBatch, Stats]:
        """Utility u*: last touches to a whole train batch before any pass over it, and statistics of it."""
        return batch, {}

    def after_update(self, stats: Stats) -> None:  # noqa: B027 - a policy without adaptive coefficients needs none
        """Utility u*: told the mean statistics of a finished update, for adaptive coefficients."""
