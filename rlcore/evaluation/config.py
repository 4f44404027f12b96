"""What a policy evaluator is made from: plain data that crosses to any process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym

from rlcore.policy.torch_policy_graph import TorchPolicyGraph

if TYPE_CHECKING:
    from rlcore.api import EnvironmentSpec, ModelSpec
    from rlcore.env.games import Seats


@dataclass(frozen=True)
class PolicySpec:
    """One policy: its graph's class, hyper-parameters and network."""

    graph: type[TorchPolicyGraph]
    config: Any
    model: ModelSpec


@dataclass(frozen=True)
class Agents:
    """Who acts by which of the manifest's policies.

    Attributes:
        mapping: "module:function" from agent to policy id; None goes by name.
        policies: ids of the manifest's policies.
        joint: all agents act as one, by the job's one policy graph, which sees the environment's global state too, or
            not; None: each policy acts for itself.
        seats: policies whose agents change places at random in each episode.
    """

    mapping: str | None
    policies: tuple[str, ...]
    joint: Literal["withState", "withoutState"] | None = None
    seats: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluatorConfig:
    """One evaluator; all of a job differ in `worker_index` alone.

    Attributes:
        environment: what to sample.
        policies: policy id -> how to build it.
        agents: of a multi-agent environment; None for a single agent.
        trained: ids of the policies that learn.
        num_envs: sub-environments.
        fragment_length: steps T of one sample.
        batch_mode: "truncate" cuts at T, "completeEpisodes" goes on to the ends of episodes.
        observation_filter: "none" or "meanStd".
        sequence_length: timesteps of one sequence of a recurrent policy.
        compression: of batches that leave the process.
        seed: of everything random.
        worker_index: 1.. for those that train; tells their seeds apart.
        torch_threads: intra-operation threads; None leaves torch's own choice.
        max_failures: exceptions of environments that are tolerated.
        seats: of a game with rules to look ahead with, those that the policy plays; None: any environment will do.
    """

    environment: EnvironmentSpec
    policies: dict[str, PolicySpec]
    agents: Agents | None
    trained: tuple[str, ...]
    num_envs: int
    fragment_length: int
    batch_mode: Literal["truncate", "completeEpisodes"]
    observation_filter: Literal["none", "meanStd"]
    sequence_length: int
    compression: Literal["auto", "none", "lz4"]
    seed: int
    worker_index: int = 0
    torch_threads: int | None = None
    max_failures: int = 10
    seats: Seats | None = None

    @property
    def judged(self) -> EvaluatorConfig:
        """The same where policies are evaluated: in a game they have one seat, and somebody else the other."""
        return replace(self, seats=self.seats and "one")

    def build_policy(
        self, policy_id: str, spaces: tuple[gym.spaces.Box, gym.Space[Any]], device: str = "cpu"
    ) -> TorchPolicyGraph:
        """A policy of this job; equal parameters in every process, action noise of this worker's own."""
        spec = self.policies[policy_id]
        number = sorted(self.policies).index(policy_id)
        return spec.graph(
            *spaces,
            spec.config,
            spec.model,
            seed=self.seed + 7919 * number,
            noise_seed=self.seed + 7919 * number + 104_729 * (self.worker_index + 1),
            worker_index=self.worker_index,
            device=device,
        )
