"""One face for single- and multi-agent environments: every policy sees its own fixed set of slots."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rlcore.env.base import EnvFailure, Step, VectorEnv, describe_error
from rlcore.env.factory import make_vector_env
from rlcore.env.joint import JointVectorEnv
from rlcore.env.multi_agent import MultiAgentVectorEnv
from rlcore.errors import UserError
from rlcore.evaluation.config import EvaluatorConfig
from rlcore.policy.policy_graph import PolicyGraph
from rlcore.sample_batch import DEFAULT_POLICY

Spaces = tuple[gym.spaces.Box, gym.Space[Any]]
Observed = tuple[np.ndarray, np.ndarray | None]


class _World:
    """What both kinds have: state, failures and an end.

    Attributes:
        slots: policy id -> N, how many of its observations there are in each step.
        spaces: policy id -> its observation and action space.
        turn_based: agents move one after the other.
    """

    turn_based = False
    slots: dict[str, int]
    spaces: dict[str, Spaces]

    def __init__(self, env: VectorEnv | MultiAgentVectorEnv) -> None:
        self._any_env = env

    def get_state(self) -> dict[str, Any] | None:
        """The environments' state, None where they offer none."""
        return self._any_env.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self._any_env.set_state(state)

    def admit(self, policies: Mapping[str, PolicyGraph]) -> None:
        """Shows the policies where they act; those that share an environment look ahead of nothing."""

    def paid(self, policy_id: str) -> np.ndarray | None:
        """The last rewards before clipping; None where they are as the environment paid them."""
        return None

    def drain_failures(self) -> list[EnvFailure]:
        """Failures since the last call."""
        return self._any_env.drain_failures()

    def close(self) -> None:
        """Releases the environments."""
        self._any_env.close()


class _OnePolicyWorld(_World):
    """One policy acts in every sub-environment.

    Args:
        env: what it acts in.
        policy_id: of the policy.
        environments: who keeps their state and counts their failures.
    """

    def __init__(
        self, env: VectorEnv | JointVectorEnv, policy_id: str, environments: VectorEnv | MultiAgentVectorEnv
    ) -> None:
        super().__init__(environments)
        self.policy_id = policy_id
        self.slots = {policy_id: env.num_envs}
        self.spaces = {policy_id: (env.observation_space, env.action_space)}
        self._acts_in = env

    def reset(self, seed: int | None) -> dict[str, Observed]:
        """New episodes everywhere."""
        return {self.policy_id: self._acts_in.reset(seed)}

    def step(self, actions: dict[str, np.ndarray]) -> dict[str, Step]:
        """One vector step."""
        return {self.policy_id: self._acts_in.step(actions[self.policy_id])}

    def take_env_steps(self, policy_rows: int) -> int:
        """Environment steps of a sample: with one policy that acts everywhere, its transitions."""
        return policy_rows


class SingleAgentWorld(_OnePolicyWorld):
    """A VectorEnv whose sub-environments are the slots of the one policy."""

    def __init__(self, env: VectorEnv, policy_id: str) -> None:
        super().__init__(env, policy_id, env)
        self.env = env

    def admit(self, policies: Mapping[str, PolicyGraph]) -> None:
        policies[self.policy_id].enter(self.env)

    def paid(self, policy_id: str) -> np.ndarray | None:
        return self.env.raw_rewards


class MultiAgentWorld(_World):
    """A MultiAgentVectorEnv: each policy's slots are the agents that it controls, over all sub-environments."""

    def __init__(self, env: MultiAgentVectorEnv) -> None:
        super().__init__(env)
        self.env = env
        self.slots = dict(env.num_slots)
        self.spaces = dict(env.spaces)
        self.turn_based = env.turn_based
        self._env_steps = 0

    def reset(self, seed: int | None) -> dict[str, Observed]:
        """New episodes everywhere."""
        return self.env.reset(seed)

    def step(self, actions: dict[str, np.ndarray]) -> dict[str, Step]:
        """One vector step."""
        steps = self.env.step(actions)
        self._env_steps += self.env.env_steps
        return steps

    def take_env_steps(self, policy_rows: int) -> int:
        """Environment steps since the last call, however many agents acted in each."""
        taken, self._env_steps = self._env_steps, 0
        return taken


