"""Our Adam is torch's Adam."""

import numpy as np
import pytest
import torch

from rlcore.policy.adam import FlatAdam


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3])
def test_updates_equal_torchs(epsilon):
    generator = torch.Generator().manual_seed(0)
    ours, gradient = torch.randn(1000, generator=generator), torch.zeros(1000)
    theirs = torch.nn.Parameter(ours.clone())
    reference = torch.optim.Adam([theirs], lr=1e-2, eps=epsilon)
    adam = FlatAdam(ours, gradient, learning_rate=1e-2, epsilon=epsilon)
    for step in range(50):
        gradient.copy_(torch.randn(1000, generator=generator))
        theirs.grad = gradient.clone()
        adam.learning_rate = reference.param_groups[0]["lr"] = 1e-2 / (step + 1)
        adam.step()
        reference.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-7)


def test_it_goes_on_from_its_state():
    gradient = torch.ones(3)
    one, two = torch.zeros(3), torch.zeros(3)
    first = FlatAdam(one, gradient, learning_rate=0.1, epsilon=1e-8)
    first.step()
    second = FlatAdam(two, gradient, learning_rate=0.1, epsilon=1e-8)
    second.set_state(first.get_state())
    two.copy_(one)
    first.step()
    second.step()
    np.testing.assert_array_equal(one.numpy(), two.numpy())
