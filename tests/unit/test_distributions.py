"""Action distributions against torch.distributions, and samples against their own probabilities."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import distributions as reference

from rlcore.errors import UnsupportedError
from rlcore.policy.distributions import MASKED_LOGIT, Bernoulli, Categorical, DiagonalGaussian, distribution_for

SPACES = {
    "discrete": gym.spaces.Discrete(5),
    "multi_discrete": gym.spaces.MultiDiscrete([3, 4, 2]),
    "multi_binary": gym.spaces.MultiBinary(4),
    "box": gym.spaces.Box(-1, 1, (3,)),
    "mixed": gym.spaces.Dict({"move": gym.spaces.Discrete(3), "turn": gym.spaces.Box(-1, 1, (2,))}),
    "pair": gym.spaces.Tuple([gym.spaces.MultiBinary(2), gym.spaces.MultiDiscrete([2, 3])]),
}


def torch_reference(name: str, inputs: torch.Tensor):
    if name == "discrete":
        return reference.Categorical(logits=inputs)
    if name == "multi_binary":
        return reference.Independent(reference.Bernoulli(logits=inputs), 1)
    mean, log_std = inputs.chunk(2, -1)
    return reference.Independent(reference.Normal(mean, log_std.exp()), 1)


def draw(name: str, count: int = 64):
    distribution = distribution_for(SPACES[name])
    rng = np.random.default_rng(0)
    # Inside of the range that log standard deviations are kept to.
    inputs = rng.standard_normal((count, distribution.input_size)).clip(-1.9, 1.9).astype(np.float32)
    actions = distribution.sample(inputs, distribution.draw_noise(rng, count))
    return distribution, inputs, actions


@pytest.mark.parametrize("name", SPACES)
def test_samples_have_the_declared_shape_and_type(name):
    distribution, inputs, actions = draw(name)
    assert actions.shape == (64, *distribution.action_shape)
    assert actions.dtype == distribution.action_dtype
    assert distribution.mode(inputs).shape == actions.shape
    assert distribution.logp(torch.from_numpy(inputs), torch.from_numpy(actions)).shape == (64,)


@pytest.mark.parametrize("name", ["discrete", "multi_binary", "box"])
def test_logp_entropy_and_kl_agree_with_torch(name):
    distribution, inputs, actions = draw(name)
    old = torch.from_numpy(inputs)
    new = old.roll(1, 0)
    ours, theirs = distribution, torch_reference(name, old)
    taken = torch.from_numpy(actions)
    torch.testing.assert_close(
        ours.logp(old, taken), theirs.log_prob(taken.float() if taken.dtype == torch.int8 else taken)
    )
    torch.testing.assert_close(ours.entropy(old), theirs.entropy(), rtol=1e-4, atol=1e-5)
    kl = reference.kl_divergence(theirs, torch_reference(name, new))
    torch.testing.assert_close(ours.kl(old, new), kl, rtol=1e-4, atol=1e-5)


def test_multi_discrete_and_mixed_actions_are_products_of_their_parts():
    distribution, inputs, actions = draw("multi_discrete")
    parts = [reference.Categorical(logits=x) for x in torch.from_numpy(inputs).split([3, 4, 2], -1)]
    expected = sum(p.log_prob(torch.from_numpy(actions)[:, i]) for i, p in enumerate(parts))
    torch.testing.assert_close(distribution.logp(torch.from_numpy(inputs), torch.from_numpy(actions)), expected)

    distribution, inputs, actions = draw("mixed")
    x, a = torch.from_numpy(inputs), torch.from_numpy(actions)
    expected = Categorical(3).logp(x[:, :3], a[:, 0]) + DiagonalGaussian((2,)).logp(x[:, 3:], a[:, 1:])
    torch.testing.assert_close(distribution.logp(x, a), expected)
    torch.testing.assert_close(distribution.kl(x, x), torch.zeros(64))


@pytest.mark.parametrize("name", ["discrete", "multi_binary"])
def test_samples_follow_the_probabilities(name):
    distribution = distribution_for(SPACES[name])
    rng = np.random.default_rng(1)
    inputs = np.tile(np.linspace(-1, 1.5, distribution.input_size, dtype=np.float32), (200_000, 1))
    actions = distribution.sample(inputs, distribution.draw_noise(rng, 200_000))
    if name == "discrete":
        frequency = np.bincount(actions, minlength=5) / 200_000
        expected = torch.softmax(torch.from_numpy(inputs[0]), 0).numpy()
    else:
        frequency, expected = actions.mean(0), torch.sigmoid(torch.from_numpy(inputs[0])).numpy()
    assert np.abs(frequency - expected).max() < 0.005


def test_gaussian_samples_have_mean_and_deviation():
    distribution = DiagonalGaussian((2,))
    inputs = np.tile(np.array([1.0, -2.0, np.log(0.5), np.log(2.0)], np.float32), (100_000, 1))
    actions = distribution.sample(inputs, distribution.draw_noise(np.random.default_rng(0), 100_000))
    assert np.allclose(actions.mean(0), [1, -2], atol=0.03)
    assert np.allclose(actions.std(0), [0.5, 2.0], atol=0.03)


def test_masked_actions_are_never_taken_and_leave_entropy_finite():
    distribution = Categorical(4)
    mask = np.array([True, False, True, False])
    inputs = np.where(mask, np.zeros((10_000, 4), np.float32), np.float32(MASKED_LOGIT))
    actions = distribution.sample(inputs, distribution.draw_noise(np.random.default_rng(0), 10_000))
    assert set(actions.tolist()) == {0, 2}
    torch.testing.assert_close(distribution.entropy(torch.from_numpy(inputs[:1])), torch.log(torch.tensor([2.0])))


def test_noise_of_coins_never_overflows():
    noise = Bernoulli(3).draw_noise(np.random.default_rng(0), 200_000)
    assert np.isfinite(noise).all()


def test_an_unknown_space_is_refused_by_name():
    with pytest.raises(UnsupportedError, match=r"Text.*no action distribution"):
        distribution_for(gym.spaces.Text(5))