class JointWorld(_OnePolicyWorld):
    """A JointVectorEnv: the one policy acts for all agents of each sub-environment, and is paid their mean."""

    def __init__(self, env: JointVectorEnv, policy_id: str) -> None:
        super().__init__(env, policy_id, env.env)
        self.env = env


World = SingleAgentWorld | MultiAgentWorld | JointWorld


def make_world(config: EvaluatorConfig, *, num_envs: int | None = None) -> World:
    """The environments of an evaluator.

    Raises:
        EnvironmentFailure: the environment cannot be made.
        UserError: a mapping that cannot be loaded or names no policy, or a policy that learns and has no agents.
    """
    count = num_envs or config.num_envs
    if config.agents is None:
        # Alone in this process, stepping may use all of its cores; beside others, an evaluator keeps to one.
        threads = config.torch_threads or available_cores()
        env = make_vector_env(
            config.environment, count, worker_index=config.worker_index, threads=threads, seats=config.seats
        )
        return SingleAgentWorld(env, next(iter(config.policies), DEFAULT_POLICY))
    mapping = load_mapping(config.agents.mapping, config.agents.policies)
    multi = MultiAgentVectorEnv.make(
        config.environment, count, mapping, worker_index=config.worker_index, seats=config.agents.seats
    )
    try:
        _refuse_idle(config, multi)
        if config.agents.joint is None:
            return MultiAgentWorld(multi)
        return JointWorld(
            JointVectorEnv(multi, with_state=config.agents.joint == "withState"), next(iter(config.policies))
        )
    except BaseException:
        multi.close()
        raise


def _refuse_idle(config: EvaluatorConfig, env: MultiAgentVectorEnv) -> None:
    """A policy that no agent acts by would be trained on nothing.

    Raises:
        UserError: there is one.
    """
    assert config.agents is not None
    learning = config.trained if config.agents.joint is None else config.agents.policies
    for policy_id in learning:
        if policy_id not in env.policies:
            agents = [agent for slots in env.policies.values() for agent in slots.agents]
            raise UserError(
                f"spec.multiAgent.policies.{policy_id}: no agent of {config.environment.id} acts by it, and so there "
                "is nothing that it could learn from",
                hint=f"the agents are {agents}; remove the policy, or see spec.multiAgent.mapping",
                permanent=True,
            )


def available_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_mapping(reference: str | None, policies: Sequence[str]) -> Callable[[str], str]:
    """The function from agent to policy id, checked to name policies only.

    Args:
        reference: "module:function"; None goes by name: a single policy is everybody's, else an agent's policy has its
            id, or its id without a trailing number ("adversary" for adversary_0).
        policies: ids.
    """
    if reference is None:
        return lambda agent: _by_name(agent, policies)
    module_name, _, name = reference.partition(":")
    where = f'spec.multiAgent.mapping "{reference}"'
    hint = "it must be module:function, importable from here"
    try:
        function = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{where}: {error}", hint=hint, permanent=True) from error
    if not callable(function):
        raise UserError(f"{where} is a {type(function).__name__}, not a function", hint=hint, permanent=True)

    def checked(agent: str) -> str:
        try:
            policy_id = function(agent)
        except Exception as error:
            raise UserError(
                f"{where} raised {describe_error(error)} for agent {agent!r}",
                hint="it is called with an agent's id, and returns the name of its policy",
                permanent=True,
            ) from error
        if policy_id not in policies:
            raise UserError(
                f"{where}: maps agent {agent!r} to {policy_id!r}, which is no policy",
                hint=f"spec.multiAgent.policies has {sorted(policies)}",
                permanent=True,
            )
        return str(policy_id)

    return checked


def _by_name(agent: str, policies: Sequence[str]) -> str:
    if len(policies) == 1:
        return policies[0]
    for name in (agent, agent.rstrip("0123456789").rstrip("_-")):
        if name in policies:
            return name
    raise UserError(
        f"spec.multiAgent: no policy has the name of agent {agent!r}, and there is no mapping",
        hint=f"spec.multiAgent.policies has {sorted(policies)}: name one like the agent, or set a mapping",
        permanent=True,
    )
