"""Columnar experience: what evaluators make and learners consume.

Three shapes of the same data, in the order in which they come to be:

* `Fragment`: what one policy saw in one `sample()`, time-major `[T, N, ...]`, still in the environment's order.
* `SampleBatch`: what a policy's `postprocess` made of it: rows `[B, ...]`, or sequences `[T, S, ...]` for recurrent
  policies.
* `MultiAgentBatch`: one `SampleBatch` a policy, and the number of environment steps behind them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

OBSERVATIONS = "observations"
ACTIONS = "actions"
ACTION_MASK = "action_mask"
DIST_INPUTS = "dist_inputs"
BEHAVIOUR_LOGP = "behaviour_logp"
VALUES = "values"
ADVANTAGES = "advantages"
VALUE_TARGETS = "value_targets"
VALID = "valid"
STARTS = "starts"
STATE_PREFIX = "state_in"
REWARDS = "rewards"
NEXT_OBSERVATIONS = "next_observations"
NEXT_ACTION_MASK = "next_action_mask"
DISCOUNTS = "discounts"
WEIGHTS = "weights"
RETURNS = "returns"
FINAL_OBSERVATIONS = "final_observations"
PRIORITIES = "priorities"

DEFAULT_POLICY = "default"


@dataclass
class Fragment:
    """One policy's stretch of experience, time-major, in the environment's own order.

    T is the number of vector steps, N the number of environment slots of this policy.

    Attributes:
        observations: [T + 1, N, *obs]; the last row is what the policy would act on next.
        actions: [T, N, *action].
        rewards: float32 [T, N].
        terminated: bool [T, N]; the episode ended, its value after this step is zero.
        truncated: bool [T, N]; the episode was cut off, its value goes on: `observations[t + 1]` is its true last one.
        valid: bool [T, N]; False where the step was no transition (an autoreset, a failed environment).
        extras: whatever `act` gave beside actions, each [T, N, ...].
        action_mask: bool [T + 1, N, A], or None.
        states: recurrent state at every `state_every`-th step, each [ceil(T / state_every), N, H].
        state_every: distance in steps between two kept states.
        last_state: recurrent state after the last step, each [N, H]; bootstraps values.
        first_starts: bool [N]; the first row is the first of an episode.
        policy_version: version of the weights that acted.
        raw_observations: [T + 1, N, *obs] before the observation filter, None without one.
        paid_rewards: float32 [T, N] before reward clipping, None where `rewards` are what the environment paid.
        held_back: the last so many steps are here for those before them to look ahead to, and become transitions of the
            next fragment, which begins with them; see PolicyGraph.lookahead.
        agents: "rewards" float32, "acted" and "goes_on" bool, each [T, N, A], where A agents act as one; else empty.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    extras: dict[str, np.ndarray] = field(default_factory=dict)
    action_mask: np.ndarray | None = None
    states: list[np.ndarray] = field(default_factory=list)
    state_every: int = 0
    last_state: list[np.ndarray] = field(default_factory=list)
    first_starts: np.ndarray | None = None
    policy_version: int = 0
    raw_observations: np.ndarray | None = None
    paid_rewards: np.ndarray | None = None
    held_back: int = 0
    agents: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """T, in vector steps."""
        return self.rewards.shape[0]

    @property
    def slots(self) -> int:
        """N, environment slots."""
        return self.rewards.shape[1]

    @property
    def done(self) -> np.ndarray:
        """bool [T, N]: the row ends an episode, in either way."""
        return self.terminated | self.truncated

    @property
    def ready(self) -> np.ndarray:
        """bool [T, N]: the row is a transition, and whatever comes after it that it needs is here."""
        ready = self.valid.copy()
        ready[self.length - self.held_back :] = False
        return ready

    @property
    def starts(self) -> np.ndarray:
        """bool [T, N]: this row's observation is the first of an episode, so recurrent state is zero before it."""
        starts = np.empty(self.rewards.shape, dtype=bool)
        starts[0] = False if self.first_starts is None else self.first_starts
        starts[1:] = ~self.valid[:-1]
        return starts


