"""Policy graphs of ES and ARS: a deterministic network without a value function, moved by whole episodes' returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlcore.errors import UnsupportedError
from rlcore.policy.crowd import Crowd, make_crowd
from rlcore.policy.distributions import MASKED_LOGIT, DiagonalGaussian, distribution_for
from rlcore.policy.models import build_features, build_model, layer_widths, linear, mlp
from rlcore.policy.noise_table import require_room
from rlcore.policy.policy_graph import State
from rlcore.policy.torch_policy_graph import Loaded, TorchPolicyGraph
from rlcore.sample_batch import Fragment, SampleBatch


class PolicyNetwork(nn.Module):
    """Observations [B, *obs] to the numbers [B, A] that an action is the mode of."""

    def __init__(self, features: nn.Module, width: int, hiddens: list[int], activation: str, outputs: int) -> None:
        super().__init__()
        self.features = features
        self.body, width = mlp(width, hiddens, activation)
        self.head = linear(width, outputs, gain=0.01)

    def forward(self, observations: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(self.features(observations)))
        return out


class _OutputsAlone(nn.Module):
    """A user's module without its values."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, observations: Tensor) -> Tensor:
        outputs: Tensor = self.module(observations)[0]
        return outputs


class EvolutionPolicyGraph(TorchPolicyGraph):
    """Acts with one parameter vector, or with another one in every slot; arguments as TorchPolicyGraph's.

    Raises:
        UnsupportedError: a recurrent model.
        UserError: a noise table that is too small for this network.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        require_room(self.config.noise_table_size, self.flat.vector.numel())
        self.crowd: Crowd | None = None

    def build_network(self) -> nn.Module:
        self.distribution = distribution_for(self.action_space)
        self.action_shape, self.action_dtype = self.distribution.action_shape, self.distribution.action_dtype
        spec = self.model_spec
        if spec.lstm_size:
            raise UnsupportedError(
                f"spec.model.lstmSize: {spec.lstm_size} is not supported by ES and ARS, which act without memory",
                hint="leave lstmSize out, or use PPO",
            )
        self._perceptron: str | None = None
        if spec.custom:
            return _OutputsAlone(build_model(self.observation_space, self.distribution, spec, seed=self.seed))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            features, width = build_features(self.observation_space, spec)
            if not list(features.parameters()):
                self._perceptron = spec.activation
            outputs = self.distribution.input_size
            if isinstance(self.distribution, DiagonalGaussian):
                outputs = self.distribution.d  # its means alone: deviations mean nothing to the mode
            return PolicyNetwork(features, width, self.hiddens(), spec.activation, outputs)

    def hiddens(self) -> list[int]:
        """Widths of the fully connected layers."""
        return layer_widths(self.observation_space, self.model_spec)

    # acting --------------------

    def draw_noise(self, length: int, slots: int) -> np.ndarray:
        return np.zeros((length, slots, 0), np.float32)

    def act(
        self,
        observations: np.ndarray,
        state: State,
        *,
        noise: np.ndarray | None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, State, dict[str, np.ndarray]]:
        if self.crowd is not None:
            outputs = self.crowd(observations)
        else:
            with torch.inference_mode():
                outputs = self.model(torch.as_tensor(observations, device=self.device)).cpu().numpy()
        if action_mask is not None:
            outputs = np.where(action_mask, outputs, np.float32(MASKED_LOGIT))
        return self.distribution.mode(outputs), state, {}

    def spread(self, slots: int) -> Crowd:
        """Acts with another parameter vector in every slot from now on, until `gather`."""
        self.crowd = make_crowd(self.model, self.flat, self._perceptron, slots)
        return self.crowd

    def gather(self) -> None:
        """Acts with its own parameters again."""
        self.crowd = None

    # learning --------------------

    def postprocess(self, fragment: Fragment, others: Mapping[str, Fragment] | None = None) -> SampleBatch:
        raise UnsupportedError(f"{type(self).__name__} learns from whole episodes, not from steps of them")

    def minibatch_gradient(self, loaded: Loaded, indices: Any) -> np.ndarray | Tensor:
        raise UnsupportedError(f"{type(self).__name__} learns without derivatives")


class ESPolicyGraph(EvolutionPolicyGraph):
    """Evolution strategies (Salimans et al. 2017, arXiv 1703.03864): Adam, and parameters that decay."""

    def apply_own_gradient(self) -> float | Tensor:
        self.flat.gradient.add_(self.flat.vector, alpha=self.config.weight_decay)
        return super().apply_own_gradient()


class ARSPolicyGraph(EvolutionPolicyGraph):
    """Augmented random search (Mania et al. 2018, arXiv 1803.07055): plain steps, linear unless `hiddens` says more."""

    def hiddens(self) -> list[int]:
        return super().hiddens() if "hiddens" in self.model_spec.model_fields_set else []

    def apply_own_gradient(self) -> float | Tensor:
        norm = self.flat.clip_gradient(self.config.max_gradient_norm)
        self.flat.vector.add_(self.flat.gradient, alpha=-self.adam.learning_rate)
        return norm
