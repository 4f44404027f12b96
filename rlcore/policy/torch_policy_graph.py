"""What every policy graph on a torch actor-critic shares: acting, weights, the optimizer, state.

The parameters are one flat vector (`FlatParameters`). On the CPU a plain MLP acts through `FastMLP`, everything else
through torch; either way a sample is computed from the distribution's inputs by the same numpy code.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from rlcore.policy.adam import FlatAdam
from rlcore.policy.distributions import MASKED_LOGIT, distribution_for
from rlcore.policy.fast_mlp import SUPPORTED_ACTIVATIONS, FastMLP
from rlcore.policy.flat_parameters import FlatParameters
from rlcore.policy.models import SeparateMLP, SharedTrunk, build_model
from rlcore.policy.policy_graph import PolicyGraph, State, Stats
from rlcore.policy.schedules import Schedule
from rlcore.sample_batch import SampleBatch

if TYPE_CHECKING:
    from rlcore.api import ModelSpec

Loaded = dict[str, Any]
"""A batch where gradients are computed: columns as numpy arrays (FastMLP) or as tensors on the policy's device."""

# Timesteps that one inference call takes at most: bounds the memory of the activations of convolutional networks.
INFERENCE_ROWS = 4096


class TorchPolicyGraph(PolicyGraph):
    """A policy on an `ActorCritic` network.

    Args:
        observation_space: Box of one flattened observation.
        action_space: space of one action.
        config: the algorithm's hyper-parameters.
        model: the network's specification.
        seed: of the parameters and of the action noise.
        noise_seed: of the action noise alone, so that evaluators with equal parameters act differently.
        device: where the network lives.
    """

    stat_names: tuple[str, ...] = ()

    def __init__(
        self,
        observation_space: gym.spaces.Box,
        action_space: gym.Space[Any],
        config: Any,
        model: ModelSpec,
        *,
        seed: int,
        noise_seed: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.config = config
        self.model_spec = model
        self.seed = seed
        self.version = 0
        self.timesteps = 0
        self.device = torch.device(device)
        self.distribution = distribution_for(action_space)
        # In evaluation mode for good: what acts must be what learns, and a custom model's dropout would draw from a
        # generator that no checkpoint holds.
        self.model = build_model(observation_space, self.distribution, model, seed=seed).eval()
        self.flat = FlatParameters(self.model, self.device)
        self.adam = FlatAdam(
            self.flat.vector, self.flat.gradient, learning_rate=config.learning_rate, epsilon=config.adam_epsilon
        )
        self.learning_rate = Schedule(config.learning_rate, config.learning_rate_schedule)
        self.rng = np.random.default_rng([seed if noise_seed is None else noise_seed, 1])
        self.fast = self._fast_mlp()

    # acting --------------------

    @property
    def recurrent(self) -> bool:
        """Whether `act` carries a state."""
        return self.model.state_size > 0

    def initial_state(self, slots: int) -> State:
        width = self.model.state_size
        return [np.zeros((slots, width), np.float32) for _ in range(2)] if width else []

    def draw_noise(self, length: int, slots: int) -> np.ndarray:
        return self.distribution.draw_noise(self.rng, length, slots)

    def act(
        self,
        observations: np.ndarray,
        state: State,
        *,
        noise: np.ndarray | None,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, State, dict[str, np.ndarray]]:
        extras: dict[str, np.ndarray] = {}
        if self.fast is not None:
            inputs = self.fast.policy_inputs(observations.reshape(len(observations), -1))
        else:
            inputs, extras["values"], state = self._torch_act(observations, state)
        if action_mask is not None:
            inputs = np.where(action_mask, inputs, np.float32(MASKED_LOGIT))
        extras["dist_inputs"] = inputs
        actions = self.distribution.mode(inputs) if noise is None else self.distribution.sample(inputs, noise)
        return actions, state, extras

    def _torch_act(self, observations: np.ndarray, state: State) -> tuple[np.ndarray, np.ndarray, State]:
        with torch.inference_mode():
            tensor = torch.as_tensor(observations, device=self.device)
            if isinstance(self.model, SharedTrunk) and state:
                tensors = [torch.as_tensor(part, device=self.device) for part in state]
                inputs, values, tensors = self.model.step(tensor, tensors)
                state = [part.cpu().numpy() for part in tensors]
            else:
                inputs, values = self.model(tensor)
            return inputs.cpu().numpy(), values.cpu().numpy(), state

    def values(self, observations: np.ndarray, state: State) -> np.ndarray:
        """State values float32 [B] of observations [B, *obs] (recurrent: from `state`, without advancing it)."""
        if self.fast is not None:
            return self.fast.values(observations.reshape(len(observations), -1))
        if state:
            return self._torch_act(observations, state)[1]
        with torch.inference_mode():
            parts = torch.as_tensor(observations).split(INFERENCE_ROWS)
            return torch.cat([self.model.values(part.to(self.device)) for part in parts]).cpu().numpy()

    def logp(self, dist_inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Log-probabilities float32 [...] of actions under distribution inputs [..., A]."""
        with torch.inference_mode():
            return self.distribution.logp(torch.from_numpy(dist_inputs), torch.from_numpy(actions)).numpy()

    # learning --------------------

    @abstractmethod
    def minibatch_gradient(self, loaded: Loaded, indices: Any) -> np.ndarray | Tensor:
        """Fills `flat.gradient` for the entries `indices` of a loaded batch; returns statistics [len(stat_names)]."""

    def load(self, batch: SampleBatch) -> Loaded:
        """Moves a batch to where gradients are computed; on a GPU through pinned memory, without waiting."""
        columns: Loaded = {"__time_major__": batch.time_major}
        for name, column in batch.items():
            if self.gradients_in_numpy:
                columns[name] = column
                continue
            tensor = torch.as_tensor(column)
            if self.device.type == "cuda":
                tensor = tensor.pin_memory().to(self.device, non_blocking=True)
            columns[name] = tensor
        return columns

    @property
    def gradients_in_numpy(self) -> bool:
        """Whether `minibatch_gradient` works on numpy arrays."""
        return False

    def gradients(self, batch: SampleBatch) -> tuple[np.ndarray, Stats]:
        stats = self.minibatch_gradient(self.load(batch), slice(None))
        return self.flat.gradient.cpu().numpy().copy(), self.named_stats(stats)

    def apply_gradients(self, gradient: np.ndarray) -> None:
        self.flat.gradient.copy_(torch.from_numpy(gradient))
        self.apply_own_gradient()

    def apply_own_gradient(self) -> float | Tensor:
        """One Adam step with `flat.gradient`, clipped; returns the norm before clipping."""
        norm: float | Tensor = 0.0
        if self.config.max_gradient_norm is not None:
            norm = self.flat.clip_gradient(self.config.max_gradient_norm)
        self.adam.step()
        return norm

    def named_stats(self, stats: np.ndarray | Tensor) -> Stats:
        """Statistics as a dict of floats."""
        values = stats.detach().cpu().numpy() if isinstance(stats, Tensor) else stats
        return {name: float(value) for name, value in zip(self.stat_names, values, strict=True)}

    def on_global_timesteps(self, timesteps: int) -> None:
        self.timesteps = timesteps
        self.adam.learning_rate = self.learning_rate(timesteps)

    def exceeds_kl_target(self, kl: float) -> bool:
        """Whether further epochs on this batch should be left out; algorithms without such a rule never do."""
        return False

    def replicate(self, device: str) -> TorchPolicyGraph:
        """A tower: the same policy with parameters of its own on another device."""
        twin = copy.copy(self)
        twin.device = torch.device(device)
        twin.model = build_model(self.observation_space, self.distribution, self.model_spec, seed=self.seed).eval()
        twin.flat = FlatParameters(twin.model, twin.device)
        twin.flat.vector.copy_(self.flat.vector)
        twin.fast = twin._fast_mlp()
        return twin

    # weights and state --------------------

    def get_weights(self) -> np.ndarray:
        return self.flat.vector.detach().cpu().numpy().copy()

    def set_weights(self, weights: np.ndarray, version: int) -> None:
        if weights.shape != tuple(self.flat.vector.shape):
            raise ValueError(f"weights of shape {weights.shape} for a policy with {tuple(self.flat.vector.shape)}")
        with torch.no_grad():
            # Arrays from the object store are read-only, which torch.from_numpy warns about; numpy copies either.
            if self.device.type == "cpu":
                self.flat.vector.numpy()[:] = weights
            else:
                self.flat.vector.copy_(torch.from_numpy(weights.copy()))
        self.version = version

    def get_state(self) -> dict[str, Any]:
        return {
            "weights": self.get_weights(),
            "version": self.version,
            "timesteps": self.timesteps,
            "adam": self.adam.get_state(),
            "rng": self.rng.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.set_weights(state["weights"], state["version"])
        self.rng.bit_generator.state = state["rng"]
        self.adam.set_state(state["adam"])
        self.on_global_timesteps(state["timesteps"])

    def _fast_mlp(self) -> FastMLP | None:
        fits = isinstance(self.model, SeparateMLP) and self.model_spec.activation in SUPPORTED_ACTIVATIONS
        if fits and self.device.type == "cpu":
            return FastMLP(self.model, self.flat, self.model_spec.activation)  # type: ignore[arg-type]
        return None
