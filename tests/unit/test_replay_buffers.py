"""Replay buffers: what they keep, what they draw, what they save."""

import gymnasium as gym
import numpy as np
import pytest

from rlcore.errors import UserError
from rlcore.replay import BatchReplay, PrioritizedReplay, ReplayRows, Reservoir, UniformReplay
from rlcore.replay.frames import split_frames, worth_splitting
from rlcore.replay.memory import require_room, transition_bytes
from rlcore.sample_batch import (
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    PRIORITIES,
    REWARDS,
    VALID,
    WEIGHTS,
    SampleBatch,
)


def rows(*values, priorities=None) -> ReplayRows:
    columns = {REWARDS: np.array(values, np.float32), OBSERVATIONS: np.array(values, np.float32)[:, None]}
    if priorities is not None:
        columns[PRIORITIES] = np.array(priorities, np.float32)
    return ReplayRows(SampleBatch(columns))


def held(buffer) -> set[float]:
    return set(buffer.sample(500).batch[REWARDS].tolist())


@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
def test_the_newest_rows_stay_and_all_of_them_are_drawn(kind):
    buffer = kind(5, seed=0)
    buffer.add(rows(0, 1, 2))
    assert held(buffer) == {0, 1, 2}
    buffer.add(rows(3, 4, 5, 6))
    assert len(buffer) == 5
    assert held(buffer) == {2, 3, 4, 5, 6}
    buffer.add(rows(*range(10, 22)))
    assert held(buffer) == {17, 18, 19, 20, 21}


@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
def test_numbers_name_the_rows_that_were_drawn(kind):
    buffer = kind(7, seed=0)
    for start in range(0, 30, 3):
        buffer.add(rows(start, start + 1, start + 2))
        drawn = buffer.sample(20)
        np.testing.assert_array_equal(drawn.numbers, drawn.batch[REWARDS])


def test_an_empty_buffer_says_so():
    with pytest.raises(ValueError, match="empty"):
        UniformReplay(3, seed=0).sample(1)


def test_other_columns_are_refused():
    buffer = UniformReplay(3, seed=0)
    buffer.add(rows(1))
    with pytest.raises(ValueError, match="columns"):
        buffer.add(ReplayRows(SampleBatch({REWARDS: np.zeros(1, np.float32)})))


# priorities -----------------------------------------------------------------


def test_draws_and_weights_are_those_of_the_paper():
    # p = (1, 2, 5) and alpha = 1: P = (1, 2, 5) / 8; beta = 0.5: w = (8 / (3 p))^0.5 over the largest, p = 1's.
    buffer = PrioritizedReplay(8, seed=0, alpha=1.0, epsilon=1e-12)
    buffer.add(rows(10, 20, 30, priorities=[1, 2, 5]))
    drawn = buffer.sample(8000, beta=0.5).batch
    shares = [(drawn[REWARDS] == value).mean() for value in (10, 20, 30)]
    np.testing.assert_allclose(shares, [1 / 8, 2 / 8, 5 / 8], atol=0.002)
    weights = [drawn[WEIGHTS][drawn[REWARDS] == value][0] for value in (10, 20, 30)]
    np.testing.assert_allclose(weights, [1.0, 2**-0.5, 5**-0.5], rtol=1e-5)
    assert PRIORITIES not in drawn


def test_one_perfectly_predicted_row_does_not_silence_the_others():
    buffer = PrioritizedReplay(2000, seed=0, alpha=1.0, epsilon=1e-12)
    buffer.add(rows(*range(1000), priorities=[1e-9, *[1.0] * 999]))
    drawn = buffer.sample(64, beta=1.0).batch
    assert 0 not in drawn[REWARDS]
    np.testing.assert_allclose(drawn[WEIGHTS], 1.0)


def test_alpha_flattens_priorities():
    buffer = PrioritizedReplay(4, seed=0, alpha=0.5, epsilon=1e-12)
    buffer.add(rows(1, 2, priorities=[1, 9]))
    drawn = buffer.sample(8000).batch[REWARDS]
    np.testing.assert_allclose((drawn == 2).mean(), 3 / 4, atol=0.002)


