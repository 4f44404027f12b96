"""N copies of an environment with several agents, presented policy by policy.

The environment is parallel in PettingZoo's sense, recognized by what it offers: `possible_agents`,
`observation_space(agent)`, `action_space(agent)`, `reset(seed=..., options=...)` -> (observations, infos), and
`step(actions)` -> (observations, rewards, terminations, truncations, infos), all dicts by agent; `agents` names those
still acting. Or it is turn-based: see `turns`. PettingZoo itself is not needed.

Each policy sees fixed slots, environment by environment, in each the policy's agents in their order. A slot is valid
where its agent took part in the step. After an agent's own end its slot rests (invalid, last observation repeated)
until all agents of its environment are gone; the step after that resets the environment, and puts the first
observations of the new episode into the slots, invalid as well: NEXT_STEP autoreset, as everywhere.

In a turn-based environment a step is one agent's move: its slot alone is valid. Rewards come in the step in which they
are known: before the agent's next turn, or at its end. `rlcore.evaluation.own_time` makes transitions of that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rlcore.env.base import EnvFailure, Phase, Step, derive_seed, describe_action, describe_error, fresh_seed
from rlcore.env.pettingzoo_ids import multi_agent_maker
from rlcore.env.policy_slots import PolicySlots
from rlcore.env.state import offers_state
from rlcore.env.turns import ProtocolError, Turn, TurnBasedEnv, checked_reward, is_turn_based
from rlcore.errors import EnvironmentFailure, UnsupportedError

if TYPE_CHECKING:
    from rlcore.api import EnvironmentSpec

_INTERFACE = ("possible_agents", "observation_space", "action_space", "reset", "step")


@dataclass(slots=True)
class _Member:
    """One agent of one environment, and where its policy keeps it."""

    agent: str
    policy: PolicySlots
    slot: int


class MultiAgentVectorEnv:
    """Steps N multi-agent environments; actions in and results out are arrays by policy.

    Args:
        make: returns one environment; called again for each that raised.
        num_envs: N.
        mapping: agent -> policy id.
        max_episode_steps: truncates all agents of an environment after this many of its steps.
        worker_index: mixed into the seeds, so that evaluators given one seed still see different episodes.
        seats: policies whose agents, all with equal spaces, change places at random in each episode.

    Attributes:
        policies: slots by policy id, in the order in which agents first name them.
        turn_based: one agent moves in each step.
        pending: bool [N], environments whose next step resets them.
        env_steps: environments that really stepped in the last `step` (the others were reset, or failed).
        failures: as in VectorEnv; env_index is the environment's.

    Raises:
        EnvironmentFailure: the environment offers neither interface.
        UnsupportedError: agents of one policy differ in their spaces, or a space cannot be flattened.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        num_envs: int,
        mapping: Callable[[str], str],
        *,
        max_episode_steps: int | None = None,
        worker_index: int = 0,
        seats: Sequence[str] = (),
    ) -> None:
        self.num_envs = num_envs
        self.failures: list[EnvFailure] = []
        self.env_steps = 0
        self._make, self._limit, self._worker_index = make, max_episode_steps, worker_index
        self._envs = [_checked(make()) for _ in range(num_envs)]
        self.turn_based = isinstance(self._envs[0], TurnBasedEnv)
        agents = [str(agent) for agent in self._envs[0].possible_agents]
        by_policy: dict[str, list[str]] = {}
        for agent in agents:
            by_policy.setdefault(mapping(agent), []).append(agent)
        self.policies = {
            policy_id: PolicySlots(policy_id, members, self._envs[0], num_envs)
            for policy_id, members in by_policy.items()
        }
        self._members = [
            [
                _Member(agent, policy, index * len(policy.agents) + position)
                for policy in self.policies.values()
                for position, agent in enumerate(policy.agents)
            ]
            for index in range(num_envs)
        ]
        self._seats = [_seats(members, seats, self.policies) for members in self._members]
        self._episodes = [0] * num_envs
        self._elapsed = [0] * num_envs
        self.pending = np.ones(num_envs, np.bool_)
        self._unseeded = [True] * num_envs
        self._generations = [0] * num_envs
        self._seed = 0
        self._begun = False

    @classmethod
    def make(
        cls,
        spec: EnvironmentSpec,
        num_envs: int,
        mapping: Callable[[str], str],
        *,
        worker_index: int = 0,
        seats: Sequence[str] = (),
    ) -> MultiAgentVectorEnv:
        """N copies of the manifest's environment, whose id is a factory or a PettingZoo id.

        Raises:
            EnvironmentFailure: neither, it raised, or what it returns is not a multi-agent environment.
            UnsupportedError: agents of one policy differ in their spaces, or a space cannot be flattened; or wrappers,
                or a vectorization, that several agents do not have.
        """
        if spec.wrappers != "none":
            raise UnsupportedError(
                f"environment.wrappers: {spec.wrappers} does not fit an environment with several agents",
                hint="leave wrappers out, and let a factory add its own",
            )
        if spec.vectorization not in ("auto", "sync"):
            raise UnsupportedError(
                f"environment.vectorization: {spec.vectorization} does not fit an environment with several agents",
                hint="leave vectorization out: they step in a loop",
            )
        make = multi_agent_maker(spec.id, spec.kwargs)
        limit = spec.max_episode_steps
        return cls(make, num_envs, mapping, max_episode_steps=limit, worker_index=worker_index, seats=seats)

    @property
    def spaces(self) -> dict[str, tuple[gymnasium.spaces.Box, gymnasium.Space]]:
        """Flattened observation space and action space of one slot, by policy id."""
        return {key: (slots.observation_space, slots.action_space) for key, slots in self.policies.items()}

    @property
    def num_slots(self) -> dict[str, int]:
        """N_p, by policy id."""
        return {key: slots.num_slots for key, slots in self.policies.items()}

    @property
    def env_index(self) -> dict[str, np.ndarray]:
        """The environment of each slot, int64 [N_p], by policy id."""
        return {key: slots.env_index for key, slots in self.policies.items()}

    def reset(self, seed: int | None) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
        """Begin new episodes everywhere, as VectorEnv.reset: observations `[N_p, *obs]` and masks, by policy id.

        Slots of agents that are not there at the start hold zeros; their next rows are invalid.
        """
        if seed is not None or not self._begun:
            self._seed, self._begun = fresh_seed() if seed is None else seed, True
            self._generations = [0] * self.num_envs
            self._episodes = [0] * self.num_envs
            self._unseeded = [True] * self.num_envs
        for index in range(self.num_envs):
            self._reset_env(index)
        return {key: (slots.buffers.observations, slots.mask()) for key, slots in self.policies.items()}

    def step(self, actions: dict[str, np.ndarray]) -> dict[str, Step]:
        """Advance every environment by one step, or reset it where all its agents were gone.

        Args:
            actions: by policy id, `[N_p, ...]` in the layout of `rlcore.env.actions`; those of resting slots are
                ignored.
        """
        rows = {id(slots): slots.actions.rows(actions[key]) for key, slots in self.policies.items()}
        self.env_steps = 0
        for index in range(self.num_envs):
            if self.pending[index]:
                self._reset_env(index)
                continue
            acting = [member for member in self._members[index] if member.policy.active[member.slot]]
            chosen = {member.agent: rows[id(member.policy)][member.slot] for member in acting}
            try:
                env = self._envs[index]
                if isinstance(env, TurnBasedEnv):
                    self._record_turn(index, env, env.step(*chosen.values()))
                else:
                    self._record_step(index, env.step(chosen))
                self.env_steps += 1
            except Exception as error:
                self._fail(index, "step", error, chosen)
        return {key: slots.step() for key, slots in self.policies.items()}

    def get_state(self) -> dict[str, Any] | None:
        """As VectorEnv.get_state; None unless the environment defines get_state() and set_state(state) itself."""
        if not all(env.offers_state if isinstance(env, TurnBasedEnv) else offers_state(env) for env in self._envs):
            return None
        slots = {
            key: {
                "active": policy.active.copy(),
                "observations": policy.buffers.observations.copy(),
                "mask": policy.buffers.mask.copy(),
                "has_action_mask": policy.has_action_mask,
            }
            for key, policy in self.policies.items()
        }
        return {
            # One that will be seeded by its next reset has nothing to save.
            "envs": [None if new else env.get_state() for env, new in zip(self._envs, self._unseeded, strict=True)],
            "unseeded": list(self._unseeded),
            "slots": slots,
            "elapsed": list(self._elapsed),
            "episodes": list(self._episodes),
            "pending": self.pending.tolist(),
            "generations": list(self._generations),
            "seed": self._seed,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state` in an environment made alike."""
        for env, env_state in zip(self._envs, state["envs"], strict=True):
            if env_state is not None:
                env.set_state(env_state)
        for key, slots in state["slots"].items():
            policy = self.policies[key]
            policy.active[:] = slots["active"]
            policy.buffers.observations[...] = slots["observations"]
            policy.buffers.mask[...] = slots["mask"]
            policy.has_action_mask = slots["has_action_mask"]
        self._elapsed, self.pending[:] = list(state["elapsed"]), state["pending"]
        self._generations, self._seed = list(state["generations"]), state["seed"]
        self._unseeded, self._begun = list(state["unseeded"]), True
        self._episodes = list(state["episodes"])
        for index in range(self.num_envs):
            self._take_seats(index)

    @property
    def state_size(self) -> int:
        """Width of the environment's global `state()`, 0 where it declares no `state_space` of one dimension."""
        shape = getattr(getattr(self._envs[0], "state_space", None), "shape", None)
        return int(shape[0]) if shape is not None and len(shape) == 1 else 0

    def states(self) -> np.ndarray:
        """Global states float32 [N, state_size], as the environments are now; zeros of one that was just replaced.

        Raises:
            EnvironmentFailure: `state()` raised, or gave something else than its `state_space` says.
        """
        states = np.zeros((self.num_envs, self.state_size), np.float32)
        for index, env in enumerate(self._envs):
            if self._unseeded[index]:
                continue
            try:
                state = np.asarray(env.state(), np.float32)
                if state.shape != states[index].shape:
                    raise ProtocolError(f"it gave shape {list(state.shape)}, and state_space has [{self.state_size}]")
            except Exception as error:
                raise EnvironmentFailure(
                    f"state() of environment {index}: {describe_error(error)}",
                    hint="mend state() or state_space, or leave state_space out: observations side by side then serve",
                    permanent=True,
                ) from error
            states[index] = state
        return states

    def drain_failures(self) -> list[EnvFailure]:
        """The failures since the last call."""
        drained, self.failures[:] = list(self.failures), []
        return drained

    def close(self) -> None:
        """Close all environments."""
        for env in self._envs:
            env.close()

    def _record_step(self, index: int, result: Any) -> None:
        observations, rewards, terminations, truncations, infos = _five_dicts(result)
        self._elapsed[index] += 1
        out_of_time = self._limit is not None and self._elapsed[index] >= self._limit
        remaining = set(getattr(self._envs[index], "agents", observations))
        self._check_agents(index, remaining | set(observations))
        for member in self._members[index]:
            policy, slot, agent = member.policy, member.slot, member.agent
            was_active = bool(policy.active[slot])
            if agent in observations and (was_active or agent in remaining):
                policy.write(slot, observations[agent], infos.get(agent, {}))
            if not was_active:
                # Resting, or joining: the observation of an agent that joins is no result of an action of its. One
                # that is told again of its end stays at rest.
                over = terminations.get(agent, False) or truncations.get(agent, False) or out_of_time
                policy.set_row(slot)
                policy.active[slot] = agent in remaining and agent in observations and not over
                continue
            # An agent that is gone without a word has come to its end.
            truncated = bool(truncations.get(agent, False)) or out_of_time
            terminated = bool(terminations.get(agent, agent not in remaining))
            if agent not in observations and not terminated:
                raise ProtocolError(f"step() gave agent {agent!r}, which has not terminated, no observation")
            reward = checked_reward(agent, rewards.get(agent, 0.0))
            policy.set_row(slot, reward, terminated=terminated, truncated=truncated, valid=True)
            policy.active[slot] = not (terminated or truncated)
        self.pending[index] = not any(member.policy.active[member.slot] for member in self._members[index])

    def _record_turn(self, index: int, env: TurnBasedEnv, turn: Turn) -> None:
        self._elapsed[index] += 1
        if self._limit is not None and self._elapsed[index] >= self._limit:
            turn = env.cut_off(turn)
        self._check_agents(index, set(turn.observations))
        for member in self._members[index]:
            policy, slot, agent = member.policy, member.slot, member.agent
            if agent in turn.observations:
                policy.write(slot, turn.observations[agent], turn.infos[agent])
            terminated, truncated = turn.ended.get(agent, (False, False))
            policy.set_row(
                slot,
                turn.rewards.get(agent, 0.0),
                terminated=terminated,
                truncated=truncated,
                valid=bool(policy.active[slot]),
            )
            policy.active[slot] = agent == turn.mover
        self.pending[index] = turn.mover is None

    def _begin_turns(self, index: int, turn: Turn) -> None:
        self._check_agents(index, set(turn.observations))
        for member in self._members[index]:
            if member.agent == turn.mover:
                member.policy.write(member.slot, turn.observations[member.agent], turn.infos[member.agent])
            member.policy.set_row(member.slot)
            member.policy.active[member.slot] = member.agent == turn.mover
        self.pending[index] = turn.mover is None

    def _check_agents(self, index: int, named: set[str]) -> None:
        strange = named - {member.agent for member in self._members[index]}
        if strange:
            raise ProtocolError(f"the environment has agents {sorted(strange)}, which possible_agents does not name")

    def _reset_env(self, index: int) -> None:
        env = self._envs[index]
        seed = self._env_seed(index) if self._unseeded[index] else None
        self._episodes[index] += 1
        self._take_seats(index)
        try:
            if isinstance(env, TurnBasedEnv):
                self._begin_turns(index, env.reset(seed))
            else:
                self._begin_together(index, env.reset() if seed is None else env.reset(seed=seed))
        except Exception as error:
            self._fail(index, "reset", error)
            return
        self._unseeded[index] = False
        self._elapsed[index] = 0

    def _take_seats(self, index: int) -> None:
        """Who acts for which agent in this episode: the same whenever it is asked."""
        if not self._seats[index]:
            return
        members, agents = zip(*self._seats[index], strict=True)
        rng = np.random.default_rng([self._env_seed(index), self._episodes[index]])
        for member, place in zip(members, rng.permutation(len(members)), strict=True):
            member.agent = agents[place]

    def _begin_together(self, index: int, result: Any) -> None:
        observations, infos = _two_dicts(result)
        self._check_agents(index, set(observations))
        for member in self._members[index]:
            present = member.agent in observations
            if present:
                member.policy.write(member.slot, observations[member.agent], infos.get(member.agent, {}))
            member.policy.set_row(member.slot)
            member.policy.active[member.slot] = present
        self.pending[index] = not observations

    def _fail(self, index: int, phase: Phase, error: Exception, actions: Any = None) -> None:
        """Record the exception, truncate all agents of the environment, and put a fresh one in its place."""
        self._record(index, phase, error, None if phase != "step" else describe_action(actions))
        for member in self._members[index]:
            member.policy.set_row(member.slot, truncated=True)
            member.policy.buffers.mask[member.slot] = True
            member.policy.active[member.slot] = False
        self._generations[index] += 1
        self._unseeded[index] = self.pending[index] = True
        try:
            replacement = _checked(self._make())
        except Exception as creation_error:
            self._record(index, "create", creation_error, None)
            return
        with contextlib.suppress(Exception):  # it is broken already, and this was reported
            self._envs[index].close()
        self._envs[index] = replacement

    def _record(self, index: int, phase: Phase, error: Exception, action: str | None) -> None:
        self.failures.append(EnvFailure(index, self._env_seed(index), phase, action, describe_error(error)))

    def _env_seed(self, index: int) -> int:
        return derive_seed(self._seed, self._worker_index, index, self._generations[index])


def _seats(
    members: list[_Member], policy_ids: Sequence[str], policies: dict[str, PolicySlots]
) -> list[tuple[_Member, str]]:
    """Those who change places, and the agents that they act for at first."""
    movable = [policies[policy_id] for policy_id in policy_ids if policy_id in policies]
    return [(member, member.agent) for member in members if member.policy in movable]


def _checked(env: Any) -> Any:
    if is_turn_based(env):
        return TurnBasedEnv(env)
    missing = [name for name in _INTERFACE if not hasattr(env, name)]
    if missing:
        raise EnvironmentFailure(
            f"a multi-agent environment is parallel or turn-based, but {type(env).__name__} has no "
            f"{', '.join(missing)}",
            hint="return an environment with PettingZoo's parallel or AEC interface",
            permanent=True,
        )
    return env


def _five_dicts(result: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(result, tuple) or len(result) != 5 or not all(isinstance(part, dict) for part in result):
        raise ProtocolError(
            "step() must return five dicts by agent: observations, rewards, terminations, truncations, infos"
        )
    return result


def _two_dicts(result: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(result, tuple) or len(result) != 2 or not all(isinstance(part, dict) for part in result):
        raise ProtocolError("reset() must return two dicts by agent: observations, infos")
    return result
