"""All parameters of a network in one contiguous float32 vector, all gradients in another.

Weights then travel as one array, Adam and gradient clipping are one kernel each however many layers there are, and
numpy code can read and write the very memory that torch uses.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


class FlatParameters:
    """Moves a module's parameters into one vector; the module keeps working, its tensors are views of it.

    Attributes:
        vector: float32 [P], the parameters.
        gradient: float32 [P], where backward passes accumulate.
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        module.to(device)
        parameters = list(module.parameters())
        self.vector = torch.cat([p.data.reshape(-1).float() for p in parameters])
        self.gradient = torch.zeros_like(self.vector)
        self.offsets: dict[str, tuple[int, torch.Size]] = {}
        offset = 0
        for name, parameter in module.named_parameters():
            end = offset + parameter.numel()
            self.offsets[name] = (offset, parameter.shape)
            parameter.data = self.vector[offset:end].view(parameter.shape)
            parameter.grad = self.gradient[offset:end].view(parameter.shape)
            offset = end

    def view(self, flat: torch.Tensor, name: str) -> torch.Tensor:
        """The part of `flat` ([P]) that belongs to parameter `name`, in its shape."""
        offset, shape = self.offsets[name]
        return flat[offset : offset + shape.numel()].view(shape)

    def clip_gradient(self, largest_norm: float) -> float | torch.Tensor:
        """Scales the gradient to at most `largest_norm` (Euclidean); returns the norm before."""
        if self.gradient.device.type == "cpu":
            flat = self.gradient.numpy()
            norm = float(np.sqrt(np.dot(flat, flat)))
            if norm > largest_norm:
                self.gradient.mul_(largest_norm / norm)
            return norm
        # On a GPU a comparison in Python would wait for the device.
        norm_tensor = torch.linalg.vector_norm(self.gradient)
        self.gradient.mul_((largest_norm / (norm_tensor + 1e-8)).clamp(max=1.0))
        return norm_tensor