def test_rows_without_priorities_get_the_largest_seen_so_far():
    buffer = PrioritizedReplay(4, seed=0, alpha=1.0, epsilon=1e-12)
    buffer.add(rows(1))
    buffer.update_priorities(np.array([0]), np.array([8.0]))
    buffer.update_priorities(np.array([0]), np.array([2.0]))
    buffer.add(rows(2))
    drawn = buffer.sample(5000).batch[REWARDS]
    np.testing.assert_allclose((drawn == 2).mean(), 8 / 10, atol=0.002)


def test_priorities_of_replaced_rows_are_left_out_and_counted():
    buffer = PrioritizedReplay(3, seed=0, alpha=1.0, epsilon=1e-12)
    buffer.add(rows(0, 1, 2, 3))
    assert buffer.update_priorities(np.array([0, 1]), np.array([1000.0, 4.0])) == 1
    drawn = buffer.sample(6000).batch[REWARDS]
    np.testing.assert_allclose((drawn == 1).mean(), 4 / 6, atol=0.002)


# images ---------------------------------------------------------------------


def pong_like(steps: int, slots: int, seed: int = 0) -> SampleBatch:
    """Stacks of four frames over two episodes a slot, as environments give them: zeros before an episode's first."""
    rng = np.random.default_rng(seed)
    observations = np.zeros((steps + 1, slots, 4, 40, 40), np.uint8)
    for slot in range(slots):
        for t in range(steps + 1):
            if t and t != steps // 2:
                observations[t, slot, :3] = observations[t - 1, slot, 1:]
            observations[t, slot, 3, rng.integers(40)] = rng.integers(1, 255)
    rewards = np.arange(steps * slots, dtype=np.float32)
    flat = observations.reshape(steps + 1, slots, 4, 40, 40)
    return SampleBatch(
        {
            OBSERVATIONS: flat[:-1].reshape(-1, 4, 40, 40),
            NEXT_OBSERVATIONS: flat[1:].reshape(-1, 4, 40, 40),
            REWARDS: rewards,
        }
    )


@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
def test_images_kept_once_come_back_as_they_were(kind):
    buffer = kind(100, seed=0)
    samples = [pong_like(12, 3, seed=seed) for seed in range(5)]
    for sample in samples:
        batch, frames = split_frames(sample)
        buffer.add(ReplayRows(batch, frames))
    every = SampleBatch.concat(samples)
    drawn = buffer.sample(300)
    assert drawn.numbers.min() >= 80
    for name in (OBSERVATIONS, NEXT_OBSERVATIONS):
        np.testing.assert_array_equal(drawn.batch[name], every[name][drawn.numbers])


def test_every_image_is_kept_once_and_goes_with_its_last_row():
    buffer = UniformReplay(40, seed=0)
    sample = pong_like(12, 3)
    batch, frames = split_frames(sample)
    # Thirteen frames a slot, and one of zeros for all.
    assert len(frames.offsets) - 1 == 3 * 13 + 1
    for _ in range(20):
        buffer.add(ReplayRows(batch, frames))
    assert len(buffer.rows._blocks) == 2
    assert buffer.size_bytes < 3 * (frames.size_bytes + batch.size_bytes)


def test_small_images_and_vectors_are_not_split():
    assert worth_splitting(gym.spaces.Box(0, 255, (4, 84, 84), np.uint8))
    assert not worth_splitting(gym.spaces.Box(0, 1, (4, 10, 10), np.uint8))
    assert not worth_splitting(gym.spaces.Box(0, 1, (4, 84, 84), np.float32))
    assert not worth_splitting(gym.spaces.Box(0, 1, (4,), np.float32))


