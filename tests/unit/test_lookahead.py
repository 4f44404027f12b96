"""n-step transitions across the borders of fragments: the same as if there were none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.sample_batch import DEFAULT_POLICY, DISCOUNTS, NEXT_OBSERVATIONS, OBSERVATIONS, REWARDS, SampleBatch
from tests.jobs import make_evaluator_config

COUNTING = {"id": "tests.jobs:CountingEnv", "kwargs": {"length": 7, "limit": 1000}}


def evaluator(fragment_length: int, **config: Any) -> PolicyEvaluator:
    made = make_evaluator_config(
        algorithm="DQN",
        environment=config.pop("environment", COUNTING),
        evaluators={"envsPerEvaluator": 3, "pools": [{"name": "pool", "minReplicas": 0, "maxReplicas": 1}]},
        config={"nStep": 3, "gamma": 0.5, "fragmentLength": fragment_length, **config},
    )
    return PolicyEvaluator(made)


def rows_of(batches: list[SampleBatch]) -> list[tuple[float, ...]]:
    """Every transition, as something that sorts."""
    columns = (OBSERVATIONS, REWARDS, DISCOUNTS, NEXT_OBSERVATIONS)
    return sorted(
        tuple(float(x) for name in columns for x in np.atleast_1d(batch[name][row]))
        for batch in batches
        for row in range(batch.count)
    )


def sampled(length: int, steps: int) -> list[SampleBatch]:
    playing = evaluator(length)
    try:
        return [playing.sample().policy_batches[DEFAULT_POLICY] for _ in range(steps // length)]
    finally:
        playing.close()


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_short_fragments_make_the_transitions_of_a_long_one(length: int) -> None:
    short, long = rows_of(sampled(length, 60)), rows_of(sampled(60, 60))
    assert short == long


def test_no_return_is_shortened_but_by_the_end_of_an_episode() -> None:
    rows = np.array(rows_of(sampled(2, 60)))
    observation, reward, discount, following = rows.T
    bootstrapped = discount > 0
    np.testing.assert_array_equal(following[bootstrapped], observation[bootstrapped] + 3)
    np.testing.assert_allclose(discount[bootstrapped], 0.5**3)
    np.testing.assert_allclose(reward[bootstrapped], 1 + 0.5 + 0.25)
    # Three of the seven steps of an episode see its end.
    assert 0.3 < np.mean(~bootstrapped) < 0.55


def test_the_first_fragment_holds_back_and_counts_what_was_sampled() -> None:
    playing = evaluator(5)
    first, second = playing.sample(), playing.sample()
    playing.close()
    assert first.count == 15
    assert first.policy_batches[DEFAULT_POLICY].count == 15 - 2 * 3
    assert second.count == 15 - 3  # the step that begins the next episode is none
    assert second.policy_batches[DEFAULT_POLICY].count == 15 - 3


def test_a_fragment_shorter_than_the_lookahead_may_have_no_transition_yet() -> None:
    counts = [batch.count for batch in sampled(1, 4)]
    assert counts == [0, 0, 3, 3]


def test_what_was_held_back_is_saved_and_restored() -> None:
    environment = {"id": "CartPole-v1"}
    playing, twin = evaluator(4, environment=environment), evaluator(4, environment=environment)
    playing.sample()
    state = playing.save()
    assert twin.restore(state, salt=1) == 0
    mine, its = (p.sample().policy_batches[DEFAULT_POLICY] for p in (playing, twin))
    for p in (playing, twin):
        p.close()
    assert mine.count > 4 * 3 - 3
    for name in (OBSERVATIONS, REWARDS, DISCOUNTS, NEXT_OBSERVATIONS):
        np.testing.assert_array_equal(mine[name], its[name])


def test_new_episodes_forget_what_was_held_back() -> None:
    playing = evaluator(4)
    playing.sample()
    playing.begin_anew(salt=1)
    batch = playing.sample().policy_batches[DEFAULT_POLICY]
    playing.close()
    assert batch.count == (4 - 2) * 3
    assert batch[OBSERVATIONS].max() <= 1


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_sample_is_as_old_as_the_policy_that_it_looks_back_to_and_no_older(length: int) -> None:
    playing = evaluator(length)
    weights = playing.get_weights()
    versions = []
    for version in range(1, 6):
        playing.set_weights(weights, version)
        versions.append(playing.sample().policy_version)
    playing.close()
    # Its first rows were held back from the fragment before.
    assert versions == [1, 1, 2, 3, 4]
