"""Policy graphs of PG, A2C, IMPALA and APPO: what they make of fragments, and what their losses are."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlcore.api import ModelSpec
from rlcore.api.algorithms.a2c import A2CConfig
from rlcore.api.algorithms.impala import APPOConfig, IMPALAConfig
from rlcore.api.algorithms.pg import PGConfig
from rlcore.policy.a2c import A2CPolicyGraph, PGPolicyGraph
from rlcore.policy.impala import APPOPolicyGraph, IMPALAPolicyGraph
from rlcore.sample_batch import Fragment, SampleBatch

VECTOR = gym.spaces.Box(-1, 1, (3,))
GRAPHS = {
    "PG": (PGPolicyGraph, PGConfig),
    "A2C": (A2CPolicyGraph, A2CConfig),
    "IMPALA": (IMPALAPolicyGraph, IMPALAConfig),
    "APPO": (APPOPolicyGraph, APPOConfig),
}
ACTIONS = {
    "discrete": gym.spaces.Discrete(3),
    "multi": gym.spaces.MultiDiscrete([2, 3]),
    "box": gym.spaces.Box(-1, 1, (2,)),
    "dict": gym.spaces.Dict({"a": gym.spaces.Discrete(2), "b": gym.spaces.Box(-1, 1, (1,))}),
}


def make(name, actions="discrete", model=None, **config):
    graph, config_class = GRAPHS[name]
    spec = ModelSpec(**{"hiddens": [8], **(model or {})})
    return graph(VECTOR, ACTIONS[actions], config_class(**config), spec, seed=0)


def fragment_of(policy, length=10, slots=3, seed=0, every=4, mask=False) -> Fragment:
    """Random experience with ends of both kinds, as the next-step autoreset gives it."""
    rng = np.random.default_rng(seed)
    observations = rng.standard_normal((length + 1, slots, 3)).astype(np.float32)
    masks = None
    if mask:
        masks = rng.random((length + 1, slots, policy.distribution.mask_size)) < 0.5
        masks[..., 0] = True
    state, extras, actions, kept = policy.initial_state(slots), {}, [], []
    ends = rng.random((length, slots)) < 0.25
    valid = np.ones((length, slots), bool)
    for t in range(1, length):
        valid[t] = ~(ends[t - 1] & valid[t - 1])
    ends &= valid
    kind = rng.random((length, slots)) < 0.5
    noise = policy.draw_noise(length, slots)
    for t in range(length):
        if state and t % every == 0:
            kept.append([part.copy() for part in state])
        action, state, extra = policy.act(
            observations[t], state, noise=noise[t], action_mask=None if masks is None else masks[t]
        )
        actions.append(action)
        for key, value in extra.items():
            extras.setdefault(key, []).append(value.copy())
        state = [part * valid[t][:, None] for part in state]
    return Fragment(
        observations=observations,
        actions=np.stack(actions),
        rewards=rng.standard_normal((length, slots)).astype(np.float32) * valid,
        terminated=ends & kind,
        truncated=ends & ~kind,
        valid=valid,
        extras={key: np.stack(values) for key, values in extras.items()},
        action_mask=masks,
        states=[np.stack(parts) for parts in zip(*kept, strict=True)],
        state_every=every,
        last_state=state,
        first_starts=np.ones(slots, bool),
        policy_version=7,
    )


def test_rewards_to_go_of_one_episode_by_hand():
    policy = make("PG", gamma=0.5, reward_scale=2.0)
    fragment = fragment_of(policy, length=3, slots=1)
    fragment.rewards[:] = [[1.0], [2.0], [4.0]]
    fragment.valid[:] = True
    fragment.terminated[:] = [[False], [False], [True]]
    fragment.truncated[:] = False
    batch = policy.postprocess(fragment)
    # 2 (1 + 0.5 * 2 + 0.25 * 4), 2 (2 + 0.5 * 4), 2 * 4
    np.testing.assert_allclose(batch["advantages"], [6.0, 8.0, 8.0])
    # An episode that was cut off counts as it is.
    fragment.terminated[:], fragment.truncated[:] = fragment.truncated.copy(), fragment.terminated.copy()
    np.testing.assert_allclose(policy.postprocess(fragment)["advantages"], [6.0, 8.0, 8.0])


def test_pg_weighs_log_probabilities_by_normalized_returns():
    policy = make("PG", entropy_coefficient=0.1)
    inputs = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    batch = {"actions": torch.tensor([1, 0]), "advantages": torch.tensor([3.0, -1.0])}
    loss, stats = policy.loss(inputs, torch.zeros(2), batch, None)
    log_p = torch.log_softmax(inputs, -1)
    entropy = -(log_p.exp() * log_p).sum(-1).mean()
    expected = -(log_p[0, 1] * 3 - log_p[1, 0]) / 2
    torch.testing.assert_close(loss, expected - 0.1 * entropy)
    torch.testing.assert_close(stats, torch.stack([expected, entropy]))
    prepared, _ = policy.prepare(SampleBatch({"advantages": np.array([1.0, 3.0], np.float32)}))
    np.testing.assert_allclose(prepared["advantages"], [-1.0, 1.0])


def test_the_actor_critic_loss_by_hand_padding_left_out():
    policy = make("A2C", value_loss_coefficient=0.25)
    inputs = torch.tensor([[0.0, 0.0, 0.0], [5.0, 0.0, 0.0]])
    batch = {
        "actions": torch.tensor([1, 0]),
        "advantages": torch.tensor([3.0, 100.0]),
        "value_targets": torch.tensor([4.0, 100.0]),
    }
    weights = torch.tensor([1.0, 0.0])
    loss, stats = policy.loss(inputs, torch.tensor([2.0, 0.0]), batch, weights)
    torch.testing.assert_close(loss, torch.tensor(3 * np.log(3) + 0.25 * 0.5 * 4, dtype=torch.float32))
    torch.testing.assert_close(stats[2], torch.tensor(2.0))


def test_sequences_end_with_a_row_that_only_bootstraps():
    policy = make("IMPALA", fragment_length=4)
    fragment = fragment_of(policy, length=10, slots=3)
    batch = policy.postprocess(fragment)
    assert batch.time_major
    assert batch.policy_version == 7
    assert batch["observations"].shape == (5, 9, 3)  # 10 steps are 4, 4 and 2 for each of 3 slots
    assert batch.count == fragment.valid.sum()
    assert not batch["valid"][-1].any()
    for chunk in range(3):
        here = slice(3 * chunk, 3 * chunk + 3)
        steps = min(4, 10 - 4 * chunk)
        np.testing.assert_array_equal(
            batch["observations"][: steps + 1, here], fragment.observations[4 * chunk : 4 * chunk + steps + 1]
        )
        np.testing.assert_array_equal(batch["valid"][:steps, here], fragment.valid[4 * chunk : 4 * chunk + steps])
    # The last sequences are short: behind their bootstrap row is padding, which is no transition either.
    assert not batch["valid"][2:, 6:].any()


def test_fragments_of_any_length_can_be_joined():
    policy = make("IMPALA", fragment_length=4)
    batches = [policy.postprocess(fragment_of(policy, length=length)) for length in (3, 4, 9)]
    joined = SampleBatch.concat(batches)
    assert joined.count == sum(batch.count for batch in batches)


@pytest.mark.parametrize(("settings", "length"), [({"fragment_length": 3}, 3), ({"fragment_length": 10}, 4)])
def test_recurrent_sequences_are_no_longer_than_fragments(settings, length):
    policy = make("IMPALA", model={"lstm_size": 5}, **settings)
    batch = policy.postprocess(fragment_of(policy, length=settings["fragment_length"]))
    assert len(batch["valid"]) == length + 1
    whole = make("IMPALA", model={"lstm_size": 5}, batch_mode="completeEpisodes", **settings)
    assert len(whole.postprocess(fragment_of(whole, length=3))["valid"]) == 5


def test_recurrent_sequences_begin_with_the_states_that_acted():
    policy = make("IMPALA", model={"lstm_size": 5})
    fragment = fragment_of(policy, length=10, slots=3)
    batch = policy.postprocess(fragment)
    assert batch["state_in_0"].shape == (9, 5)
    np.testing.assert_array_equal(batch["state_in_0"][3:6], fragment.states[0][1])
    inputs, values = policy.forward({name: torch.from_numpy(column) for name, column in batch.items()})
    for chunk in range(3):
        steps = min(4, 10 - 4 * chunk)
        here = slice(4 * chunk, 4 * chunk + steps)
        # What is unrolled on the learner is what was acted with, resets included.
        valid = fragment.valid[here]
        got = values[:steps, 3 * chunk : 3 * chunk + 3].detach().numpy()
        np.testing.assert_allclose(got[valid], fragment.extras["values"][here][valid], atol=1e-6)
        got = inputs[:steps, 3 * chunk : 3 * chunk + 3].detach().numpy()
        np.testing.assert_allclose(got[valid], fragment.extras["dist_inputs"][here][valid], atol=1e-6)


def test_on_policy_impala_is_a2c():
    """With lambda 1, and the policy that sampled, both are the same gradient."""
    settings = {"gamma": 0.9, "entropy_coefficient": 0.01, "fragment_length": 10}
    impala = make("IMPALA", **settings)
    a2c = make("A2C", gae_lambda=1.0, **settings)
    a2c.set_weights(impala.get_weights(), 0)
    fragment = fragment_of(impala, length=10, slots=3)
    one, _ = impala.gradients(impala.postprocess(fragment))
    two, _ = a2c.gradients(a2c.postprocess(fragment))
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_appos_gradient_is_impalas_where_nothing_is_clipped_and_nothing_where_all_is():
    config = {"fragment_length": 10, "value_loss_coefficient": 0.0, "entropy_coefficient": 0.0}
    appo, impala = make("APPO", normalize_advantages=False, **config), make("IMPALA", **config)
    appo.set_weights(impala.get_weights(), 0)
    batch = impala.postprocess(fragment_of(impala))
    np.testing.assert_allclose(appo.gradients(batch)[0], impala.gradients(batch)[0], atol=1e-6)
    # Actions that have become far likelier, or far less likely, than they were are beyond the clip range on both sides.
    ratios = {5.0: 1.0, 0.2: -1.0}
    for ratio, sign in ratios.items():
        shifted = batch.with_columns(behaviour_logp=batch["behaviour_logp"] - np.float32(np.log(ratio)))
        weights = torch.from_numpy(shifted["valid"]).float()
        logp = torch.zeros(weights.shape, requires_grad=True)
        trace = type("Trace", (), {"advantages": sign * weights, "rhos": weights})
        appo.policy_loss(logp, logp + np.log(ratio), trace, weights).backward()
        assert not logp.grad.any()


@pytest.mark.parametrize("name", list(GRAPHS))
@pytest.mark.parametrize("actions", list(ACTIONS))
@pytest.mark.parametrize("model", [{}, {"lstm_size": 4}], ids=["feed-forward", "lstm"])
def test_every_graph_takes_every_action_space_and_memory(name, actions, model):
    policy = make(name, actions, model)
    mask = policy.distribution.mask_size > 0
    batch = policy.postprocess(fragment_of(policy, mask=mask))
    gradient, stats = policy.gradients(batch)
    assert np.isfinite(gradient).all()
    assert gradient.any()
    assert all(np.isfinite(value) for value in stats.values())
    before = policy.get_weights()
    policy.apply_gradients(gradient)
    assert not np.array_equal(before, policy.get_weights())


def test_masked_actions_have_no_gradient():
    policy = make("IMPALA")
    fragment = fragment_of(policy, mask=True)
    fragment.action_mask[..., 2] = False
    batch = policy.postprocess(fragment)
    inputs, _ = policy.forward({name: torch.from_numpy(column) for name, column in batch.items()})
    chances = torch.softmax(inputs, -1)[torch.from_numpy(batch["valid"])]
    assert (chances[:, 2] == 0).all()


def test_coefficients_follow_their_schedules():
    points = [{"timesteps": 0, "value": 1.0}, {"timesteps": 100, "value": 0.0}]
    for name in GRAPHS:
        policy = make(name, entropy_coefficient_schedule=points)
        policy.on_global_timesteps(25)
        assert policy.entropy_coefficient == pytest.approx(0.75)
    appo = make("APPO", clip_range_schedule=points)
    appo.on_global_timesteps(50)
    assert appo.clip_range == pytest.approx(0.5)
