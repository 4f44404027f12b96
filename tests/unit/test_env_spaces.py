"""Every supported space becomes one flat array, and one flat action array becomes every supported action."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from rlcore.env.actions import ActionLayout, action_leaves, mask_size
from rlcore.env.base import VectorEnv
from rlcore.env.masks import split_mask_space, write_mask
from rlcore.env.native import NativeVectorEnv
from rlcore.env.observations import ObservationLayout, image_layout
from rlcore.env.sync import SyncVectorEnv
from rlcore.errors import UnsupportedError
from tests.envs import MaskedEnv, SampledEnv

NESTED = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (8, 9, 3), np.uint8),
        "pair": spaces.Tuple((spaces.Discrete(3, start=-1), spaces.MultiBinary((2, 2)))),
        "position": spaces.Box(-2, 2, (2, 3), np.float64),
        "tool": spaces.MultiDiscrete([2, 4]),
    }
)
OBSERVATION_SPACES = [
    (spaces.Box(-1, 1, (5,), np.float32), (5,), np.float32),
    (spaces.Box(-1, 1, (5,), np.float64), (5,), np.float32),
    (spaces.Box(-1, 1, (), np.float32), (1,), np.float32),
    (spaces.Box(0, 9, (2, 3), np.int64), (6,), np.float32),
    (spaces.Discrete(4, start=2), (4,), np.float32),
    (spaces.MultiDiscrete([2, 3]), (5,), np.float32),
    (spaces.MultiDiscrete([[2, 3], [4, 5]]), (14,), np.float32),
    (spaces.MultiBinary(3), (3,), np.float32),
    (spaces.Box(0, 255, (84, 84, 3), np.uint8), (3, 84, 84), np.uint8),
    (spaces.Box(0, 255, (4, 84, 84), np.uint8), (4, 84, 84), np.uint8),
    (spaces.Box(0, 255, (84, 84), np.uint8), (1, 84, 84), np.uint8),
    (spaces.Box(0, 255, (4, 84, 84, 3), np.uint8), (12, 84, 84), np.uint8),
    (spaces.Box(0, 1, (10, 10, 4), np.bool_), (4, 10, 10), np.float32),
    (spaces.Box(0, 1, (3, 3, 2), np.int8), (18,), np.float32),
    (spaces.Box(0, 255, (128,), np.uint8), (128,), np.float32),
    (spaces.Dict({"only": spaces.Box(0, 255, (84, 84, 3), np.uint8)}), (3, 84, 84), np.uint8),
    (NESTED, (216 + 3 + 4 + 6 + 6,), np.float32),
]


@pytest.mark.parametrize(("space", "shape", "dtype"), OBSERVATION_SPACES, ids=lambda value: str(value)[:40])
def test_an_observation_space_becomes_one_box_that_holds_what_is_written(
    space: gym.Space, shape: tuple[int, ...], dtype: type
) -> None:
    layout = ObservationLayout(space)
    assert layout.space.shape == shape
    assert layout.space.dtype == dtype
    out = layout.empty(3)
    writer = layout.writer(out)
    space.seed(0)
    for index in range(3):
        writer.write(index, space.sample())
        assert layout.space.contains(out[index])


@pytest.mark.parametrize("space", [space for space, _, _ in OBSERVATION_SPACES], ids=lambda space: str(space)[:40])
def test_a_batch_is_written_as_its_rows_are(space: gym.Space) -> None:
    layout = ObservationLayout(space)
    space.seed(1)
    samples = [space.sample() for _ in range(4)]
    one_by_one, together = layout.empty(4), layout.empty(4)
    for index, sample in enumerate(samples):
        layout.writer(one_by_one).write(index, sample)
    layout.writer(together).write_all(concatenate(space, samples, create_empty_array(space, 4)))
    np.testing.assert_array_equal(one_by_one, together)


def test_leaves_of_a_nested_observation_lie_side_by_side_in_order() -> None:
    layout = ObservationLayout(NESTED)
    out = layout.empty(1)
    image = np.zeros((8, 9, 3), np.uint8)
    image[0, 1, 2] = 255
    pair = (np.int64(1), np.array([[1, 0], [0, 1]], np.int8))
    position = np.array([[0.0, 1, 2], [-2, -1, 0]])
    layout.writer(out).write(0, {"image": image, "pair": pair, "position": position, "tool": np.array([1, 0])})
    expected_image = np.zeros((3, 8, 9), np.float32)
    expected_image[2, 0, 1] = 1.0
    np.testing.assert_allclose(out[0, :216], expected_image.reshape(-1))
    assert out[0, 216:].tolist() == [0, 0, 1, 1, 0, 0, 1, 0, 1, 2, -2, -1, 0, 0, 1, 1, 0, 0, 0]


def test_an_image_keeps_its_pixels_when_its_channels_move_first() -> None:
    layout = ObservationLayout(spaces.Box(0, 255, (4, 10, 12, 3), np.uint8))
    frames = np.random.default_rng(0).integers(0, 256, (4, 10, 12, 3), dtype=np.uint8)
    out = layout.empty(2)
    layout.writer(out).write(1, frames)
    np.testing.assert_array_equal(out[1].reshape(4, 3, 10, 12), frames.transpose(0, 3, 1, 2))
    assert not out[0].any()


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((84, 84, 3), "HWC"),
        ((210, 160, 3), "HWC"),
        ((3, 210, 160), "CHW"),
        ((4, 84, 84), "CHW"),
        ((8, 8, 111), "HWC"),
        ((10, 10, 10), "HWC"),
        ((84, 84), "HW"),
        ((3, 3, 2), None),
        ((20, 20), None),
        ((6,), None),
    ],
)
def test_which_boxes_are_images(shape: tuple[int, ...], layout: str | None) -> None:
    assert image_layout(spaces.Box(0, 255, shape, np.uint8)) == layout


def test_a_discrete_observation_outside_its_space_is_refused() -> None:
    layout = ObservationLayout(spaces.Discrete(3))
    with pytest.raises(ValueError, match="outside its space"):
        layout.writer(layout.empty(1)).write(0, -1)


@pytest.mark.parametrize(
    ("space", "where"),
    [
        (spaces.Text(5), "the observation space is a Text"),
        (spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2), spaces.Text(3)))}), r"\['a'\]\[1\] is a Text"),
        (spaces.Dict({}), "the observation space is empty"),
    ],
)
def test_an_unsupported_space_is_named_with_its_place(space: gym.Space, where: str) -> None:
    with pytest.raises(UnsupportedError, match=where):
        ObservationLayout(space)


ACTION_SPACES = [
    (spaces.Discrete(4), (), np.int64),
    (spaces.Discrete(4, start=-2), (), np.int64),
    (spaces.MultiDiscrete([2, 3]), (2,), np.int64),
    (spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [2, 2]]), (4,), np.int64),
    (spaces.MultiBinary((2, 2)), (4,), np.int8),
    (spaces.Box(-1, 1, (2, 3), np.float64), (6,), np.float32),
    (spaces.Box(0, 9, (2,), np.int32), (2,), np.float32),
    (NESTED, (216 + 1 + 4 + 6 + 2,), np.float32),
]


@pytest.mark.parametrize(("space", "shape", "dtype"), ACTION_SPACES, ids=lambda value: str(value)[:40])
def test_any_flat_action_array_decodes_to_actions_of_the_space(
    space: gym.Space, shape: tuple[int, ...], dtype: type
) -> None:
    layout = ActionLayout(space)
    assert (layout.shape, layout.dtype) == (shape, dtype)
    flat = layout.zeros(5)
    rng = np.random.default_rng(0)
    for _, leaf, begin, end in action_leaves(space):
        columns = np.zeros((5, end - begin))
        if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
            sizes = np.atleast_1d(leaf.n if isinstance(leaf, spaces.Discrete) else leaf.nvec.reshape(-1))
            columns[:] = rng.integers(0, sizes, (5, len(sizes)))
        elif isinstance(leaf, spaces.MultiBinary):
            columns[:] = rng.integers(0, 2, columns.shape)
        else:
            columns[:] = rng.normal(0, 300, columns.shape)
        flat.reshape(5, -1)[:, begin:end] = columns
    rows = layout.rows(flat)
    assert all(space.contains(row) for row in rows)
    batch = layout.decode(flat)
    assert batch_space(space, 5).contains(batch)


def test_leaves_of_a_nested_action_take_their_columns_in_order() -> None:
    space = spaces.Dict(
        {
            "arm": spaces.Box(-1, 1, (2,), np.float32),
            "gear": spaces.Discrete(3, start=1),
            "lights": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 5]))),
        }
    )
    assert [(path, begin, end) for path, _, begin, end in action_leaves(space)] == [
        (("arm",), 0, 2),
        (("gear",), 2, 3),
        (("lights", 0), 3, 5),
        (("lights", 1), 5, 7),
    ]
    (action,) = ActionLayout(space).rows(np.array([[5.0, -0.5, 2, 1, 0, 1, 4]], np.float32))
    np.testing.assert_array_equal(action["arm"], np.array([1.0, -0.5], np.float32))
    assert action["gear"] == 3
    assert [part.tolist() for part in action["lights"]] == [[1, 0], [1, 4]]


def test_box_actions_are_clipped_only_where_the_space_is_bounded() -> None:
    space = spaces.Box(np.array([-1, -np.inf], np.float32), np.array([np.inf, 2], np.float32))
    actions = np.array([[-9, -9], [9, 9]], np.float32)
    assert ActionLayout(space).decode(actions).tolist() == [[-1, -9], [9, 2]]


def test_an_environment_may_keep_the_action_it_was_given() -> None:
    made: list[SampledEnv] = []

    def make() -> gym.Env:
        made.append(SampledEnv(spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (2,), np.float32)))
        return made[-1]

    env = SyncVectorEnv(make, 2)
    env.reset(0)
    flat = np.zeros((2, 2), np.float32)
    for value in (0.25, 0.5):
        flat[:] = value
        env.step(flat)
    assert [action.tolist() for action in made[1].actions] == [[0.25, 0.25], [0.5, 0.5]]


@pytest.mark.parametrize("space", [space for space, _, _ in OBSERVATION_SPACES], ids=lambda space: str(space)[:40])
def test_observations_arrive_unchanged_through_a_vector_environment(space: gym.Space) -> None:
    made: list[SampledEnv] = []

    def make() -> gym.Env:
        made.append(SampledEnv(space, spaces.Discrete(2)))
        return made[-1]

    env = SyncVectorEnv(make, 2)
    layout = ObservationLayout(space)
    row = layout.empty(1)
    observations, _ = env.reset(3)
    for _ in range(5):
        for index in range(2):
            layout.writer(row).write(0, made[index].observed[-1])
            np.testing.assert_array_equal(observations[index], row[0])
        observations = env.step(np.zeros(2, np.int64)).observations
    assert not env.failures


@pytest.mark.parametrize("key", ["observation", "observations", "obs"])
def test_a_mask_beside_the_observation_is_taken_out_of_it(key: str) -> None:
    env = SyncVectorEnv(lambda: MaskedEnv("dict", key), 2)
    assert env.has_action_mask
    assert env.observation_space.shape == (1,)
    check_masked_episode(env)


def test_a_mask_in_info_is_found_by_the_first_reset() -> None:
    env = SyncVectorEnv(lambda: MaskedEnv("info"), 2)
    assert not env.has_action_mask
    check_masked_episode(env)


@pytest.mark.parametrize("style", ["dict", "info"])
def test_masks_of_a_native_vector_environment_are_found_too(style: str) -> None:
    def make() -> gym.vector.VectorEnv:
        return gym.vector.SyncVectorEnv([lambda: MaskedEnv(style)] * 2)

    check_masked_episode(NativeVectorEnv(make))


def check_masked_episode(env: VectorEnv) -> None:
    observations, mask = env.reset(0)
    assert env.has_action_mask
    for t in range(4):
        assert mask is not None
        assert mask.tolist() == [[action == t % 3 for action in range(3)]] * 2
        assert observations.tolist() == [[t]] * 2
        step = env.step(mask.argmax(axis=1))
        observations, mask = step.observations, step.action_mask
        assert step.valid.all()
    assert step.terminated.all()
    assert mask is not None
    assert mask.all(), "a row that allows nothing allows everything"
    step = env.step(np.zeros(2, np.int64))
    assert not step.valid.any()
    assert step.action_mask is not None
    assert step.action_mask.tolist() == [[True, False, False]] * 2


def test_a_mask_of_several_discrete_actions_may_be_a_tuple() -> None:
    assert mask_size(spaces.MultiDiscrete([2, 3])) == 5
    row = np.zeros(5, bool)
    write_mask(row, (np.array([1, 0]), np.array([0, 1, 1])))
    assert row.tolist() == [True, False, False, True, True]


def test_a_mask_that_does_not_fit_the_actions_is_refused() -> None:
    space = spaces.Dict({"action_mask": spaces.MultiBinary(4), "observation": spaces.Discrete(2)})
    with pytest.raises(UnsupportedError, match="has 4 entries, but the action space is Discrete"):
        split_mask_space(space, spaces.Discrete(3))
    with pytest.raises(UnsupportedError, match="4 entries"):
        split_mask_space(space, spaces.Box(-1, 1, (4,)))