class SampleBatch(Mapping[str, np.ndarray]):
    """Equally long columns of experience of one policy.

    Rows: every column is `[B, ...]`. Sequences (`time_major=True`): every column is `[T, S, ...]`, except those whose
    name starts with `state_in`, which are `[S, ...]`; a bool column `valid` [T, S] marks the real timesteps.
    float64 columns become float32.

    Args:
        columns: name -> array.
        policy_version: version of the weights that sampled it (the oldest one after `concat`).
        time_major: True for sequences.

    Raises:
        ValueError: columns of different length; both lengths are named.
    """

    __slots__ = ("_columns", "policy_version", "time_major")

    def __init__(self, columns: Mapping[str, np.ndarray], *, policy_version: int = 0, time_major: bool = False) -> None:
        self._columns = {name: _single_precision(column) for name, column in columns.items()}
        self.policy_version = policy_version
        self.time_major = time_major
        sizes = {name: column.shape[self.batch_axis(name)] for name, column in self._columns.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"columns of different length: {sizes}; every column needs one entry a timestep")

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {column.dtype}{list(column.shape)}" for name, column in self._columns.items())
        return f"SampleBatch(count={self.count}, version={self.policy_version}, {shapes})"

    def batch_axis(self, name: str) -> int:
        """The axis along which column `name` is cut into minibatches."""
        return 1 if self.time_major and not name.startswith(STATE_PREFIX) else 0

    @property
    def size(self) -> int:
        """Rows B, or sequences S: the length that minibatches are cut from."""
        for name, column in self._columns.items():
            return column.shape[self.batch_axis(name)]
        return 0

    @property
    def count(self) -> int:
        """Timesteps: the rows, or the valid entries of the sequences."""
        return int(np.count_nonzero(self._columns[VALID])) if self.time_major else self.size

    @property
    def size_bytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in self._columns.values())

    def take(self, indices: np.ndarray | slice) -> SampleBatch:
        """The rows (or sequences) at `indices`; a slice gives views, an index array gives copies."""
        return self._like({n: c[:, indices] if self.batch_axis(n) else c[indices] for n, c in self._columns.items()})

    def shuffle(self, rng: np.random.Generator) -> SampleBatch:
        """A copy in random order."""
        return self.take(rng.permutation(self.size))

    def split(self, parts: int) -> list[SampleBatch]:
        """`parts` views of nearly equal size, in order; together they are the whole."""
        edges = np.linspace(0, self.size, parts + 1).astype(int)
        return [self.take(slice(a, b)) for a, b in itertools.pairwise(edges)]

    def copy(self) -> SampleBatch:
        """A deep copy."""
        return self._like({name: column.copy() for name, column in self._columns.items()})

    def with_columns(self, **columns: np.ndarray) -> SampleBatch:
        """The same batch with columns added or replaced."""
        return self._like({**self._columns, **columns})

    def without(self, *names: str) -> SampleBatch:
        """The same batch less some columns."""
        return self._like({n: c for n, c in self._columns.items() if n not in names})

    def rows(self) -> Iterator[dict[str, np.ndarray]]:
        """One dict a row: for people and tests, not for training."""
        for index in range(self.size):
            yield {n: c[:, index] if self.batch_axis(n) else c[index] for n, c in self._columns.items()}

    @staticmethod
    def concat(batches: Sequence[SampleBatch]) -> SampleBatch:
        """Joins batches in the given order; the result carries the oldest policy version.

        Raises:
            ValueError: no batches, or batches with different columns or layouts.
        """
        if not batches:
            raise ValueError("cannot concatenate no batches: at least one is needed")
        first = batches[0]
        if len(batches) == 1:
            return first
        for other in batches[1:]:
            if set(other) != set(first) or other.time_major != first.time_major:
                raise ValueError(f"cannot concatenate batches with columns {sorted(first)} and {sorted(other)}")
        columns = {n: np.concatenate([b[n] for b in batches], axis=first.batch_axis(n)) for n in first}
        version = min(b.policy_version for b in batches)
        return SampleBatch(columns, policy_version=version, time_major=first.time_major)

    def _like(self, columns: Mapping[str, np.ndarray]) -> SampleBatch:
        return SampleBatch(columns, policy_version=self.policy_version, time_major=self.time_major)


@dataclass
class MultiAgentBatch:
    """One `SampleBatch` a policy.

    Attributes:
        policy_batches: policy id -> its batch.
        count: environment steps (not agent steps) behind the batches.
    """

    policy_batches: dict[str, SampleBatch]
    count: int

    @property
    def agent_steps(self) -> int:
        """Timesteps summed over policies."""
        return sum(batch.count for batch in self.policy_batches.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(batch.size_bytes for batch in self.policy_batches.values())

    @property
    def policy_version(self) -> int:
        """The oldest version in it."""
        return min((batch.policy_version for batch in self.policy_batches.values()), default=0)

    def copy(self) -> MultiAgentBatch:
        """A deep copy."""
        return MultiAgentBatch({p: b.copy() for p, b in self.policy_batches.items()}, self.count)

    @staticmethod
    def wrap_as_needed(batch: SampleBatch | MultiAgentBatch) -> MultiAgentBatch:
        """A single policy's batch as the batch of `DEFAULT_POLICY`; a multi-agent batch as it is."""
        if isinstance(batch, MultiAgentBatch):
            return batch
        return MultiAgentBatch({DEFAULT_POLICY: batch}, batch.count)

    @staticmethod
    def concat(batches: Sequence[MultiAgentBatch]) -> MultiAgentBatch:
        """Joins batches policy by policy, in the given order."""
        policies = dict.fromkeys(policy for batch in batches for policy in batch.policy_batches)
        joined = {
            policy: SampleBatch.concat([b.policy_batches[policy] for b in batches if policy in b.policy_batches])
            for policy in policies
        }
        return MultiAgentBatch(joined, sum(batch.count for batch in batches))


def _single_precision(column: np.ndarray) -> np.ndarray:
    column = np.asarray(column)
    return column.astype(np.float32) if column.dtype == np.float64 else column
