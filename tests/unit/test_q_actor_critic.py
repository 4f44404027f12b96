"""DDPG, TD3 and SAC: densities, targets, temperature, delays, bounds."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import distributions

from rlcore.api import ModelSpec
from rlcore.api.algorithms.ddpg import ApexDDPGConfig, DDPGConfig, TD3Config
from rlcore.api.algorithms.sac import SACConfig
from rlcore.errors import UnsupportedError
from rlcore.policy.action_bounds import ActionBounds
from rlcore.policy.ddpg import DDPGPolicyGraph, TD3PolicyGraph
from rlcore.policy.q_actor_critic import ACTOR, CRITICS, LOG_ALPHA
from rlcore.policy.sac import SACPolicyGraph
from rlcore.policy.sac_actions import LOG_STD_RANGE, squashed_sample
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    DISCOUNTS,
    NEXT_ACTION_MASK,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    PRIORITIES,
    REWARDS,
    Fragment,
    SampleBatch,
)

SPACE = gym.spaces.Box(-1, 1, (3,))
IMAGE = gym.spaces.Box(0, 1, (4, 10, 10), np.float32)
BOX = gym.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))
DISCRETE = gym.spaces.Discrete(4)
KINDS = {
    "ddpg": (DDPGPolicyGraph, DDPGConfig, BOX),
    "td3": (TD3PolicyGraph, TD3Config, BOX),
    "sac": (SACPolicyGraph, SACConfig, BOX),
    "sac-discrete": (SACPolicyGraph, SACConfig, DISCRETE),
}


def make_policy(kind, space=SPACE, seed=0, **config):
    graph, config_class, actions = KINDS[kind]
    return graph(space, actions, config_class(**config), ModelSpec(hiddens=[16, 16]), seed=seed)


def make_batch(actions, space=SPACE, size=24, seed=0) -> SampleBatch:
    rng = np.random.default_rng(seed)
    discrete = isinstance(actions, gym.spaces.Discrete)
    columns = {
        OBSERVATIONS: rng.standard_normal((size, *space.shape)).astype(np.float32),
        NEXT_OBSERVATIONS: rng.standard_normal((size, *space.shape)).astype(np.float32),
        ACTIONS: rng.integers(0, 4, size)
        if discrete
        else (rng.random((size, 2)) * [4, 10] - [2, 0]).astype(np.float32),
        REWARDS: rng.standard_normal(size).astype(np.float32),
        DISCOUNTS: np.full(size, 0.9, np.float32),
    }
    return SampleBatch(columns)


# bounds ---------------------------------------------------------------------


def test_actions_are_scaled_to_bounds_that_are_not_symmetric():
    bounds = ActionBounds(BOX)
    np.testing.assert_allclose(
        bounds.outward(np.array([[-1, -1], [1, 1], [0, 0]], np.float32)), [[-2, 0], [2, 10], [0, 5]]
    )
    np.testing.assert_allclose(bounds.inward(np.array([[1.0, 7.5]], np.float32)), [[0.5, 0.5]])


@pytest.mark.parametrize("kind", ["ddpg", "td3", "sac"])
def test_every_action_is_within_the_bounds(kind):
    policy = make_policy(kind, random_timesteps=10)
    observations = 50 * np.random.default_rng(0).standard_normal((500, 3)).astype(np.float32)
    for timesteps in (0, 100):
        policy.on_global_timesteps(timesteps)
        for noise in (None, policy.draw_noise(1, 500)[0]):
            actions, _, _ = policy.act(observations, [], noise=noise)
            assert actions.shape == (500, 2)
            assert actions.dtype == np.float32
            assert (actions >= BOX.low - 1e-5).all()
            assert (actions <= BOX.high + 1e-5).all()


@pytest.mark.parametrize("kind", ["ddpg", "td3", "sac"])
def test_the_beginning_is_uniform(kind):
    policy = make_policy(kind, random_timesteps=10)
    actions, _, _ = policy.act(np.zeros((4000, 3), np.float32), [], noise=policy.draw_noise(1, 4000)[0])
    np.testing.assert_allclose(actions.mean(0), [0, 5], atol=0.3)
    np.testing.assert_allclose(actions.std(0), [4 / 12**0.5, 10 / 12**0.5], rtol=0.05)


@pytest.mark.parametrize("kind", ["ddpg", "sac", "sac-discrete"])
def test_numpy_acts_as_torch_does(kind):
    policy = make_policy(kind)
    observations = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    fast = policy.actor_outputs(observations)
    policy.fast = None
    np.testing.assert_allclose(fast, policy.actor_outputs(observations), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("graph", "space", "says"),
    [
        (DDPGPolicyGraph, DISCRETE, "supports Box"),
        (TD3PolicyGraph, gym.spaces.MultiDiscrete([2, 2]), "supports Box"),
        (SACPolicyGraph, gym.spaces.MultiBinary(3), "supports Discrete and Box"),
        (SACPolicyGraph, gym.spaces.Box(-np.inf, np.inf, (2,)), "has none"),
        (DDPGPolicyGraph, gym.spaces.Box(0, np.inf, (2,)), "has none"),
        (DDPGPolicyGraph, gym.spaces.Box(0, 5, (2,), np.int64), "of floats"),
    ],
)
def test_other_action_spaces_are_refused_with_what_is_supported(graph, space, says):
    with pytest.raises(UnsupportedError, match=says):
        graph.require_action_space(space, "X")


# SAC ------------------------------------------------------------------------


def test_the_squashed_density_is_that_of_a_transformed_gaussian():
    torch.manual_seed(0)
    outputs, noise = torch.randn(50, 6, dtype=torch.float64), torch.randn(50, 3, dtype=torch.float64)
    actions, logp = squashed_sample(outputs, noise)
    mean, log_std = outputs.chunk(2, -1)
    gaussian = distributions.Normal(mean, log_std.clamp(*LOG_STD_RANGE).exp())
    squashed = distributions.TransformedDistribution(gaussian, [distributions.TanhTransform(cache_size=1)])
    u = mean + log_std.clamp(*LOG_STD_RANGE).exp() * noise
    expected = (gaussian.log_prob(u) - torch.log1p(-torch.tanh(u).square())).sum(-1)
    torch.testing.assert_close(logp, expected)
    inside = actions.abs().amax(-1) < 0.999
    again = squashed.log_prob(actions).sum(-1)
    torch.testing.assert_close(logp[inside], again[inside], rtol=1e-5, atol=1e-6)


def test_the_density_integrates_to_one():
    outputs = torch.tensor([[0.3, -0.4]], dtype=torch.float64).expand(40_001, 2)
    u = torch.linspace(-12, 12, 40_001, dtype=torch.float64)
    std = float(np.exp(-0.4))
    actions, logp = squashed_sample(outputs, ((u - 0.3) / std)[:, None])
    assert torch.trapezoid(logp.exp(), actions[:, 0]).item() == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("kind", ["sac", "sac-discrete"])
def test_the_temperature_rises_where_entropy_is_too_low_and_falls_where_it_is_high(kind):
    for target, sign in ((50.0, 1), (-50.0, -1)):
        policy = make_policy(kind, target_entropy=target)
        batch = make_batch(policy.action_space)
        gradient, stats = policy.gradients(batch)
        # d/d log alpha of -log alpha (log pi + target), by hand.
        assert gradient[policy.parts[LOG_ALPHA]][0] == pytest.approx(stats["entropy"] - target, rel=1e-5)
        before = policy.alpha.item()
        policy.apply_gradients(gradient)
        assert np.sign(policy.alpha.item() - before) == sign


def test_default_entropies_are_a_nat_a_dimension_and_a_share_of_the_largest():
    assert make_policy("sac").target_entropy == -2.0
    assert make_policy("sac-discrete", discrete_entropy_share=0.5).target_entropy == pytest.approx(0.5 * np.log(4))


def test_a_fixed_temperature_stays():
    policy = make_policy("sac", learn_alpha=False, initial_alpha=0.2)
    policy.apply_gradients(policy.gradients(make_batch(BOX))[0])
    assert policy.alpha.item() == pytest.approx(0.2)


def test_soft_values_of_discrete_actions_are_expectations():
    policy = make_policy("sac-discrete", initial_alpha=0.5)
    batch = {n: torch.from_numpy(np.asarray(c)) for n, c in make_batch(DISCRETE).items()}
    with torch.no_grad():
        p = policy.model.online.actor(batch[NEXT_OBSERVATIONS]).softmax(-1)
        q = policy.model.target.critics(batch[NEXT_OBSERVATIONS]).amin(0)
        expected = batch[REWARDS] + 0.9 * ((p * q).sum(-1) + 0.5 * distributions.Categorical(p).entropy())
        torch.testing.assert_close(policy.targets(batch), expected)


def test_forbidden_actions_have_no_part_in_values_and_losses():
    policy = make_policy("sac-discrete")
    mask = np.zeros((24, 4), bool)
    mask[:, 2] = True
    batch = make_batch(DISCRETE).with_columns(**{ACTION_MASK: mask, NEXT_ACTION_MASK: mask})
    tensors = {n: torch.from_numpy(np.asarray(c)) for n, c in batch.items()}
    with torch.no_grad():
        q = policy.model.target.critics(tensors[NEXT_OBSERVATIONS]).amin(0)[:, 2]
        torch.testing.assert_close(policy.targets(tensors), tensors[REWARDS] + 0.9 * q)
    gradient, stats = policy.gradients(batch)
    assert np.isfinite(gradient).all()
    assert stats["entropy"] == pytest.approx(0.0, abs=1e-6)
    actions, _, _ = policy.act(batch[OBSERVATIONS], [], noise=policy.draw_noise(1, 24)[0], action_mask=mask)
    assert (actions == 2).all()


# TD3 ------------------------------------------------------------------------


def test_td3_takes_the_smaller_target_value():
    policy = make_policy("td3", target_noise=0.0)
    batch = {n: torch.from_numpy(np.asarray(c)) for n, c in make_batch(BOX).items()}
    with torch.no_grad():
        target = policy.model.target
        for head, shift in zip([critic.head for critic in target.critics.each], (5.0, -5.0), strict=True):
            head.bias += shift
        values = target.critics(batch[NEXT_OBSERVATIONS], target.actions(batch[NEXT_OBSERVATIONS]))
        torch.testing.assert_close(policy.targets(batch), batch[REWARDS] + 0.9 * values.min(0).values)
        assert (values[1] < values[0]).all()


def test_td3_smooths_target_actions_by_clipped_noise():
    policy = make_policy("td3", target_noise=10.0, target_noise_clip=0.25)
    observations = torch.zeros(4000, 3)
    with torch.no_grad():
        moved = policy.next_actions(observations) - policy.model.target.actions(observations)
    assert moved.abs().max() <= 0.25 + 1e-6
    assert moved.abs().mean() > 0.2


def test_td3_moves_its_actor_every_other_step():
    policy = make_policy("td3")
    actor, critics = policy.parts[ACTOR], policy.parts[CRITICS]
    moved = []
    for _ in range(4):
        before = policy.get_weights()
        policy.apply_gradients(policy.gradients(make_batch(BOX))[0])
        after = policy.get_weights()
        assert not np.array_equal(before[critics], after[critics])
        moved.append(not np.array_equal(before[actor], after[actor]))
    assert moved == [True, False, True, False]


# all ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_actors_loss_leaves_critics_alone_and_the_other_way_round(kind):
    policy = make_policy(kind)
    batch = {n: torch.from_numpy(np.asarray(c)) for n, c in make_batch(policy.action_space).items()}
    gradient, _ = policy.gradients(make_batch(policy.action_space))
    policy.flat.gradient.zero_()
    with torch.no_grad():
        targets = policy.targets(batch)
    if kind in ("ddpg", "sac-discrete"):  # the others' targets are drawn anew
        (0.5 * (policy.critic_values(batch) - targets).square().sum(0).mean()).backward()
        np.testing.assert_allclose(
            policy.flat.gradient.numpy()[policy.parts[CRITICS]], gradient[policy.parts[CRITICS]], atol=1e-6
        )
        assert not policy.flat.gradient[policy.parts[ACTOR]].any()
    half = len(gradient) // 2
    assert not gradient[half:].any()
    assert gradient[policy.parts[ACTOR]].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", [SPACE, IMAGE], ids=["mlp", "cnn"])
def test_a_restored_policy_learns_on_exactly(kind, space):
    one, two = make_policy(kind, space, seed=0), make_policy(kind, space, seed=4)
    batch = make_batch(one.action_space, space)
    for _ in range(3):
        one.apply_gradients(one.gradients(batch)[0])
    two.set_state(one.get_state())
    for _ in range(3):
        for policy in (one, two):
            policy.apply_gradients(policy.gradients(batch)[0])
    np.testing.assert_array_equal(one.get_weights(), two.get_weights())


@pytest.mark.parametrize("kind", ["ddpg", "sac"])
def test_actors_find_the_best_action_of_a_bandit(kind):
    entropy = {"target_entropy": -6.0} if kind == "sac" else {}
    policy = make_policy(kind, learning_rate=1e-3, critic_learning_rate=1e-2, random_timesteps=0, **entropy)
    rng = np.random.default_rng(0)
    actions = (rng.random((256, 2)) * [4, 10] - [2, 0]).astype(np.float32)
    observations = rng.standard_normal((256, 3)).astype(np.float32)
    batch = SampleBatch(
        {
            OBSERVATIONS: observations,
            NEXT_OBSERVATIONS: observations,
            ACTIONS: actions,
            REWARDS: -np.square((actions - [1.0, 2.5]) / [2, 5]).sum(1).astype(np.float32),
            DISCOUNTS: np.zeros(256, np.float32),
        }
    )
    for _ in range(1500):
        policy.apply_gradients(policy.gradients(batch)[0])
    acted, _, _ = policy.act(observations, [], noise=None)
    np.testing.assert_allclose(acted.mean(0), [1.0, 2.5], atol=0.6)


def test_first_priorities_are_the_errors_that_the_learner_would_find():
    config = ApexDDPGConfig(n_step=2)
    policy = DDPGPolicyGraph(SPACE, BOX, config, ModelSpec(hiddens=[16]), seed=0, worker_index=1)
    rng = np.random.default_rng(0)
    no = np.zeros((6, 2), bool)
    fragment = Fragment(
        observations=rng.standard_normal((7, 2, 3)).astype(np.float32),
        actions=(rng.random((6, 2, 2)) * [4, 10] - [2, 0]).astype(np.float32),
        rewards=rng.standard_normal((6, 2)).astype(np.float32),
        terminated=no, truncated=no, valid=~no,
    )  # fmt: skip
    batch = policy.postprocess(fragment)
    policy.gradients(batch.without(PRIORITIES))
    np.testing.assert_allclose(batch[PRIORITIES], policy.priorities, rtol=1e-4, atol=1e-5)
