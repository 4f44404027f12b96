"""One policy's side of sampling: its buffers, its recurrent state, its observation filter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rlcore.env.base import Step
from rlcore.env.normalize import MeanStdFilter
from rlcore.evaluation.episodes import Episode, EpisodeCounter
from rlcore.evaluation.fragments import join_fragments, last_steps
from rlcore.evaluation.own_time import OwnTime
from rlcore.policy.torch_policy_graph import TorchPolicyGraph
from rlcore.sample_batch import Fragment


class Track:
    """Acts for one policy and writes what happens into arrays [T, N, ...], allocated once a fragment.

    Args:
        policy: who acts.
        slots: N.
        filter_observations: normalise observations by their running mean and deviation.
        sequence_length: distance in steps between kept recurrent states.
        turn_based: agents move one after the other; see OwnTime.
    """

    def __init__(
        self,
        policy: TorchPolicyGraph,
        slots: int,
        *,
        filter_observations: bool,
        sequence_length: int,
        turn_based: bool = False,
    ) -> None:
        self.policy = policy
        self.slots = slots
        self.sequence_length = sequence_length
        shape = policy.observation_space.shape
        self.filter = MeanStdFilter(shape) if filter_observations else None
        self.counter = EpisodeCounter(slots)
        self.own_time = OwnTime(slots) if turn_based else None
        self.state = policy.initial_state(slots)
        self.fresh = np.ones(slots, dtype=bool)
        self.held_back: Fragment | None = None
        self._observation_dtype = np.float32 if self.filter else policy.observation_space.dtype
        self._shape = shape

    def restart(self, observations: np.ndarray, mask: np.ndarray | None) -> None:
        """All slots begin new episodes with these observations."""
        self.current = observations.copy()
        self.current_mask = None if mask is None else mask.copy()
        self.state = self.policy.initial_state(self.slots)
        self.fresh = np.ones(self.slots, dtype=bool)
        self.held_back = None
        if self.own_time is not None:
            self.own_time.forget()

    def begin(self, length: int, *, explore: bool) -> None:
        """Makes room for a fragment of `length` steps."""
        t, n = length, self.slots
        self.noise = self.policy.draw_noise(t, n) if explore else None
        self.observations = np.empty((t + 1, n, *self._shape), self._observation_dtype)
        self.raw = np.empty((t + 1, n, *self._shape), np.float32) if self.filter else None
        self.actions = np.empty((t, n, *self.policy.action_shape), self.policy.action_dtype)
        self.rewards = np.empty((t, n), np.float32)
        self.paid: np.ndarray | None = None
        self.terminated = np.empty((t, n), bool)
        self.truncated = np.empty((t, n), bool)
        self.valid = np.empty((t, n), bool)
        self.extras: dict[str, np.ndarray] = {}
        self.masks = None if self.current_mask is None else np.empty((t + 1, *self.current_mask.shape), bool)
        self.agents: dict[str, np.ndarray] = {}
        self.kept_states: list[list[np.ndarray]] = []
        self.starts = self.fresh.copy()
        self._observe(0, self.current, self.current_mask)

    def act(self, t: int) -> np.ndarray:
        """Actions [N, ...] for step t."""
        if self.state and t % self.sequence_length == 0:
            self.kept_states.append([part.copy() for part in self.state])
        actions, self.state, extras = self.policy.act(
            self.observations[t],
            self.state,
            noise=None if self.noise is None else self.noise[t],
            action_mask=None if self.masks is None else self.masks[t],
        )
        self.actions[t] = actions
        if t == 0:
            length = len(self.rewards)
            self.extras = {name: np.empty((length, *value.shape), value.dtype) for name, value in extras.items()}
        for name, value in extras.items():
            self.extras[name][t] = value
        return self.actions[t]

    def record(self, t: int, step: Step, paid: np.ndarray | None) -> None:
        """Writes down what step t brought; `paid` are the rewards before clipping, where they differ."""
        self.rewards[t] = step.rewards
        self.terminated[t] = step.terminated
        self.truncated[t] = step.truncated
        self.valid[t] = step.valid
        if paid is not None:
            if self.paid is None:
                self.paid = np.empty_like(self.rewards)
            self.paid[t] = paid
        if step.agents is not None:
            for name, values in step.agents._asdict().items():
                if t == 0:
                    self.agents[name] = np.empty((len(self.rewards), *values.shape), values.dtype)
                self.agents[name][t] = values
        self._observe(t + 1, step.observations, step.action_mask)
        if self.state and not step.valid.all():
            for part in self.state:
                part[~step.valid] = 0.0

    def finish(self) -> Fragment:
        """The fragment, as views of this track's arrays, which are made anew for the next one."""
        source = self.observations if self.raw is None else self.raw
        self.current = source[-1].copy()
        self.current_mask = None if self.masks is None else self.masks[-1].copy()
        self.fresh = ~self.valid[-1]
        return Fragment(
            observations=self.observations,
            actions=self.actions,
            rewards=self.rewards,
            terminated=self.terminated,
            truncated=self.truncated,
            valid=self.valid,
            extras=self.extras,
            action_mask=self.masks,
            states=[np.stack(parts) for parts in zip(*self.kept_states, strict=True)],
            state_every=self.sequence_length,
            last_state=[part.copy() for part in self.state],
            first_starts=self.starts,
            policy_version=self.policy.version,
            raw_observations=self.raw,
            paid_rewards=self.paid,
            agents=self.agents,
        )

    def hold_back(self, fragment: Fragment) -> Fragment:
        """This fragment after the steps that the last one held back, with the last `policy.lookahead` steps held back.

        So transitions that look ahead are made across the borders of fragments, each once.
        """
        steps = self.policy.lookahead
        # In an agent's own time a fragment's first row need not follow the last one's: returns end at the border.
        if not steps or self.own_time is not None:
            return fragment
        joined = fragment if self.held_back is None else join_fragments([self.held_back, fragment])
        # Steps of a fragment shorter than `lookahead` count as made by the policy of the one after it.
        self.held_back = replace(last_steps(joined, steps), policy_version=fragment.policy_version)
        return replace(joined, held_back=self.held_back.length)

    def transitions(self, fragment: Fragment) -> Fragment:
        """The fragment as its policy sees it: in a turn-based environment each agent in its own time."""
        return fragment if self.own_time is None else self.own_time.take(fragment)

    def absorb(self, fragment: Fragment, *, learn_filter: bool) -> list[Episode]:
        """Takes a fragment into the filter's statistics and the episode counts; returns the episodes that ended."""
        if learn_filter and self.filter is not None and fragment.raw_observations is not None:
            self.filter.observe(fragment.raw_observations[:-1], fragment.valid)
        rewards = fragment.rewards if fragment.paid_rewards is None else fragment.paid_rewards
        return self.counter.update(rewards, fragment.valid, fragment.done)

    def get_state(self) -> dict[str, Any]:
        """What sampling needs to go on where it is, the environment and the policy aside."""
        return {
            "observations": self.current,
            "action_mask": self.current_mask,
            "recurrent": list(self.state),
            "fresh": self.fresh,
            "episodes": self.counter.get_state(),
            "held_back": None if self.held_back is None else dict(vars(self.held_back)),
            **({} if self.own_time is None else {"own_time": self.own_time.get_state()}),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self.current = np.array(state["observations"])
        self.current_mask = None if state["action_mask"] is None else np.array(state["action_mask"])
        self.state = [np.array(part) for part in state["recurrent"]]
        self.fresh = np.array(state["fresh"])
        self.counter.set_state(state["episodes"])
        held_back = state.get("held_back")
        self.held_back = None if held_back is None else Fragment(**held_back)
        if self.own_time is not None:
            self.own_time.set_state(state["own_time"])

    def _observe(self, row: int, observations: np.ndarray, mask: np.ndarray | None) -> None:
        if self.raw is None or self.filter is None:
            self.observations[row] = observations
        else:
            self.raw[row] = observations
            self.observations[row] = self.filter(self.raw[row])
        if self.masks is not None:
            self.masks[row] = mask
