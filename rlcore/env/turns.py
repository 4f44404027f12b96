"""Turn-based environments (PettingZoo's AEC): one agent moves at a time.

    turn = game.reset(seed)
    while turn.mover is not None:
        turn = game.step(action_of(turn.mover))

The environment offers `possible_agents`, `agents`, `agent_selection`, `observation_space(agent)`,
`action_space(agent)`, `reset(seed=..., options=...)`, `step(action)`, `observe(agent)` and `last()` -> (observation,
reward since the agent's own last move, terminated, truncated, info). PettingZoo itself is not needed.

Source: Terry et al. 2021, PettingZoo, arXiv 2009.14471, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlcore.env.state import offers_state


@dataclass
class Turn:
    """What one move brought.

    Attributes:
        mover: whose turn it is now, None where the episode is over.
        observations: of the mover, and the last ones of agents that came to their end.
        infos: of the same.
        rewards: of the same, each since its own last move.
        ended: agent -> (terminated, truncated), of those that came to their end.
    """

    mover: str | None = None
    observations: dict[str, Any] = field(default_factory=dict)
    infos: dict[str, dict[str, Any]] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    ended: dict[str, tuple[bool, bool]] = field(default_factory=dict)


class ProtocolError(Exception):
    """A multi-agent environment does what its interface forbids."""


class TurnBasedEnv:
    """Plays one turn-based environment; the steps that agents make after their end are made here.

    Args:
        env: see above.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self._present: set[str] = set()

    @property
    def possible_agents(self) -> list[str]:
        """All agents that there may be."""
        return list(self.env.possible_agents)

    def observation_space(self, agent: str) -> Any:
        """The environment's."""
        return self.env.observation_space(agent)

    def action_space(self, agent: str) -> Any:
        """The environment's."""
        return self.env.action_space(agent)

    def reset(self, seed: int | None) -> Turn:
        """A new episode; `seed` None goes on with the environment's own random numbers."""
        self.env.reset() if seed is None else self.env.reset(seed=seed)
        self._present = set(self.env.agents)
        return self._look()

    def step(self, action: Any) -> Turn:
        """The mover's action."""
        self.env.step(action)
        return self._look()

    def cut_off(self, turn: Turn) -> Turn:
        """The same turn, but that all agents which are still there are truncated: the episode takes too long."""
        for agent in sorted(self._present):
            turn.observations.setdefault(agent, self.env.observe(agent))
            turn.rewards.setdefault(agent, float(getattr(self.env, "_cumulative_rewards", {}).get(agent, 0.0)))
            turn.infos.setdefault(agent, {})
            turn.ended[agent] = (False, True)
        turn.mover = None
        return turn

    @property
    def offers_state(self) -> bool:
        """Whether the environment defines get_state() and set_state(state) itself."""
        return offers_state(self.env)

    def get_state(self) -> dict[str, Any]:
        """The environment's state, and who is there."""
        return {"env": self.env.get_state(), "present": sorted(self._present)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self.env.set_state(state["env"])
        self._present = set(state["present"])

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()

    def _look(self) -> Turn:
        """Makes the steps of agents that are at their end, and finds whose turn it is."""
        env, turn = self.env, Turn()
        # Every agent ends once an episode at most, so more steps than agents cannot be needed.
        for _ in range(len(env.possible_agents) + 1):
            self._present |= set(env.agents)
            if not env.agents:
                break
            agent = env.agent_selection
            if agent not in env.agents:
                raise ProtocolError(f"agent_selection is {agent!r}, who is not among env.agents {list(env.agents)}")
            observation, reward, terminated, truncated, info = env.last()
            if observation is None:
                raise ProtocolError(f"last() gave no observation for agent {agent!r}, whose turn it is")
            turn.observations[agent], turn.infos[agent] = observation, info or {}
            turn.rewards[agent] = float(reward)
            if not (terminated or truncated):
                turn.mover = agent
                break
            turn.ended[agent] = (bool(terminated), bool(truncated))
            self._present.discard(agent)
            env.step(None)
        else:
            raise ProtocolError(f"agent {agent!r} stays in env.agents after its end: step(None) must remove it")
        for agent in self._present - set(env.agents):
            # One that is gone without a word has come to its end.
            turn.ended[agent] = (True, False)
            turn.rewards.setdefault(agent, 0.0)
        self._present &= set(env.agents)
        return turn


def is_turn_based(env: Any) -> bool:
    """Whether an environment is played turn by turn; else its agents all act in each step."""
    return hasattr(env, "last") and hasattr(env, "observe")


def checked_reward(agent: str, reward: Any) -> float:
    """A reward as a number.

    Raises:
        ProtocolError: it is none.
    """
    if np.ndim(reward) or reward is None:
        raise ProtocolError(f"the reward of agent {agent!r} is {reward!r}, not a number")
    return float(reward)
