"""The numpy network is the torch network: same memory, same numbers."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlcore.api import ModelSpec, PPOConfig
from rlcore.policy.ppo import PPOPolicyGraph

ACTIONS = {
    "discrete": gym.spaces.Discrete(5),
    "multi_discrete": gym.spaces.MultiDiscrete([3, 4]),
    "multi_binary": gym.spaces.MultiBinary(4),
    "box": gym.spaces.Box(-1, 1, (3,)),
    "mixed": gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": gym.spaces.Box(-1, 1, (2,))}),
}


def make_policy(kind: str, activation: str) -> PPOPolicyGraph:
    model = ModelSpec(hiddens=[64, 64], activation=activation)
    policy = PPOPolicyGraph(gym.spaces.Box(-1, 1, (8,)), ACTIONS[kind], PPOConfig(), model, seed=1)
    rng = np.random.default_rng(0)
    # Trained networks are far from the small initial logits; make differences visible.
    policy.set_weights(
        policy.get_weights() + 0.1 * rng.standard_normal(policy.flat.vector.numel()).astype(np.float32), 1
    )
    return policy


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_log_probabilities_of_actions_equal_the_torch_modules_to_1e_5(kind, activation):
    policy = make_policy(kind, activation)
    assert policy.fast is not None
    rng = np.random.default_rng(2)
    observations = rng.standard_normal((64, 8)).astype(np.float32)
    actions, _, extras = policy.act(observations, [], noise=policy.draw_noise(1, 64)[0])
    acted = policy.logp(extras["dist_inputs"].copy(), actions)
    with torch.no_grad():
        inputs, values = policy.model(torch.from_numpy(observations))
        expected = policy.distribution.logp(inputs, torch.from_numpy(actions)).numpy()
    np.testing.assert_allclose(acted, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(policy.values(observations, []), values.numpy(), rtol=0, atol=1e-5)


def test_both_see_the_same_memory():
    policy = make_policy("discrete", "tanh")
    observations = np.ones((3, 8), np.float32)
    before = policy.fast.policy_inputs(observations).copy()
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(0.5)
    after = policy.fast.policy_inputs(observations).copy()
    assert not np.allclose(before, after)
    with torch.no_grad():
        np.testing.assert_allclose(after, policy.model(torch.from_numpy(observations))[0].numpy(), atol=1e-6)


@pytest.mark.parametrize("activation", ["elu", "silu"])
def test_other_activations_act_through_torch(activation):
    model = ModelSpec(hiddens=[16], activation=activation)
    policy = PPOPolicyGraph(gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2), PPOConfig(), model, seed=0)
    assert policy.fast is None
    actions, _, extras = policy.act(np.zeros((3, 4), np.float32), [], noise=None)
    assert actions.shape == (3,)
    assert extras["values"].shape == (3,)
