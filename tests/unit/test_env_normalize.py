"""The observation filter: exact moments however they were gathered, constant in between."""

from __future__ import annotations

import numpy as np
import pytest

from rlcore.env.normalize import MeanStdFilter

DATA = np.random.default_rng(0).normal([1e6, -3, 0], [2, 0.5, 0], (40, 8, 3))


def test_moments_are_those_of_all_observations_together() -> None:
    filter_ = MeanStdFilter((3,))
    for fragment in np.array_split(DATA, 7):
        filter_.observe(fragment)
        filter_.merge([filter_.take_delta()])
    np.testing.assert_allclose(filter_.mean, DATA.mean(axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(filter_.std, np.sqrt(DATA.var(axis=(0, 1)) + 1e-8), rtol=1e-6)
    assert filter_.count == 320


def test_filtered_observations_have_mean_0_and_deviation_1_and_are_clipped() -> None:
    data = np.random.default_rng(1).normal(5, 3, (1000, 4)).astype(np.float32)
    filter_ = MeanStdFilter((4,), clip=3.0)
    filter_.observe(data)
    filter_.merge([filter_.take_delta()])
    filtered = filter_(data)
    assert filtered.dtype == np.float32
    assert np.abs(filtered.mean(axis=0)).max() < 0.01
    assert np.abs(filtered.std(axis=0) - 1).max() < 0.03
    assert filter_(np.full((1, 4), 1e9)).tolist() == [[3] * 4]
    assert filter_(np.full((1, 4), -1e9)).tolist() == [[-3] * 4]


def test_a_feature_that_never_changes_becomes_zero() -> None:
    filter_ = MeanStdFilter((1,))
    filter_.observe(np.full((10, 1), 7.0))
    filter_.merge([filter_.take_delta()])
    assert filter_(np.full((2, 1), 7.0)).tolist() == [[0], [0]]


def test_statistics_stay_as_they_are_until_they_are_synchronized() -> None:
    filter_ = MeanStdFilter((3,))
    before = filter_(DATA[0])
    filter_.observe(DATA)
    np.testing.assert_array_equal(filter_(DATA[0]), before)
    np.testing.assert_array_equal(before, np.clip(DATA[0].astype(np.float32), -10, 10))


def test_invalid_rows_are_left_out() -> None:
    valid = np.random.default_rng(2).random((40, 8)) < 0.5
    filter_ = MeanStdFilter((3,))
    filter_.observe(DATA, valid)
    filter_.observe(np.full((1, 2, 3), np.nan), np.zeros((1, 2), bool))
    filter_.merge([filter_.take_delta()])
    np.testing.assert_allclose(filter_.mean, DATA[valid].mean(axis=0), rtol=1e-12)
    assert filter_.count == valid.sum()


def test_many_evaluators_agree_to_the_last_bit_after_a_synchronization() -> None:
    def synchronize() -> list[MeanStdFilter]:
        master, evaluators = MeanStdFilter((3,)), [MeanStdFilter((3,)) for _ in range(3)]
        for fragment in np.array_split(DATA, 5):
            for part, evaluator in zip(np.array_split(fragment, 3), evaluators, strict=True):
                evaluator.observe(part)
            master.merge([evaluator.take_delta() for evaluator in evaluators])
            for evaluator in evaluators:
                evaluator.set_state(master.get_state())
        return [master, *evaluators]

    first, second = synchronize(), synchronize()
    for filter_ in first[1:] + second:
        for key, value in first[0].get_state().items():
            np.testing.assert_array_equal(filter_.get_state()[key], value)
    np.testing.assert_allclose(first[0].mean, DATA.mean(axis=(0, 1)), rtol=1e-12)


def test_state_holds_what_was_gathered_and_not_yet_merged() -> None:
    filter_, resumed = MeanStdFilter((3,)), MeanStdFilter((3,))
    filter_.observe(DATA[:10])
    filter_.merge([filter_.take_delta()])
    filter_.observe(DATA[10:])
    resumed.set_state(filter_.get_state())
    for each in (filter_, resumed):
        each.merge([each.take_delta()])
    np.testing.assert_array_equal(filter_(DATA), resumed(DATA))
    assert resumed.count == 320


@pytest.mark.parametrize("shape", [(5,), (2, 6, 6)])
def test_any_shape_and_dtype_is_filtered_into_the_array_given(shape: tuple[int, ...]) -> None:
    filter_ = MeanStdFilter(shape)
    data = np.random.default_rng(0).integers(0, 255, (7, 3, *shape), dtype=np.uint8)
    filter_.observe(data)
    filter_.merge([filter_.take_delta()])
    out = np.empty(data.shape, np.float32)
    assert filter_(data, out) is out
    np.testing.assert_array_equal(out, filter_(data))
