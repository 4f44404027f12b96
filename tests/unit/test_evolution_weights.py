"""What moves ES and ARS: ranks, mirrored estimates, the best directions, the noise table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rlcore.errors import UserError
from rlcore.policy.evolution_weights import centred_ranks, mirrored_weights, top_direction_weights
from rlcore.policy.noise_table import direction, draw_indices, make_noise, require_room, weighted_sum


def test_ranks_go_from_minus_a_half_to_a_half():
    returns = np.array([[10.0, -3.0], [1000.0, 0.0]])
    np.testing.assert_allclose(centred_ranks(returns), [[1 / 6, -1 / 2], [1 / 2, -1 / 6]], rtol=1e-6)


def test_equal_returns_share_their_rank():
    np.testing.assert_allclose(centred_ranks(np.array([5.0, 1.0, 5.0])), [0.25, -0.5, 0.25])
    np.testing.assert_array_equal(centred_ranks(np.full((4, 2), 500.0)), np.zeros((4, 2)))


@given(arrays.arrays(np.float64, st.tuples(st.integers(1, 20), st.just(2)), elements=st.floats(-1e6, 1e6)))
def test_ranks_are_balanced_and_keep_the_order(returns):
    ranks = centred_ranks(returns)
    assert abs(ranks.sum()) < 1e-3
    assert np.abs(ranks).max() <= 0.5
    flat, ranked = returns.reshape(-1), ranks.reshape(-1)
    order = np.argsort(flat, kind="stable")
    assert (np.diff(ranked[order]) >= 0).all()
    assert ((np.diff(flat[order]) == 0) == (np.diff(ranked[order]) == 0)).all()


def test_the_mirrored_estimate_of_a_quadratic_is_its_gradient():
    # F(θ) = -½ θᵀAθ + bᵀθ: its even part cancels, so the estimate is (εεᵀ) grad, whose mean is the gradient.
    rng = np.random.default_rng(0)
    size, directions, std = 6, 200_000, 0.1
    root = rng.normal(size=(size, size))
    matrix, slope, theta = root @ root.T, rng.normal(size=size), rng.normal(size=size)
    noise = rng.normal(size=(directions, size))

    def fitness(points):
        return -0.5 * np.einsum("ni,ij,nj->n", points, matrix, points) + points @ slope

    both = np.stack([fitness(theta + std * noise), fitness(theta - std * noise)], axis=1)
    estimate = mirrored_weights(both, std) @ noise
    np.testing.assert_allclose(estimate, slope - matrix @ theta, atol=0.15)


def test_in_one_dimension_the_mirrored_estimate_is_exact():
    # F(x) = -x², at x = 3 with ε = 2, σ = 0.5: (F(4) - F(2)) / (2 · 0.5) · 2 = -24 = ε² F'(3)
    both = np.array([[-16.0, -4.0]])
    assert mirrored_weights(both, 0.5)[0] * 2 == pytest.approx(-24.0)


def test_only_the_best_directions_count_scaled_by_their_deviation():
    returns = np.array([[1.0, 2.0], [10.0, 0.0], [3.0, 9.0], [0.0, 0.5]])
    weights = top_direction_weights(returns, 2)
    deviation = np.std([10.0, 0.0, 3.0, 9.0])
    np.testing.assert_allclose(weights, [0, 10 / (2 * deviation), -6 / (2 * deviation), 0], rtol=1e-6)


def test_without_a_number_all_directions_count():
    returns = np.array([[1.0, 2.0], [10.0, 0.0]])
    np.testing.assert_allclose(top_direction_weights(returns, None), [-1, 10] / (2 * np.std(returns)), rtol=1e-6)


def test_directions_that_all_earn_the_same_move_nothing():
    np.testing.assert_array_equal(top_direction_weights(np.full((3, 2), 7.0), 2), np.zeros(3))


def test_the_weighted_sum_is_that_of_the_rows():
    noise = make_noise(10_000)
    indices = draw_indices(np.random.default_rng(1), 700, 10_000, 50)
    assert 0 <= indices.min() <= indices.max() <= 9_950
    weights = np.random.default_rng(2).normal(size=700).astype(np.float32)
    rows = np.stack([direction(noise, int(i), 50) for i in indices])
    np.testing.assert_allclose(weighted_sum(noise, indices, weights, 50), weights @ rows, rtol=1e-3, atol=1e-3)


def test_the_table_is_made_once_and_cannot_be_changed():
    assert make_noise(10_000) is make_noise(10_000)
    with pytest.raises(ValueError, match="read-only"):
        make_noise(10_000)[0] = 1


def test_a_table_that_is_too_small_is_refused_with_the_size_to_take():
    with pytest.raises(UserError, match="1,000 numbers are too few for a policy of 600 parameters") as caught:
        require_room(1000, 600)
    assert "60,000" in caught.value.hint
