"""What DDPG, TD3 and SAC share: an actor and critics in one parameter vector, each with an Adam of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlcore.policy.fast_mlp import SUPPORTED_ACTIVATIONS
from rlcore.policy.models import FlatEncoder, relu_unless_chosen
from rlcore.policy.n_step import NStep, at_next_rows
from rlcore.policy.numpy_layers import NumpyLayers
from rlcore.policy.off_policy import OffPolicyPolicyGraph
from rlcore.policy.torch_policy_graph import Loaded
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    DISCOUNTS,
    NEXT_ACTION_MASK,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    REWARDS,
    WEIGHTS,
    Fragment,
)

TensorBatch = Mapping[str, Tensor]
ACTOR, CRITICS, LOG_ALPHA = "actor", "critics", "log_alpha"


class QActorCriticPolicyGraph(OffPolicyPolicyGraph):
    """An actor that climbs what critics say; arguments as TorchPolicyGraph's.

    `model.online` has the children `actor` and `critics`, and may have a parameter `log_alpha`.
    """

    stat_names = ("actor_loss", "critic_loss", "mean_q", "mean_td_error", "entropy", "alpha")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parts = {name: self._part(name) for name in (ACTOR, CRITICS, LOG_ALPHA) if self._names(name)}
        rates = {ACTOR: self.config.learning_rate, LOG_ALPHA: self.config.learning_rate, CRITICS: self.critic_rate}
        self.adams = {name: self._adam(part, rates[name]) for name, part in self.parts.items()}
        self.adam = self.adams[ACTOR]

    @property
    def critic_rate(self) -> float:
        """The critics' step size at the start."""
        return float(self.config.critic_learning_rate or self.config.learning_rate)

    def build_fast(self) -> None:
        self.fast: NumpyLayers | None = None
        actor, activation = self.model.online.actor, relu_unless_chosen(self.model_spec)
        plain = isinstance(actor.features, FlatEncoder) and activation in SUPPORTED_ACTIVATIONS
        if plain and self.device.type == "cpu":
            body = [f"online.actor.body.{i}" for i, m in enumerate(actor.body) if isinstance(m, nn.Linear)]
            self.fast = NumpyLayers(self.flat, [*body, "online.actor.head"], activation, activate_last=False)

    def actor_outputs(self, observations: np.ndarray) -> np.ndarray:
        """The actor's last layer, float32 [N, outputs]."""
        if self.fast is not None:
            return self.fast.forward(observations.reshape(len(observations), -1))[-1]
        with torch.inference_mode():
            out: np.ndarray = self.model.online.actor(torch.as_tensor(observations, device=self.device)).cpu().numpy()
            return out

    # losses --------------------

    @abstractmethod
    def targets(self, batch: TensorBatch) -> Tensor:
        """What the critics shall say, [B]; called without gradients."""

    @abstractmethod
    def critic_values(self, batch: TensorBatch) -> Tensor:
        """What they say of the actions taken, [C, B]."""

    def td_errors(self, values: Tensor, targets: Tensor, batch: TensorBatch) -> Tensor:
        """What the critics err by, [C, B]."""
        return values - targets

    @abstractmethod
    def actor_loss(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        """The actor's loss, and the mean entropy of its actions (0 of a deterministic one)."""

    def alpha_gradient(self, entropy: Tensor) -> None:
        """Fills the temperature's gradient."""

    @property
    def alpha(self) -> Tensor:
        """Weight of the entropy."""
        return torch.zeros(())

    @property
    def actor_due(self) -> bool:
        """Whether the next gradient step is one of the actor's too."""
        return self.updates % int(self.config.actor_delay) == 0

    def minibatch_gradient(self, loaded: Loaded, indices: Any) -> Tensor:
        batch = self.minibatch(loaded, indices)
        self.flat.gradient.zero_()
        with torch.no_grad():
            targets = self.targets(batch)
        values = self.critic_values(batch)
        td = self.td_errors(values, targets, batch)
        weights = batch.get(WEIGHTS)
        squares = 0.5 * td.square().sum(0)
        critic_loss = (squares if weights is None else squares * weights).mean()
        critic_loss.backward(inputs=self._parameters(CRITICS))
        magnitudes = td.detach().abs().mean(0)
        self.priorities = magnitudes.cpu().numpy()
        actor_loss = entropy = torch.zeros((), device=self.device)
        if self.actor_due:
            actor_loss, entropy = self.actor_loss(batch)
            actor_loss.backward(inputs=self._parameters(ACTOR))
            self.alpha_gradient(entropy.detach())
        found = (actor_loss, critic_loss, values.mean(), magnitudes.mean(), entropy, self.alpha.to(self.device))
        return torch.stack([value.detach() for value in found])

    def first_priorities(self, fragment: Fragment, steps: NStep) -> np.ndarray:
        shape = fragment.rewards.shape
        columns = {
            OBSERVATIONS: fragment.observations[:-1],
            ACTIONS: fragment.actions,
            REWARDS: steps.returns,
            DISCOUNTS: steps.discounts,
            NEXT_OBSERVATIONS: at_next_rows(fragment.observations, steps),
        }
        if fragment.action_mask is not None:
            columns[ACTION_MASK] = fragment.action_mask[:-1]
            columns[NEXT_ACTION_MASK] = at_next_rows(fragment.action_mask, steps)
        flat = {n: torch.from_numpy(c.reshape(-1, *c.shape[2:])).to(self.device) for n, c in columns.items()}
        with torch.no_grad():
            td = (self.critic_values(flat) - self.targets(flat)).abs().mean(0)
        found: np.ndarray = td.cpu().numpy().reshape(shape)
        return found

    # steps --------------------

    def apply_own_gradient(self) -> float | Tensor:
        """One Adam step of each part that is due, each clipped by itself; returns the norm of the critics' gradient."""
        for name, part in self.parts.items():
            if name != CRITICS and not self.actor_due:
                continue
            norm = torch.linalg.vector_norm(self.flat.gradient[part])
            self.flat.gradient[part] *= (self.config.max_gradient_norm / (norm + 1e-8)).clamp(max=1.0)
            if name == CRITICS:
                critic_norm = norm
            self.adams[name].step()
        self.follow_online()
        return critic_norm

    def on_global_timesteps(self, timesteps: int) -> None:
        super().on_global_timesteps(timesteps)
        share = self.adam.learning_rate / self.config.learning_rate
        self.adams[CRITICS].learning_rate = share * self.critic_rate
        if LOG_ALPHA in self.adams:
            self.adams[LOG_ALPHA].learning_rate = self.adam.learning_rate

    def get_state(self) -> dict[str, Any]:
        adams = {name: adam.get_state() for name, adam in self.adams.items() if name != ACTOR}
        return {**super().get_state(), "adams": adams}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        for name, adam in state["adams"].items():
            self.adams[name].set_state(adam)

    def _names(self, part: str) -> list[str]:
        return [name for name in self.flat.offsets if f"{name}.".startswith(f"online.{part}.")]

    def _part(self, part: str) -> slice:
        spans = [self.flat.offsets[name] for name in self._names(part)]
        return slice(spans[0][0], spans[-1][0] + spans[-1][1].numel())

    def _parameters(self, part: str) -> list[nn.Parameter]:
        child: nn.Module = getattr(self.model.online, part)
        return list(child.parameters())