# saving ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
@pytest.mark.parametrize("images", [False, True])
def test_a_restored_buffer_draws_the_same(kind, images):
    def filled():
        for seed in range(3):
            sample = pong_like(12, 3, seed=seed)
            yield ReplayRows(*split_frames(sample)) if images else ReplayRows(sample)

    one, two = kind(70, seed=0), kind(70, seed=9)
    for part in filled():
        one.add(part)
    one.update_priorities(np.arange(60, 80), np.linspace(0.1, 9, 20))
    two.set_state(one.get_state(10**9))
    for buffer in (one, two):
        buffer.add(next(filled()))
    for _ in range(3):
        a, b = one.sample(50, beta=0.4), two.sample(50, beta=0.4)
        np.testing.assert_array_equal(a.numbers, b.numbers)
        for name in a.batch:
            np.testing.assert_array_equal(a.batch[name], b.batch[name])


def test_what_is_saved_is_capped_newest_first():
    buffer = UniformReplay(1000, seed=0)
    buffer.add(rows(*range(1000)))
    state = buffer.get_state(8 * 100)
    restored = UniformReplay(1000, seed=0)
    restored.set_state(state)
    assert len(restored) == 100
    assert min(held(restored)) >= 900
    nothing = UniformReplay(1000, seed=0)
    nothing.set_state(buffer.get_state(0))
    assert len(nothing) == 0


def test_a_smaller_buffer_takes_the_newest_rows():
    buffer, smaller = PrioritizedReplay(10, seed=0), PrioritizedReplay(4, seed=0)
    buffer.add(rows(*range(10)))
    smaller.set_state(buffer.get_state(10**9))
    assert held(smaller) == {6, 7, 8, 9}


# whole batches, reservoirs --------------------------------------------------


def sequences(first: int, count: int, length: int = 4) -> SampleBatch:
    values = np.tile(np.arange(first, first + count, dtype=np.float32), (length, 1))
    return SampleBatch(
        {REWARDS: values, VALID: np.ones_like(values, bool), "state_in_0": values[0][:, None]}, time_major=True
    )


def test_sequences_stay_whole_with_their_states():
    buffer = BatchReplay(24, seed=0)
    buffer.add(sequences(0, 4))
    buffer.add(sequences(10, 4))
    assert len(buffer) == 24
    drawn = buffer.sample(400)
    assert drawn.time_major
    assert drawn.count == 400
    assert set(drawn[REWARDS][0]) == {2, 3, 10, 11, 12, 13}
    np.testing.assert_array_equal(drawn[REWARDS], np.tile(drawn["state_in_0"][:, 0], (4, 1)))


def test_restored_batches_are_drawn_the_same():
    one, two = BatchReplay(100, seed=0), BatchReplay(100, seed=3)
    one.add(sequences(0, 6))
    two.set_state(one.get_state(10**6))
    for _ in range(3):
        np.testing.assert_array_equal(one.sample(20)[REWARDS], two.sample(20)[REWARDS])


def test_a_reservoir_keeps_every_row_with_equal_probability():
    counts = np.zeros(60)
    for seed in range(400):
        reservoir = Reservoir(12, seed=seed)
        for start in range(0, 60, 10):
            reservoir.add(rows(*range(start, start + 10)).batch)
        counts[reservoir._columns[REWARDS].astype(int)] += 1
    # 400 draws of 12 in 60: 80 each, with a deviation of 8.
    assert 45 < counts.min() <= counts.max() < 115
    assert len(reservoir) == 12


def test_a_restored_reservoir_goes_on_the_same():
    one, two = Reservoir(5, seed=0), Reservoir(5, seed=1)
    one.add(rows(*range(20)).batch)
    two.set_state(one.get_state())
    for reservoir in (one, two):
        reservoir.add(rows(*range(20, 40)).batch)
    np.testing.assert_array_equal(one.sample(30)[REWARDS], two.sample(30)[REWARDS])


# memory ---------------------------------------------------------------------


def test_a_replay_that_cannot_fit_is_refused_with_what_does():
    with pytest.raises(UserError, match=r"50,000,000 transitions.*GiB.*free") as refused:
        require_room(50_000_000, 1000, 10 * 2**30)
    assert "9,663,676 fit" in str(refused.value)
    require_room(1000, 1000, 10 * 2**30)


def test_estimates_know_of_images_kept_once():
    space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    apart, once = (transition_bytes(space, 8, split_frames=split) for split in (False, True))
    assert apart > 2 * 4 * 84 * 84
    assert apart > 30 * once
