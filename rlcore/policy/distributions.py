"""Action distributions, each once for acting (numpy) and once for learning (torch).

Acting needs a sample for N observations thousands of times a second, so it is a few numpy calls on noise drawn ahead of
time; a sample is a deterministic function of (inputs, noise). Log-probabilities, entropies and divergences are torch
functions, called once a fragment or a minibatch.

`inputs` is the last layer's output, float32 [..., input_size]; `actions` are laid out as in `rlcore.env.spaces`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rlcore.errors import UnsupportedError

MASKED_LOGIT = -1.0e9
LOG_STD_RANGE = (-10.0, 2.0)
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class ActionDistribution(ABC):
    """A family of distributions over one action space.

    Attributes:
        input_size: numbers that the model outputs for one action.
        action_shape: shape of one action as stored in batches.
        action_dtype: its dtype.
        noise_size: random numbers that one sample consumes.
    """

    input_size: int
    action_shape: tuple[int, ...]
    action_dtype: np.dtype[Any]
    noise_size: int

    @abstractmethod
    def draw_noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """Noise for samples of the given leading shape: float32 [*shape, noise_size]."""

    @abstractmethod
    def sample(self, inputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Actions [N, *action_shape] for inputs [N, input_size] and noise [N, noise_size]."""

    @abstractmethod
    def mode(self, inputs: np.ndarray) -> np.ndarray:
        """The most likely actions [N, *action_shape]."""

    @abstractmethod
    def logp(self, inputs: Tensor, actions: Tensor) -> Tensor:
        """Log-probability (density) of actions, [...]."""

    @abstractmethod
    def entropy(self, inputs: Tensor) -> Tensor:
        """Entropy in nats, [...]."""

    @abstractmethod
    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(old || new) in nats, [...]."""

    @property
    def mask_size(self) -> int:
        """Entries of an action mask that fits, 0 where masks make no sense."""
        return 0


class Categorical(ActionDistribution):
    """Discrete(n) by n logits; sampled by the Gumbel-max trick (Gumbel 1954)."""

    def __init__(self, n: int) -> None:
        self.n = self.input_size = self.noise_size = n
        self.action_shape = ()
        self.action_dtype = np.dtype(np.int64)

    @property
    def mask_size(self) -> int:
        return self.n

    def draw_noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        return _gumbel(rng, (*shape, self.n))

    def sample(self, inputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return (inputs + noise).argmax(axis=-1)

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        return inputs.argmax(axis=-1)

    def logp(self, inputs: Tensor, actions: Tensor) -> Tensor:
        return functional.log_softmax(inputs, -1).gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self, inputs: Tensor) -> Tensor:
        log_p = functional.log_softmax(inputs, -1)
        return -(log_p.exp() * log_p).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        log_p, log_q = functional.log_softmax(old, -1), functional.log_softmax(new, -1)
        return (log_p.exp() * (log_p - log_q)).sum(-1)


class MultiCategorical(ActionDistribution):
    """MultiDiscrete: independent categoricals, their logits side by side."""

    def __init__(self, sizes: list[int]) -> None:
        self.parts = [Categorical(n) for n in sizes]
        self.sizes = sizes
        self.edges = np.cumsum(sizes)[:-1].tolist()
        self.input_size = self.noise_size = sum(sizes)
        self.action_shape = (len(sizes),)
        self.action_dtype = np.dtype(np.int64)

    @property
    def mask_size(self) -> int:
        return self.input_size

    def draw_noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        return _gumbel(rng, (*shape, self.noise_size))

    def sample(self, inputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return self.mode(inputs + noise)

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        return np.stack([part.argmax(axis=-1) for part in np.split(inputs, self.edges, axis=-1)], axis=-1)

    def logp(self, inputs: Tensor, actions: Tensor) -> Tensor:
        split = inputs.split(self.sizes, -1)
        return _total(part.logp(x, actions[..., i]) for i, (part, x) in enumerate(zip(self.parts, split, strict=True)))

    def entropy(self, inputs: Tensor) -> Tensor:
        return _total(part.entropy(x) for part, x in zip(self.parts, inputs.split(self.sizes, -1), strict=True))

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        pairs = zip(self.parts, old.split(self.sizes, -1), new.split(self.sizes, -1), strict=True)
        return _total(part.kl(a, b) for part, a, b in pairs)


class Bernoulli(ActionDistribution):
    """MultiBinary(n): n independent coins by their logits."""

    def __init__(self, n: int) -> None:
        self.input_size = self.noise_size = n
        self.action_shape = (n,)
        self.action_dtype = np.dtype(np.int8)

    def draw_noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        uniform = rng.random((*shape, self.noise_size), dtype=np.float32)
        return np.log(np.maximum(uniform, 1e-12)) - np.log1p(-np.minimum(uniform, 1 - 1e-7))

    def sample(self, inputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return (inputs > noise).astype(np.int8)

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        return (inputs > 0).astype(np.int8)

    def logp(self, inputs: Tensor, actions: Tensor) -> Tensor:
        return -functional.binary_cross_entropy_with_logits(inputs, actions.float(), reduction="none").sum(-1)

    def entropy(self, inputs: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(inputs, inputs.sigmoid(), reduction="none").sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        p = old.sigmoid()
        cross = functional.binary_cross_entropy_with_logits(new, p, reduction="none")
        return (cross - functional.binary_cross_entropy_with_logits(old, p, reduction="none")).sum(-1)


class DiagonalGaussian(ActionDistribution):
    """Box of d numbers: inputs are d means and d log standard deviations. The environment clips to its bounds."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.d = self.noise_size = int(np.prod(shape))
        self.input_size = 2 * self.d
        self.action_shape = (self.d,)
        self.action_dtype = np.dtype(np.float32)

    def draw_noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        return rng.standard_normal((*shape, self.d), dtype=np.float32)

    def sample(self, inputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        log_std = np.clip(inputs[..., self.d :], *LOG_STD_RANGE)
        return inputs[..., : self.d] + np.exp(log_std) * noise

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        return inputs[..., : self.d]

    def logp(self, inputs: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = self._split(inputs)
        z = (actions - mean) * torch.exp(-log_std)
        return (-0.5 * z.square() - log_std - _LOG_SQRT_2PI).sum(-1)

    def entropy(self, inputs: Tensor) -> Tensor:
        return (self._split(inputs)[1] + 0.5 + _LOG_SQRT_2PI).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        old_mean, old_log_std = self._split(old)
        mean, log_std = self._split(new)
        spread = (2 * (old_log_std - log_std)).exp() + ((old_mean - mean) * (-log_std).exp()).square()
        return (log_std - old_log_std + 0.5 * spread - 0.5).sum(-1)

    def _split(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = inputs.split(self.d, -1)
        return mean, log_std.clamp(*LOG_STD_RANGE)


class Product(ActionDistribution):
    """Dict or Tuple actions: independent parts; actions are their columns side by side as float32."""

    def __init__(self, parts: list[ActionDistribution]) -> None:
        self.parts = parts
        self.widths = [int(np.prod(part.action_shape)) for part in parts]
        self.input_sizes = [part.input_size for part in parts]
        self.noise_sizes = [part.noise_size for part in parts]
        self.input_size = sum(self.input_sizes)
        self.noise_size = sum(self.noise_sizes)
        self.action_shape = (sum(self.widths),)
        self.action_dtype = np.dtype(np.float32)

    def draw_noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        return np.concatenate([part.draw_noise(rng, *shape) for part in self.parts], axis=-1)

    def sample(self, inputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        noises = np.split(noise, np.cumsum(self.noise_sizes)[:-1], axis=-1)
        inputs_of = np.split(inputs, np.cumsum(self.input_sizes)[:-1], axis=-1)
        return self._join([p.sample(x, z) for p, x, z in zip(self.parts, inputs_of, noises, strict=True)])

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        inputs_of = np.split(inputs, np.cumsum(self.input_sizes)[:-1], axis=-1)
        return self._join([p.mode(x) for p, x in zip(self.parts, inputs_of, strict=True)])

    def logp(self, inputs: Tensor, actions: Tensor) -> Tensor:
        columns = actions.split(self.widths, -1)
        columns = [c if p.action_shape else c.squeeze(-1) for p, c in zip(self.parts, columns, strict=True)]
        triples = zip(self.parts, inputs.split(self.input_sizes, -1), columns, strict=True)
        return _total(p.logp(x, a) for p, x, a in triples)

    def entropy(self, inputs: Tensor) -> Tensor:
        return _total(p.entropy(x) for p, x in zip(self.parts, inputs.split(self.input_sizes, -1), strict=True))

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        triples = zip(self.parts, old.split(self.input_sizes, -1), new.split(self.input_sizes, -1), strict=True)
        return _total(p.kl(a, b) for p, a, b in triples)

    def _join(self, actions: list[np.ndarray]) -> np.ndarray:
        lead = actions[0].shape[: actions[0].ndim - len(self.parts[0].action_shape)]
        columns = [a.reshape(*lead, w) for a, w in zip(actions, self.widths, strict=True)]
        return np.concatenate(columns, axis=-1, dtype=np.float32, casting="unsafe")


def distribution_for(space: gym.Space[Any]) -> ActionDistribution:
    """The default distribution over an action space.

    Raises:
        UnsupportedError: a space that no distribution here covers.
    """
    spaces = gym.spaces
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical([int(n) for n in np.asarray(space.nvec).reshape(-1)])
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(int(np.prod(space.shape)))
    if isinstance(space, spaces.Box):
        return DiagonalGaussian(space.shape)
    if isinstance(space, spaces.Dict):
        return Product([distribution_for(part) for part in space.spaces.values()])
    if isinstance(space, spaces.Tuple):
        return Product([distribution_for(part) for part in space.spaces])
    raise UnsupportedError(
        f"action space {space} has no action distribution",
        hint="use Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these",
    )


def _gumbel(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    exponential = rng.standard_exponential(shape, dtype=np.float32)
    return -np.log(np.maximum(exponential, 1e-30))


def _total(parts: Any) -> Tensor:
    return torch.stack(list(parts)).sum(0)
