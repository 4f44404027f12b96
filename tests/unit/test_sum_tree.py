"""The sum tree against a plain array."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.replay.sum_tree import FANOUT, SumTree

updates = st.lists(st.tuples(st.integers(0, 199), st.floats(0, 1e6)), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(updates, min_size=1, max_size=5), st.integers(200, 9000))
def test_totals_and_leaves_are_those_of_a_plain_array(batches, capacity):
    tree, plain = SumTree(capacity), np.zeros(capacity)
    for batch in batches:
        indices, values = np.array([i for i, _ in batch]), np.array([v for _, v in batch])
        tree.update(indices, values)
        plain[indices] = values
        np.testing.assert_array_equal(tree[np.arange(capacity)], plain)
        assert tree.total == pytest.approx(plain.sum(), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(updates, st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=30))
def test_found_leaves_are_where_the_running_sum_passes(batch, shares):
    tree, plain = SumTree(200), np.zeros(200)
    # Whole numbers add up without rounding, so that both sides mean the same boundary.
    indices, values = np.array([i for i, _ in batch]), np.floor([v for _, v in batch])
    tree.update(indices, values)
    plain[indices] = values
    if plain.sum() == 0:
        with pytest.raises(ValueError, match="all leaves"):
            tree.find(np.array(shares))
        return
    masses = np.floor(np.array(shares) * plain.sum())
    np.testing.assert_array_equal(tree.find(masses), np.searchsorted(np.cumsum(plain), masses, side="right"))


def test_a_leaf_of_zero_is_never_found_whatever_the_rounding():
    rng = np.random.default_rng(0)
    tree = SumTree(5000)
    indices = rng.choice(5000, 700, replace=False)
    tree.update(indices, rng.random(700) * 1e-3 + 1e-9)
    found = tree.find(np.concatenate([rng.random(20_000) * tree.total, [tree.total, np.nextafter(tree.total, np.inf)]]))
    assert set(found) <= set(indices)


def test_leaves_are_found_in_proportion_to_their_values():
    tree = SumTree(FANOUT * FANOUT + 1)
    tree.update(np.array([0, 70, FANOUT * FANOUT]), np.array([1.0, 3.0, 4.0]))
    found = tree.find(np.random.default_rng(1).random(80_000) * tree.total)
    counts = np.array([(found == i).sum() for i in (0, 70, FANOUT * FANOUT)]) / 80_000
    np.testing.assert_allclose(counts, [1 / 8, 3 / 8, 4 / 8], atol=0.01)


def test_of_an_index_named_twice_the_last_value_stays():
    tree = SumTree(10)
    tree.update(np.array([3, 3]), np.array([5.0, 2.0]))
    assert tree.total == 2.0


@pytest.mark.parametrize("values", [[-1.0], [np.nan], [np.inf]])
def test_values_that_are_no_mass_are_refused(values):
    with pytest.raises(ValueError, match="finite"):
        SumTree(4).update(np.array([0]), np.array(values))


def test_indices_out_of_range_are_refused():
    with pytest.raises(ValueError, match="4 leaves"):
        SumTree(4).update(np.array([4]), np.array([1.0]))
