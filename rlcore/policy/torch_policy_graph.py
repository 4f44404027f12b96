"""What every policy graph on a torch network shares: parameters, the optimizer, batches on a device, state.

The parameters are one flat vector (`FlatParameters`). A subclass says which network there is, how it acts, and what
the gradient of a minibatch is.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rlcore.policy.adam import FlatAdam
from rlcore.policy.flat_parameters import FlatParameters
from rlcore.policy.policy_graph import PolicyGraph, State, Stats
from rlcore.policy.schedules import Schedule
from rlcore.sample_batch import STATE_PREFIX, SampleBatch

if TYPE_CHECKING:
    from rlcore.api import ModelSpec

Loaded = dict[str, Any]
"""A batch where gradients are computed: columns as numpy arrays or as tensors on the policy's device."""

TIME_MAJOR = "__time_major__"


class TorchPolicyGraph(PolicyGraph):
    """A policy on a torch network.

    Args:
        observation_space: Box of one flattened observation.
        action_space: space of one action.
        config: the algorithm's hyper-parameters.
        model: the network's specification.
        seed: of the parameters and of the action noise.
        noise_seed: of the action noise alone, so that evaluators with equal parameters act differently.
        worker_index: of the evaluator that acts, 0 elsewhere; exploration may differ by it.
        device: where the network lives.

    Attributes:
        stat_names: of what `minibatch_gradient` returns.
        priorities: float32 [B] of the last minibatch's rows, in their order, for prioritised replay; else None.
    """

    stat_names: tuple[str, ...] = ()
    priorities: np.ndarray | None = None

    def __init__(
        self,
        observation_space: gym.spaces.Box,
        action_space: gym.Space[Any],
        config: Any,
        model: ModelSpec,
        *,
        seed: int,
        noise_seed: int | None = None,
        worker_index: int = 0,
        device: str = "cpu",
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.config = config
        self.model_spec = model
        self.seed = seed
        self.worker_index = worker_index
        self.version = 0
        self.timesteps = 0
        self.device = torch.device(device)
        # In evaluation mode for good: what acts must be what learns, and a custom model's dropout would draw from a
        # generator that no checkpoint holds.
        self.model = self.build_network().eval()
        self.flat = FlatParameters(self.model, self.device)
        self.adam = FlatAdam(
            self.flat.vector, self.flat.gradient, learning_rate=config.learning_rate, epsilon=config.adam_epsilon
        )
        self.learning_rate = Schedule(config.learning_rate, config.learning_rate_schedule)
        self.rng = np.random.default_rng([seed if noise_seed is None else noise_seed, 1])

    @classmethod
    def require_action_space(cls, space: gym.Space[Any], algorithm: str) -> None:
        """Raises UnsupportedError, with the algorithm's name, for an action space that this cannot act in."""

    @abstractmethod
    def build_network(self) -> nn.Module:
        """A new network, the same for the same seed; all parameters of this policy are its parameters."""

    # acting --------------------

    @property
    def recurrent(self) -> bool:
        """Whether `act` carries a state."""
        return False

    def initial_state(self, slots: int) -> State:
        return []

    # learning --------------------

    @abstractmethod
    def minibatch_gradient(self, loaded: Loaded, indices: Any) -> np.ndarray | Tensor:
        """Fills `flat.gradient` for the entries `indices` of a loaded batch; returns statistics [len(stat_names)]."""

    def load(self, batch: SampleBatch) -> Loaded:
        """Moves a batch to where gradients are computed; on a GPU through pinned memory, without waiting."""
        columns: Loaded = {TIME_MAJOR: batch.time_major}
        for name, column in batch.items():
            if self.gradients_in_numpy:
                columns[name] = column
                continue
            tensor = torch.as_tensor(column)
            if self.device.type == "cuda":
                tensor = tensor.pin_memory().to(self.device, non_blocking=True)
            columns[name] = tensor
        return columns

    def minibatch(self, loaded: Loaded, indices: Any) -> dict[str, Any]:
        """The entries `indices` (rows, or sequences) of a loaded batch."""
        time_major = loaded[TIME_MAJOR]
        if self.device.type != "cpu" and isinstance(indices, np.ndarray):
            indices = torch.from_numpy(indices).to(self.device, non_blocking=True)
        return {
            name: column[:, indices] if time_major and not name.startswith(STATE_PREFIX) else column[indices]
            for name, column in loaded.items()
            if name != TIME_MAJOR
        }

    @property
    def gradients_in_numpy(self) -> bool:
        """Whether `minibatch_gradient` works on numpy arrays."""
        return False

    def gradients(self, batch: SampleBatch) -> tuple[np.ndarray, Stats]:
        prepared, batch_stats = self.prepare(batch)
        stats = self.minibatch_gradient(self.load(prepared), slice(None))
        return self.flat.gradient.cpu().numpy().copy(), {**self.named_stats(stats), **batch_stats}

    def apply_gradients(self, gradient: np.ndarray) -> None:
        self.flat.gradient.copy_(torch.from_numpy(np.array(gradient)))
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

    def stops_early(self, stats: np.ndarray | Tensor) -> bool:
        """Whether further epochs on this batch should be left out, from the last epoch's statistics."""
        return False

    def on_global_timesteps(self, timesteps: int) -> None:
        self.timesteps = timesteps
        self.adam.learning_rate = self.learning_rate(timesteps)

    def replicate(self, device: str) -> TorchPolicyGraph:
        """A tower: the same policy with parameters of its own on another device."""
        twin = copy.copy(self)
        twin.device = torch.device(device)
        twin.model = twin.build_network().eval()
        twin.flat = FlatParameters(twin.model, twin.device)
        twin.flat.vector.copy_(self.flat.vector)
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
