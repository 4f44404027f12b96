"""The PPO loss: by hand, and its closed-form gradient against autograd."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlcore.api import ModelSpec, PPOConfig
from rlcore.policy.distributions import MASKED_LOGIT, Categorical
from rlcore.policy.ppo import PPOPolicyGraph
from rlcore.policy.ppo_loss import PPOCoefficients, closed_form_gradient, ppo_loss

OBSERVATIONS = gym.spaces.Box(-1, 1, (6,))
ACTIONS = {"discrete": gym.spaces.Discrete(4), "box": gym.spaces.Box(-1, 1, (3,))}


def coefficients(**changes) -> PPOCoefficients:
    values = {
        "clip_range": 0.2,
        "value_clip_range": None,
        "value_coefficient": 0.5,
        "entropy_coefficient": 0.0,
        "kl_coefficient": 0.0,
    }
    return PPOCoefficients(**{**values, **changes})


def make_policy(kind: str, activation: str = "tanh", hiddens: tuple[int, ...] = (32, 16)) -> PPOPolicyGraph:
    model = ModelSpec(hiddens=list(hiddens), activation=activation, initial_log_std=-0.3)
    return PPOPolicyGraph(OBSERVATIONS, ACTIONS[kind], PPOConfig(), model, seed=0)


def make_batch(policy: PPOPolicyGraph, size: int = 50, *, masked: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((size, policy.distribution.input_size)).astype(np.float32)
    mask = rng.random((size, 4)) < 0.7
    mask[:, 0] = True
    if masked:
        inputs = np.where(mask, inputs, np.float32(MASKED_LOGIT))
    actions = policy.distribution.sample(inputs, policy.distribution.draw_noise(rng, size))
    batch = {
        "observations": rng.standard_normal((size, 6)).astype(np.float32),
        "actions": actions,
        "behaviour_logp": policy.logp(inputs, actions),
        "advantages": rng.standard_normal(size).astype(np.float32),
        "values": rng.standard_normal(size).astype(np.float32),
        "value_targets": rng.standard_normal(size).astype(np.float32),
        "dist_inputs": inputs,
    }
    return {**batch, "action_mask": mask} if masked else batch


def autograd(policy: PPOPolicyGraph, batch, c: PPOCoefficients) -> tuple[np.ndarray, np.ndarray]:
    tensors = {name: torch.from_numpy(column) for name, column in batch.items()}
    policy.flat.gradient.zero_()
    inputs, values = policy.model(tensors["observations"])
    if "action_mask" in tensors:
        inputs = torch.where(tensors["action_mask"], inputs, MASKED_LOGIT)
    loss, stats = ppo_loss(policy.distribution, inputs, values, tensors, c)
    loss.backward()
    return policy.flat.gradient.numpy().copy(), stats.numpy()


CASES = {
    "plain": {},
    "entropy": {"entropy_coefficient": 0.1},
    "kl": {"kl_coefficient": 0.3},
    "value clipping": {"value_clip_range": 0.1},
    "tight clipping": {"clip_range": 0.01, "value_coefficient": 2.0},
    "everything": {"entropy_coefficient": 0.05, "kl_coefficient": 0.2, "value_clip_range": 0.3},
}


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("case", CASES)
def test_the_closed_form_is_autograds_gradient(kind, activation, case):
    policy = make_policy(kind, activation)
    batch, c = make_batch(policy), coefficients(**CASES[case])
    expected, expected_stats = autograd(policy, batch, c)
    policy.flat.gradient.fill_(777.0)  # the closed form must write every entry
    stats = closed_form_gradient(policy.fast, policy.distribution, batch, c)
    np.testing.assert_allclose(policy.flat.gradient.numpy(), expected, atol=2e-6)
    np.testing.assert_allclose(stats, expected_stats, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("hiddens", [(), (5,), (8, 3, 16)])
def test_the_closed_form_knows_every_depth_and_size_of_minibatch(kind, hiddens):
    policy = make_policy(kind, hiddens=hiddens)
    for size in (50, 1, 7):
        batch, c = make_batch(policy, size), coefficients(entropy_coefficient=0.1)
        expected, expected_stats = autograd(policy, batch, c)
        policy.flat.gradient.fill_(777.0)
        stats = closed_form_gradient(policy.fast, policy.distribution, batch, c)
        np.testing.assert_allclose(policy.flat.gradient.numpy(), expected, atol=2e-6)
        np.testing.assert_allclose(stats, expected_stats, rtol=1e-4, atol=2e-6)


def test_the_closed_form_knows_action_masks():
    policy = make_policy("discrete")
    batch, c = make_batch(policy, masked=True), coefficients(entropy_coefficient=0.1)
    expected, _ = autograd(policy, batch, c)
    closed_form_gradient(policy.fast, policy.distribution, batch, c)
    np.testing.assert_allclose(policy.flat.gradient.numpy(), expected, atol=2e-6)


def test_the_loss_by_hand():
    # Two actions, new policy uniform: logp = log .5. Old probabilities .4 and .8: ratios 1.25 and .625.
    batch = {
        "actions": torch.tensor([0, 1]),
        "behaviour_logp": torch.log(torch.tensor([0.4, 0.8])),
        "advantages": torch.tensor([1.0, -1.0]),
        "value_targets": torch.tensor([2.0, 0.0]),
    }
    c = coefficients(entropy_coefficient=0.01)
    loss, stats = ppo_loss(Categorical(2), torch.zeros(2, 2), torch.tensor([1.0, 1.0]), batch, c)
    # min(1.25, 1.2) = 1.2; min(-.625, -.8) = -.8: policy loss -(1.2 - .8) / 2 = -.2
    policy_loss, value_loss, entropy = -0.2, 0.5, np.log(2)
    assert np.allclose(stats[:3], [policy_loss, value_loss, entropy], atol=1e-6)
    assert np.isclose(float(loss), policy_loss + 0.5 * value_loss - 0.01 * entropy, atol=1e-6)
    assert float(stats[4]) == 1.0  # both ratios are outside of 1 +- .2


def test_padding_changes_nothing():
    policy = make_policy("discrete")
    batch = {name: torch.from_numpy(column) for name, column in make_batch(policy).items()}
    inputs, values = policy.model(batch["observations"])
    plain, plain_stats = ppo_loss(policy.distribution, inputs, values, batch, coefficients())
    padded = {name: torch.cat([column, column[:7] * 0 + 1]) for name, column in batch.items()}
    weights = torch.cat([torch.ones(50), torch.zeros(7)])
    long_inputs, long_values = torch.cat([inputs, inputs[:7] + 50]), torch.cat([values, values[:7] - 9])
    loss, stats = ppo_loss(policy.distribution, long_inputs, long_values, padded, coefficients(), weights)
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(stats, plain_stats)
