"""DQN's policy graph: acting, targets by hand, numpy against torch, every switch."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlcore.api import ModelSpec
from rlcore.api.algorithms.dqn import ApexDQNConfig, DQNConfig
from rlcore.errors import UnsupportedError
from rlcore.policy.dqn import DQNPolicyGraph
from rlcore.policy.dqn_loss import huber_delta, huber_loss, next_values
from rlcore.policy.exploration import linear_epsilon, slot_epsilons
from rlcore.policy.q_network import NoisyLinear
from rlcore.sample_batch import (
    ACTIONS,
    DISCOUNTS,
    NEXT_ACTION_MASK,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    PRIORITIES,
    REWARDS,
    WEIGHTS,
    Fragment,
    SampleBatch,
)

VECTOR = gym.spaces.Box(-1, 1, (4,))
GRID = gym.spaces.Box(0, 1, (6, 10, 10), np.float32)


def make_policy(space=VECTOR, seed=0, worker_index=0, model=None, kind=DQNConfig, **config) -> DQNPolicyGraph:
    spec = ModelSpec(**{"hiddens": [16, 8], **(model or {})})
    return DQNPolicyGraph(
        space, gym.spaces.Discrete(3), kind(**config), spec, seed=seed, worker_index=worker_index
    )  # fmt: skip


def make_batch(space=VECTOR, size=32, mask=False, weights=True, seed=0) -> SampleBatch:
    rng = np.random.default_rng(seed)
    columns = {
        OBSERVATIONS: rng.standard_normal((size, *space.shape)).astype(np.float32),
        NEXT_OBSERVATIONS: rng.standard_normal((size, *space.shape)).astype(np.float32),
        ACTIONS: rng.integers(0, 3, size),
        REWARDS: 3 * rng.standard_normal(size).astype(np.float32),
        DISCOUNTS: (0.9 * (rng.random(size) > 0.2)).astype(np.float32),
    }
    if weights:
        columns[WEIGHTS] = rng.random(size).astype(np.float32)
    if mask:
        columns[NEXT_ACTION_MASK] = rng.random((size, 3)) > 0.4
        columns[NEXT_ACTION_MASK][:, 1] = True
    return SampleBatch(columns)


def shake_target(policy: DQNPolicyGraph) -> None:
    half = len(policy.flat.vector) // 2
    policy.flat.vector[half:] += 0.3 * torch.randn(half, generator=torch.Generator().manual_seed(5))


# losses ---------------------------------------------------------------------


def test_targets_and_their_loss_by_hand():
    target_q = np.array([[1.0, 4.0], [2.0, 3.0]], np.float32)
    online_q = np.array([[9.0, 0.0], [0.0, 9.0]], np.float32)
    np.testing.assert_array_equal(next_values(target_q, None, None, -1e9), [4, 3])
    np.testing.assert_array_equal(next_values(target_q, online_q, None, -1e9), [1, 3])
    only_first = np.array([[True, False], [True, False]])
    np.testing.assert_array_equal(next_values(target_q, online_q, only_first, -1e9), [1, 2])
    # errors 0.5 and 3: losses 0.125 and 2.5, slopes 0.5 and 1, halved by the mean; the second weighs 0.1.
    q = np.array([[1.5, 0.0], [0.0, 4.0]], np.float32)
    delta, td, stats = huber_delta(q, np.array([0, 1]), np.array([1.0, 1.0]), np.array([1.0, 0.1]))
    np.testing.assert_allclose(delta, [[0.25, 0], [0, 0.05]])
    np.testing.assert_allclose(td, [0.5, 3.0])
    assert stats[0] == pytest.approx((0.125 + 0.25) / 2)
    assert huber_loss(torch.from_numpy(td), torch.tensor([1.0, 0.1])).item() == pytest.approx(stats[0])


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_closed_form_is_the_gradient_that_torch_finds(dueling, double, mask, activation):
    model = {"activation": activation}
    ours, torchs = (make_policy(dueling=dueling, double=double, model=model) for _ in range(2))
    torchs.fast = None
    for policy in (ours, torchs):
        shake_target(policy)
    batch = make_batch(mask=mask)
    gradient, stats = ours.gradients(batch)
    expected, expected_stats = torchs.gradients(batch)
    np.testing.assert_allclose(gradient, expected, atol=2e-6)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(ours.priorities, torchs.priorities, rtol=1e-4, atol=1e-5)
    for name, value in expected_stats.items():
        assert stats[name] == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("space", [VECTOR, GRID], ids=["mlp", "cnn"])
@pytest.mark.parametrize(
    "switches", [[], ["dueling"], ["distributional"], ["noisy"], ["distributional", "noisy", "dueling"]]
)
def test_every_switch_learns_a_bandit(space, switches):
    policy = make_policy(
        space, gamma=0.0, learning_rate=1e-2, value_min=-2.0, value_max=2.0, **dict.fromkeys(switches, True)
    )
    rng = np.random.default_rng(0)
    observations = np.repeat(rng.standard_normal((20, *space.shape)).astype(np.float32), 3, axis=0)
    actions = np.tile(np.arange(3), 20)
    batch = SampleBatch(
        {
            OBSERVATIONS: observations,
            NEXT_OBSERVATIONS: observations,
            ACTIONS: actions,
            REWARDS: (actions == 1).astype(np.float32),
            DISCOUNTS: np.zeros(60, np.float32),
        }
    )
    for _ in range(150):
        gradient, _ = policy.gradients(batch)
        policy.apply_gradients(gradient)
    acted, _, _ = policy.act(observations, [], noise=None)
    assert (acted == 1).mean() > 0.95
    values, _ = policy.action_values(observations, [])
    assert np.abs(values[:, 1] - 1).mean() < 0.2
    assert policy.priorities.shape == (60,)


def test_no_gradient_reaches_the_target_and_it_follows_at_its_interval():
    policy = make_policy(target_update_interval=3)
    half = len(policy.flat.vector) // 2
    before = policy.flat.vector[half:].clone()
    for step in range(1, 4):
        gradient, _ = policy.gradients(make_batch())
        assert not gradient[half:].any()
        policy.apply_gradients(gradient)
        followed = torch.equal(policy.flat.vector[:half], policy.flat.vector[half:])
        assert followed == (step == 3)
        assert step == 3 or torch.equal(policy.flat.vector[half:], before)


def test_a_rate_moves_the_target_a_share_of_the_way():
    policy = make_policy(target_update_rate=0.25)
    half = len(policy.flat.vector) // 2
    before = policy.flat.vector[half:].clone()
    policy.apply_gradients(policy.gradients(make_batch())[0])
    expected = before + 0.25 * (policy.flat.vector[:half] - before)
    np.testing.assert_allclose(policy.flat.vector[half:].numpy(), expected.numpy(), rtol=1e-5, atol=1e-7)


# acting ---------------------------------------------------------------------


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("distributional", [False, True])
def test_numpy_acts_as_torch_does(dueling, distributional):
    policy = make_policy(dueling=dueling, distributional=distributional)
    observations = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    fast, _ = policy.action_values(observations, [])
    policy.fast = None
    slow, _ = policy.action_values(observations, [])
    np.testing.assert_allclose(fast, slow, rtol=1e-4, atol=1e-5)


def test_epsilon_falls_in_a_straight_line_and_strays_that_often():
    assert [linear_epsilon(t, initial=1.0, final=0.1, over=100) for t in (0, 50, 100, 999)] == [
        1.0, pytest.approx(0.55), 0.1, 0.1,
    ]  # fmt: skip
    policy = make_policy(epsilon_final=0.3, epsilon_timesteps=10)
    policy.on_global_timesteps(100)
    observations = np.zeros((4000, 4), np.float32)
    best, _, _ = policy.act(observations, [], noise=None)
    actions, _, _ = policy.act(observations, [], noise=policy.draw_noise(1, 4000)[0])
    assert (actions != best).mean() == pytest.approx(0.3 * 2 / 3, abs=0.03)


def test_forbidden_actions_are_never_taken():
    policy = make_policy()
    rng = np.random.default_rng(0)
    observations = rng.standard_normal((3000, 4)).astype(np.float32)
    mask = rng.random((3000, 3)) > 0.5
    mask[~mask.any(axis=1)] = True
    for noise in (policy.draw_noise(1, 3000)[0], None):
        actions, _, _ = policy.act(observations, [], noise=noise, action_mask=mask)
        assert mask[np.arange(3000), actions].all()


def test_slots_explore_over_the_whole_range_however_many_workers_there_are():
    for workers in (1, 3, 10):
        epsilons = np.concatenate([slot_epsilons(index, 8) for index in range(1, workers + 1)])
        x = np.sort((np.log(epsilons) / np.log(0.4) - 1) / 7)
        assert x[0] >= 0
        assert x[-1] <= 1
        # No hole is wider than two and a half times an even spacing.
        assert np.diff(np.concatenate([[0], x, [1]])).max() < 2.5 / len(x)
    assert len(set(np.round(epsilons, 9))) == 80


def test_noisy_layers_add_what_the_paper_says():
    layer = NoisyLinear(3, 2, sigma=0.5)
    e_in, e_out, x = torch.randn(3), torch.randn(2), torch.randn(5, 3)
    weight = layer.weight + layer.weight_sigma * torch.outer(e_out, e_in)
    bias = layer.bias + layer.bias_sigma * e_out
    torch.testing.assert_close(layer(x, (e_in, e_out)), x @ weight.T + bias)


def test_noise_moves_noisy_policies_and_none_leaves_them():
    policy = make_policy(noisy=True, dueling=True)
    observations = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    one, _ = policy.action_values(observations, [], policy.draw_noise(2, 64)[0])
    two, _ = policy.action_values(observations, [], policy.draw_noise(2, 64)[0])
    assert not np.allclose(one, two)
    plain = [policy.action_values(observations, [])[0] for _ in range(2)]
    np.testing.assert_array_equal(*plain)


# experience -----------------------------------------------------------------


def make_fragment(policy, length=12, slots=3) -> Fragment:
    rng = np.random.default_rng(0)
    observations = rng.standard_normal((length + 1, slots, 4)).astype(np.float32)
    done = rng.random((length, slots)) < 0.2
    valid = np.ones((length, slots), bool)
    valid[1:] = ~done[:-1]
    done &= valid
    mask = rng.random((length + 1, slots, 3)) > 0.3
    mask[..., 0] = True
    noise = policy.draw_noise(length, slots)
    acted = [policy.act(observations[t], [], noise=noise[t], action_mask=mask[t]) for t in range(length)]
    return Fragment(
        observations=observations,
        actions=np.stack([a for a, _, _ in acted]),
        rewards=rng.standard_normal((length, slots)).astype(np.float32),
        terminated=done & (rng.random(done.shape) > 0.5),
        truncated=done,
        valid=valid,
        extras={name: np.stack([e[name] for _, _, e in acted]) for name in acted[0][2]},
        action_mask=mask,
    )


def test_first_priorities_are_the_errors_that_the_learner_would_find():
    policy = make_policy(kind=ApexDQNConfig, double=False, dueling=False, worker_index=1)
    batch = policy.postprocess(make_fragment(policy))
    policy.gradients(batch.without(PRIORITIES))
    np.testing.assert_allclose(batch[PRIORITIES], policy.priorities, rtol=1e-4, atol=1e-5)


# recurrence, state ----------------------------------------------------------


@pytest.mark.parametrize("switch", ["distributional", "noisy", "worker_priorities"])
def test_what_has_no_recurrent_form_is_refused(switch):
    with pytest.raises(UnsupportedError, match="lstmSize"):
        make_policy(model={"lstm_size": 8}, **{switch: True})


@pytest.mark.parametrize("switches", [{}, {"noisy": True, "distributional": True}], ids=["plain", "noisy"])
def test_a_restored_policy_learns_on_exactly(switches):
    one, two = make_policy(seed=0, **switches), make_policy(seed=4, **switches)
    for _ in range(3):
        one.apply_gradients(one.gradients(make_batch())[0])
    two.set_state(one.get_state())
    for _ in range(3):
        for policy in (one, two):
            policy.apply_gradients(policy.gradients(make_batch())[0])
    np.testing.assert_array_equal(one.get_weights(), two.get_weights())
    assert one.updates == two.updates == 6


def test_continuous_actions_are_refused_with_what_is_supported():
    with pytest.raises(UnsupportedError, match="DQN supports Discrete") as refused:
        DQNPolicyGraph.require_action_space(gym.spaces.Box(-1, 1, (2,)), "DQN")
    assert "SAC" in str(refused.value)
