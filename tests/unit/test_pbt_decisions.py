"""Population based training's decisions: who copies whom, and how hyper-parameters change."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcore.api.population import PopulationSpec
from rlcore.driver.pbt import config_with, exploits, explored, first_values, require_possible
from rlcore.errors import UserError
from tests.jobs import make_job

RATE = {"parameter": "learningRate", "minimum": 1e-4, "maximum": 1e-2, "scale": "log"}
BATCH = {"parameter": "minibatchSize", "values": [32, 64, 128]}
CONFIG = make_job().spec.config


def population(**fields) -> PopulationSpec:
    return PopulationSpec.model_validate(
        {"size": 8, "mutations": [RATE, BATCH], **fields}, by_name=False, by_alias=True
    )


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_worst_quantile_copies_the_best():
    chosen = exploits(population(), [5, 1, 8, 3, 9, 2, 7, 6], rng())
    assert set(chosen) == {1, 5}
    assert set(chosen.values()) <= {4, 2}


def test_a_trial_without_a_score_is_worst_of_all():
    chosen = exploits(population(), [5, None, 8, 3, 9, float("nan"), 7, 6], rng())
    assert set(chosen) == {1, 5}


def test_equals_are_not_copied():
    assert exploits(population(), [500.0] * 8, rng()) == {}
    assert exploits(population(), [None] * 8, rng()) == {}


def test_two_trials_have_a_best_and_a_worst():
    assert exploits(population(size=2), [1.0, 2.0], rng()) == {0: 1}


@given(
    st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=2, max_size=40),
    st.floats(0.01, 0.5),
    st.integers(0, 9),
)
def test_nobody_is_copied_and_a_copy_at_once(scores, quantile, seed):
    chosen = exploits(population(quantile=quantile), scores, rng(seed))
    assert not set(chosen) & set(chosen.values())


def test_the_same_seed_decides_the_same():
    scores = [5, 1, 8, 3, 9, 2, 7, 6]
    assert [exploits(population(), scores, rng(seed)) for seed in range(5)] == [
        exploits(population(), scores, rng(seed)) for seed in range(5)
    ]
    values = {"learningRate": 1e-3, "minibatchSize": 64}
    assert explored(population(), CONFIG, values, rng(3)) == explored(population(), CONFIG, values, rng(3))


def test_first_values_fill_their_range_evenly_in_its_own_scale():
    drawn = first_values(population(size=256), CONFIG, rng())
    rates = np.log10([values["learningRate"] for values in drawn])
    assert rates.min() >= -4
    assert rates.max() <= -2
    np.testing.assert_allclose(np.quantile(rates, [0.25, 0.5, 0.75]), [-3.5, -3, -2.5], atol=0.2)
    assert {values["minibatchSize"] for values in drawn} == {32, 64, 128}
    assert all(isinstance(values["minibatchSize"], int) for values in drawn)


def test_without_resampling_values_move_by_the_factor_and_stay_in_their_range():
    spec = population(resampleProbability=0, perturbationFactor=1.5)
    found = [explored(spec, CONFIG, {"learningRate": 8e-3, "minibatchSize": 64}, rng(seed)) for seed in range(20)]
    assert {round(values["learningRate"], 6) for values in found} == {round(8e-3 / 1.5, 6), 1e-2}
    assert {values["minibatchSize"] for values in found} == {32, 128}


def test_a_value_at_the_end_of_its_list_stays_or_goes_back():
    spec = population(resampleProbability=0)
    found = [explored(spec, CONFIG, {"learningRate": 1e-3, "minibatchSize": 128}, rng(seed)) for seed in range(20)]
    assert {values["minibatchSize"] for values in found} == {64, 128}


def test_with_resampling_values_are_drawn_anew():
    spec = population(resampleProbability=1)
    found = {
        explored(spec, CONFIG, {"learningRate": 1e-4, "minibatchSize": 32}, rng(s))["learningRate"] for s in range(9)
    }
    assert len(found) == 9
    assert all(1e-4 <= value <= 1e-2 for value in found)


def test_the_config_has_the_values_and_what_was_set_before():
    config = config_with(CONFIG, {"learningRate": 0.005, "minibatchSize": 64})
    assert (config.learning_rate, config.minibatch_size, config.train_batch_size) == (0.005, 64, 512)


def test_a_mutation_that_the_algorithm_refuses_is_said_before_anything_starts():
    mutations = [RATE, {"parameter": "minibatchSize", "values": [64, 1024]}]
    spec = make_job(population={"size": 2, "mutations": mutations}).spec
    with pytest.raises(UserError, match=r"mutations\[1\]\.values: minibatchSize cannot be 1024: .*trainBatchSize"):
        require_possible(spec)
