"""What policy graphs that learn from replayed transitions share: n-step rows, a target network, first priorities."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from rlcore.policy.adam import FlatAdam
from rlcore.policy.n_step import NStep, n_step_returns, n_step_rows
from rlcore.policy.torch_policy_graph import TorchPolicyGraph
from rlcore.policy.with_target import WithTarget, follow, online_half
from rlcore.sample_batch import PRIORITIES, Fragment, SampleBatch


class OffPolicyPolicyGraph(TorchPolicyGraph):
    """A policy whose network has a target copy; arguments as TorchPolicyGraph's."""

    model: WithTarget[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.adam = self._adam(online_half(self.flat), self.config.learning_rate)
        self._updates = np.zeros(1, np.int64)
        self.build_fast()

    @property
    def lookahead(self) -> int:  # type: ignore[override]
        return self.config.n_step - 1

    @property
    def updates(self) -> int:
        """Gradient steps made; towers on other devices share the count."""
        return int(self._updates[0])

    @abstractmethod
    def build_online(self) -> nn.Module:
        """The network that is trained, with parameters drawn from torch's generator."""

    def build_fast(self) -> None:
        """Makes the numpy forms of networks that have one, anew for each set of parameters."""

    def build_network(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return WithTarget(self.build_online())

    # experience --------------------

    def postprocess(self, fragment: Fragment, others: Mapping[str, Fragment] | None = None) -> SampleBatch:
        config = self.config
        steps = n_step_returns(
            fragment.rewards * np.float32(config.reward_scale),
            fragment.terminated,
            fragment.truncated,
            fragment.valid,
            gamma=config.gamma,
            n=config.n_step,
        )
        extra = {PRIORITIES: self.first_priorities(fragment, steps)} if config.worker_priorities else {}
        return n_step_rows(fragment, steps, extra)

    @abstractmethod
    def first_priorities(self, fragment: Fragment, steps: NStep) -> np.ndarray:
        """|TD error| float32 [T, N] with the parameters that are here, where the sample is made."""

    # learning --------------------

    def follow_online(self) -> None:
        """Told that a gradient step was made: moves the target network after the online one."""
        self._updates += 1
        if self.config.target_update_rate is not None:
            follow(self.flat, self.config.target_update_rate)
        elif self.updates % self.config.target_update_interval == 0:
            follow(self.flat, 1.0)

    def _adam(self, part: slice, learning_rate: float) -> FlatAdam:
        """Adam on a part of the parameters."""
        vector, gradient = self.flat.vector[part], self.flat.gradient[part]
        return FlatAdam(vector, gradient, learning_rate=learning_rate, epsilon=self.config.adam_epsilon)

    def replicate(self, device: str) -> OffPolicyPolicyGraph:
        twin = super().replicate(device)
        assert isinstance(twin, OffPolicyPolicyGraph)
        twin.build_fast()
        return twin

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "updates": self.updates}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._updates[0] = state["updates"]
