"""Policy graphs: acting, recurrence, gradients, weights, state, schedules."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlcore.api import ModelSpec, PPOConfig
from rlcore.errors import UserError
from rlcore.policy.models import build_model
from rlcore.policy.ppo import PPOPolicyGraph
from rlcore.sample_batch import Fragment, SampleBatch

VECTOR = gym.spaces.Box(-1, 1, (4,))
IMAGE = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
GRID = gym.spaces.Box(0, 1, (6, 10, 10), np.float32)


def make_policy(space=VECTOR, actions=None, config=None, seed=0, **model) -> PPOPolicyGraph:
    actions = actions or gym.spaces.Discrete(3)
    return PPOPolicyGraph(space, actions, PPOConfig(**(config or {})), ModelSpec(**model), seed=seed)


def make_fragment(policy: PPOPolicyGraph, length: int = 10, slots: int = 3, seed: int = 0) -> Fragment:
    rng = np.random.default_rng(seed)
    shape = policy.observation_space.shape
    observations = rng.standard_normal((length + 1, slots, *shape)).astype(np.float32)
    state, extras, actions, kept = policy.initial_state(slots), {}, [], []
    done = rng.random((length, slots)) < 0.2
    valid = np.ones((length, slots), bool)
    valid[1:] = ~done[:-1]
    done &= valid
    noise = policy.draw_noise(length, slots)
    for t in range(length):
        if state and t % 4 == 0:
            kept.append([part.copy() for part in state])
        action, state, extra = policy.act(observations[t], state, noise=noise[t])
        actions.append(action)
        for name, value in extra.items():
            extras.setdefault(name, []).append(value.copy())
        state = [part * valid[t][:, None] for part in state]
    return Fragment(
        observations=observations,
        actions=np.stack(actions),
        rewards=rng.standard_normal((length, slots)).astype(np.float32),
        terminated=done,
        truncated=np.zeros_like(done),
        valid=valid,
        extras={name: np.stack(values) for name, values in extras.items()},
        states=[np.stack(parts) for parts in zip(*kept, strict=True)],
        state_every=4,
        last_state=state,
        first_starts=np.ones(slots, bool),
    )


def test_equal_seeds_give_equal_networks_and_others_do_not():
    one, two, other = make_policy(seed=1), make_policy(seed=1), make_policy(seed=2)
    assert (one.get_weights() == two.get_weights()).all()
    assert not np.allclose(one.get_weights(), other.get_weights())


def test_a_new_policy_is_close_to_uniform():
    policy = make_policy()
    _, _, extras = policy.act(np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32), [], noise=None)
    probabilities = torch.softmax(torch.from_numpy(extras["dist_inputs"]), -1)
    assert (probabilities - 1 / 3).abs().max() < 0.02


@pytest.mark.parametrize(("space", "shape"), [(IMAGE, (4, 84, 84)), (GRID, (6, 10, 10))])
def test_images_get_convolutions_and_values_while_acting(space, shape):
    policy = make_policy(space)
    assert any(isinstance(module, torch.nn.Conv2d) for module in policy.model.modules())
    observations = np.zeros((2, *shape), space.dtype)
    actions, _, extras = policy.act(observations, [], noise=policy.draw_noise(1, 2)[0])
    assert actions.shape == (2,)
    assert extras["values"].shape == (2,)
    np.testing.assert_allclose(policy.values(observations, []), extras["values"], atol=1e-6)


def test_eight_bit_images_are_scaled_and_grids_are_not():
    dark, bright = (make_policy(IMAGE).values(np.full((1, 4, 84, 84), v, np.uint8), []) for v in (0, 255))
    assert abs(float(bright[0] - dark[0])) < 20
    encoder = build_model(GRID, make_policy(GRID).distribution, ModelSpec(), seed=0).encoder[0]
    assert encoder.scale == 1.0
    assert build_model(IMAGE, make_policy(IMAGE).distribution, ModelSpec(), seed=0).encoder[0].scale == 1 / 255


def test_layers_that_do_not_fit_the_image_are_named():
    with pytest.raises(UserError, match=r"spec.model.convLayers: layers .* do not fit images of shape \(6, 10, 10\)"):
        make_policy(GRID, conv_preset="nature")


def test_a_mask_rules_actions_out():
    policy = make_policy()
    mask = np.zeros((1000, 3), bool)
    mask[:, 1] = True
    observations = np.zeros((1000, 4), np.float32)
    for noise in (policy.draw_noise(1, 1000)[0], None):
        actions, _, _ = policy.act(observations, [], noise=noise, action_mask=mask)
        assert (actions == 1).all()


def test_recurrent_policies_unroll_to_what_they_acted_with():
    policy = make_policy(hiddens=[8], lstm_size=5)
    fragment = make_fragment(policy)
    batch = policy.postprocess(fragment)
    assert batch.time_major
    assert batch.count == int(fragment.valid.sum())
    tensors = {name: torch.from_numpy(column) for name, column in batch.items()}
    with torch.no_grad():
        inputs, values = policy.forward(tensors)
        logp = policy.distribution.logp(inputs, tensors["actions"]).numpy()
    valid = batch["valid"]
    np.testing.assert_allclose(logp[valid], batch["behaviour_logp"][valid], atol=1e-5)
    np.testing.assert_allclose(values.numpy()[valid], batch["values"][valid], atol=1e-5)


@pytest.mark.parametrize("model", [{}, {"activation": "elu"}, {"hiddens": [8], "lstm_size": 5}])
def test_rows_that_are_no_transition_do_not_touch_the_gradient(model):
    policy = make_policy(**model)
    fragment = make_fragment(policy)
    gradient, stats = policy.gradients(policy.postprocess(fragment))
    assert np.isfinite(list(stats.values())).all()
    assert np.abs(gradient).max() > 0
    fragment.rewards[~fragment.valid] = 1e6
    again, _ = policy.gradients(policy.postprocess(fragment))
    np.testing.assert_array_equal(gradient, again)


@pytest.mark.parametrize("model", [{}, {"hiddens": [8], "lstm_size": 5}])
def test_gradients_and_weights_cross_processes_as_one_vector_each(model):
    here, there = make_policy(seed=3, **model), make_policy(seed=4, **model)
    batch = here.postprocess(make_fragment(here))
    there.set_weights(here.get_weights(), version=1)
    gradient, _ = there.gradients(batch)
    here_gradient, _ = here.gradients(batch)
    np.testing.assert_array_equal(gradient, here_gradient)
    before = here.get_weights()
    here.apply_gradients(gradient)
    there.apply_gradients(gradient)
    assert not np.array_equal(before, here.get_weights())
    np.testing.assert_array_equal(here.get_weights(), there.get_weights())


def test_gradients_are_clipped_to_the_configured_norm():
    policy = make_policy(config={"max_gradient_norm": 0.25})
    policy.flat.gradient.fill_(3.0)
    norm = policy.flat.clip_gradient(0.25)
    assert norm == pytest.approx(3.0 * policy.flat.gradient.numel() ** 0.5, rel=1e-4)
    assert float(policy.flat.gradient.norm()) == pytest.approx(0.25, rel=1e-4)


@pytest.mark.parametrize("model", [{}, {"hiddens": [8], "lstm_size": 5}])
def test_a_restored_policy_goes_on_exactly(model):
    config = {"learning_rate_schedule": [{"timesteps": 0, "value": 1e-2}, {"timesteps": 1000, "value": 0.0}]}
    policy, twin = make_policy(config=config, **model), make_policy(config=config, seed=9, **model)
    batch = policy.postprocess(make_fragment(policy))
    policy.on_global_timesteps(100)
    for _ in range(3):
        policy.apply_gradients(policy.gradients(batch)[0])
    twin.set_state(policy.get_state())
    for each in (policy, twin):
        each.on_global_timesteps(500)
        each.apply_gradients(each.gradients(batch)[0])
    np.testing.assert_array_equal(policy.get_weights(), twin.get_weights())
    np.testing.assert_array_equal(policy.draw_noise(2, 3), twin.draw_noise(2, 3))


def test_schedules_move_learning_rate_clipping_and_entropy():
    falling = [{"timesteps": 0, "value": 1.0}, {"timesteps": 100, "value": 0.5}]
    config = {f"{name}_schedule": falling for name in ("learning_rate", "clip_range", "entropy_coefficient")}
    policy = make_policy(config=config)
    policy.on_global_timesteps(50)
    assert policy.adam.learning_rate == 0.75
    assert policy.coefficients.clip_range == 0.75
    assert policy.coefficients.entropy_coefficient == 0.75
    policy.on_global_timesteps(1_000_000)
    assert policy.adam.learning_rate == 0.5


def test_the_kl_coefficient_follows_its_target_and_is_saved():
    policy = make_policy(config={"kl_coefficient": 0.2, "kl_target": 0.01})
    policy.after_update({"kl": 0.03})
    assert policy.coefficients.kl_coefficient == pytest.approx(0.3)
    policy.after_update({"kl": 0.001})
    policy.after_update({"kl": 0.01})
    assert policy.coefficients.kl_coefficient == pytest.approx(0.15)
    twin = make_policy(config={"kl_coefficient": 0.2, "kl_target": 0.01})
    twin.set_state(policy.get_state())
    assert twin.coefficients.kl_coefficient == pytest.approx(0.15)


def test_weights_of_another_network_are_refused_with_both_shapes():
    with pytest.raises(ValueError, match=r"\(5,\).*policy with"):
        make_policy().set_weights(np.zeros(5, np.float32), 1)


class GoodModel(torch.nn.Module):
    def __init__(self, observation_space, num_outputs, width=7):
        super().__init__()
        self.body = torch.nn.Linear(observation_space.shape[0], width)
        self.policy, self.value = torch.nn.Linear(width, num_outputs), torch.nn.Linear(width, 1)

    def forward(self, observations):
        hidden = torch.relu(self.body(observations))
        return self.policy(hidden), self.value(hidden)


class BufferedModel(GoodModel):
    def __init__(self, observation_space, num_outputs):
        super().__init__(observation_space, num_outputs)
        self.norm = torch.nn.BatchNorm1d(7)


def no_module(observation_space, num_outputs):
    return {}


def broken_module(observation_space, num_outputs):
    raise ZeroDivisionError


def test_a_custom_model_acts_and_learns():
    policy = make_policy(custom=f"{__name__}:GoodModel", custom_kwargs={"width": 9})
    batch = policy.postprocess(make_fragment(policy))
    assert np.abs(policy.gradients(batch)[0]).max() > 0


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("no_such_module:Model", "no_such_module"),
        (f"{__name__}:Missing", "Missing"),
        (f"{__name__}:no_module", "made a dict, not a torch.nn.Module"),
        (f"{__name__}:broken_module", "cannot be made: ZeroDivisionError"),
        (f"{__name__}:BufferedModel", "has buffers"),
    ],
)
def test_a_custom_model_that_cannot_be_used_says_why(reference, message):
    with pytest.raises(UserError, match=message):
        make_policy(custom=reference)


def test_batches_with_kl_penalty_carry_the_old_distribution():
    policy = make_policy(config={"kl_coefficient": 0.2})
    batch: SampleBatch = policy.postprocess(make_fragment(policy))
    assert "dist_inputs" in batch
    assert "dist_inputs" not in make_policy().postprocess(make_fragment(make_policy()))
