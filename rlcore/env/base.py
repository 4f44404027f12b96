"""What sampling sees of an environment: arrays over N sub-environments, one call a timestep.

    observations, mask = env.reset(seed=0)
    while sampling:
        step = env.step(policy(observations, mask))
        # step.valid is False where the sub-environment was only reset: no transition to learn from
        observations, mask = step.observations, step.action_mask

Autoreset is gymnasium's NEXT_STEP in every backend: the row on which an episode ends carries the episode's true final
observation (so that a truncation can be bootstrapped); the following step ignores that row's action, resets the
sub-environment, and returns the new episode's first observation with reward 0 and `valid` False.
"""

from __future__ import annotations

import os
import traceback
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import gymnasium
import numpy as np

if TYPE_CHECKING:
    from rlcore.env.games.vector_env import GameVectorEnv


class AgentRows(NamedTuple):
    """What one joint step gave each of A agents."""

    rewards: np.ndarray  # float32 [N, A], 0 where the agent was not there
    acted: np.ndarray  # bool [N, A]: the agent took part in the step
    goes_on: np.ndarray  # bool [N, A]: it has a value at `Step.observations`: it is there, or was only cut off


class Step(NamedTuple):
    """Result of one timestep of N sub-environments.

    Every array may be a buffer that the next `step()` writes again: copy what you keep. `terminated` and `truncated`
    may both be True on one row (the episode ended on its last allowed step): termination wins, do not bootstrap.
    """

    observations: np.ndarray  # [N, *obs], dtype of VectorEnv.observation_space
    rewards: np.ndarray  # float32 [N]
    terminated: np.ndarray  # bool [N]: the episode reached an end of its own; its value there is 0
    truncated: np.ndarray  # bool [N]: cut off (time limit, failure); bootstrap from the final observation
    valid: np.ndarray  # bool [N]: False = this row was an autoreset or a failure, not a transition
    action_mask: np.ndarray | None  # bool [N, A]: actions allowed at `observations`
    agents: AgentRows | None = None  # of a joint environment, whose agents act as one


Phase = Literal["create", "reset", "step", "worker"]


@dataclass(frozen=True, slots=True)
class EnvFailure:
    """An exception of one sub-environment (or the loss of the worker that held it); the run goes on without it.

    `seed` is the seed with which the sub-environment was last created; `action` is the text of the action that
    raised, None outside `step`.
    """

    env_index: int
    seed: int
    phase: Phase
    action: str | None
    error: str

    def __str__(self) -> str:
        with_action = "" if self.action is None else f" with action {self.action}"
        return f"sub-environment {self.env_index} (seed {self.seed}) failed in {self.phase}{with_action}: {self.error}"


class VectorEnv(ABC):
    """N copies of one environment behind flat arrays.

    Attributes:
        num_envs: N.
        observation_space: of one sub-environment, after flattening: a Box, float32 `[D]`, or uint8/float32 `[C, H, W]`.
        action_space: of one sub-environment, as the environment declares it; `rlcore.env.actions` documents the layout
            of the action array that `step` takes.
        has_action_mask: masks come with the observations. A mask in `info` is only discovered by the first `reset`.
        raw_rewards: float32 [N], the last step's rewards before clipping, for episode returns; None where the rewards
            are what the environment paid.
        failures: sub-environment failures not yet drained, oldest first.
    """

    num_envs: int
    observation_space: gymnasium.spaces.Box
    action_space: gymnasium.Space
    has_action_mask: bool = False
    raw_rewards: np.ndarray | None = None

    def __init__(self) -> None:
        self.failures: list[EnvFailure] = []

    @abstractmethod
    def reset(self, seed: int | None) -> tuple[np.ndarray, np.ndarray | None]:
        """Begin new episodes everywhere; sub-environment i is seeded from (seed, worker index, i).

        None goes on with the random generators as they are (the first time: with a seed of the system's), so that
        everything after `reset(seed)` can be repeated, later resets included.

        Returns:
            Observations `[N, *obs]` and the action mask, bool `[N, A]` or None.
        """

    @abstractmethod
    def step(self, actions: np.ndarray) -> Step:
        """Advance every sub-environment by one timestep, or reset it where its episode ended on the last step.

        Args:
            actions: as the policy lays them out: int64 [N] (Discrete), int64 [N, K] (MultiDiscrete), int8 [N, K]
                (MultiBinary), float32 [N, D] (Box), float32 [N, sum of columns] (Dict, Tuple).
        """

    def get_state(self) -> dict[str, Any] | None:
        """Everything a bit-equal continuation needs (arrays, bytes, numbers, text, nested), None if not on offer."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from what `get_state` returned, in an environment made alike; no `reset` is needed before."""
        raise NotImplementedError(f"{type(self).__name__} does not offer its state")

    def drain_failures(self) -> list[EnvFailure]:
        """The failures since the last call."""
        drained, self.failures[:] = list(self.failures), []
        return drained

    @property
    def simulator(self) -> GameVectorEnv | None:
        """Positions and rules that a planning policy looks ahead with; None where the environment offers none."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Release processes, memory and windows; may be called twice."""


def fresh_seed() -> int:
    """A 63-bit seed from the operating system, for runs that name none: a failure can then still be reproduced."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> np.uint64(1))


def derive_seed(seed: int, *path: int) -> int:
    """A seed in [0, 2^31) that depends on all its arguments, unlike `seed + i`, whose ranges overlap for neighbours."""
    return int(np.random.SeedSequence([seed, *path]).generate_state(1)[0] & 0x7FFF_FFFF)


def describe_error(error: BaseException) -> str:
    """The exception and where it was raised: `ValueError: bad action (cartpole.py:141 in step)`."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    last = frames[-1]
    return f"{text} ({os.path.basename(last.filename)}:{last.lineno} in {last.name})"


def describe_action(action: object) -> str:
    """An action's values on one short line."""
    text = " ".join(str(_plain(action)).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def _plain(action: Any) -> Any:
    if isinstance(action, dict):
        return {key: _plain(value) for key, value in action.items()}
    if isinstance(action, tuple):
        return tuple(_plain(value) for value in action)
    return action.tolist() if isinstance(action, np.ndarray | np.generic) else action
