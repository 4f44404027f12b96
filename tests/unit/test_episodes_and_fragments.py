"""Episode returns from whole fragments; joining fragments; keeping complete episodes."""

import numpy as np
import pytest

from rlcore.evaluation.episodes import Episode, EpisodeCounter, EpisodeWindow
from rlcore.evaluation.fragments import collect_complete_episodes, join_fragments, keep_complete_episodes
from rlcore.policy.sequences import flatten_rows, flatten_sequences
from rlcore.sample_batch import Fragment


def column(*values, dtype=float):
    return np.array(values, dtype)[:, None]


def make_fragment(done, valid, length=None) -> Fragment:
    done, valid = np.array(done, bool), np.array(valid, bool)
    t, n = done.shape
    return Fragment(
        observations=np.arange((t + 1) * n, dtype=np.float32).reshape(t + 1, n, 1),
        actions=np.zeros((t, n), np.int64),
        rewards=np.ones((t, n), np.float32),
        terminated=done,
        truncated=np.zeros_like(done),
        valid=valid,
    )


def test_an_episode_over_two_fragments_is_counted_once_and_whole():
    counter = EpisodeCounter(1)
    first = counter.update(column(1, 2, 3), column(1, 1, 1, dtype=bool), column(0, 0, 0, dtype=bool))
    second = counter.update(column(4, 100, 5), column(1, 0, 1, dtype=bool), column(1, 0, 0, dtype=bool))
    assert first == []
    assert second == [Episode(10.0, 4, 0)]
    assert counter.returns.tolist() == [5.0]
    assert counter.lengths.tolist() == [1]


def test_several_episodes_of_several_slots_come_in_order_of_time():
    rewards = np.array([[1, 10], [2, 20], [0, 0], [4, 40]], float)
    done = np.array([[0, 1], [1, 0], [0, 1], [1, 0]], bool)
    valid = np.array([[1, 1], [1, 0], [0, 1], [1, 1]], bool)
    episodes = EpisodeCounter(2).update(rewards, valid, done)
    assert episodes == [Episode(10.0, 1, 1), Episode(3.0, 2, 0), Episode(0.0, 1, 1), Episode(4.0, 1, 0)]


def test_what_a_failure_cut_off_is_no_episode_and_does_not_run_into_the_next():
    rewards, done = column(1, 1, 0, 0, 5), column(0, 0, 1, 0, 1, dtype=bool)
    valid = column(1, 1, 0, 0, 1, dtype=bool)
    assert EpisodeCounter(1).update(rewards, valid, done) == [Episode(5.0, 1, 0)]


def test_counters_go_on_from_their_state():
    counter, twin = EpisodeCounter(2), EpisodeCounter(2)
    counter.update(np.ones((3, 2)), np.ones((3, 2), bool), np.zeros((3, 2), bool))
    twin.set_state(counter.get_state())
    last = (np.ones((1, 2)), np.ones((1, 2), bool), np.ones((1, 2), bool))
    assert twin.update(*last) == counter.update(*last) == [Episode(4.0, 4, 0), Episode(4.0, 4, 1)]
    assert counter.reset() == 0


def test_a_window_keeps_the_last_episodes_and_counts_all():
    window = EpisodeWindow(size=3)
    window.extend([Episode(float(i), i) for i in range(5)])
    assert window.returns.tolist() == [2, 3, 4]
    assert window.total == 5
    twin = EpisodeWindow(size=3)
    twin.set_state(window.get_state())
    assert twin.returns.tolist() == [2, 3, 4]
    assert twin.mean_length == 3
    assert EpisodeWindow().mean_length is None


def test_joined_fragments_share_their_border_observation():
    whole = make_fragment(np.zeros((6, 2)), np.ones((6, 2)))
    parts = []
    for a, b in ((0, 2), (2, 6)):
        part = make_fragment(np.zeros((b - a, 2)), np.ones((b - a, 2)))
        part.observations = whole.observations[a : b + 1]
        parts.append(part)
    joined = join_fragments(parts)
    assert (joined.observations == whole.observations).all()
    assert joined.length == 6


def test_complete_episodes_end_where_the_episode_under_way_ends():
    # slot 0 ends at rows 1 and 4, slot 1 at row 3; enough was there after row 2
    done = np.array([[0, 0], [1, 0], [0, 0], [0, 1], [1, 0]], bool)
    valid = np.array([[1, 1], [1, 1], [0, 1], [1, 1], [1, 0]], bool)
    fragment = keep_complete_episodes(make_fragment(done, valid), enough_at=2)
    # slot 0 was between two episodes: its second one is left out; slot 1's first one is whole
    assert fragment.valid.T.astype(int).tolist() == [[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]]


def parts_of(done, valid, length):
    """Fragments of `length` rows each, one a call."""
    pieces = [make_fragment(done[i : i + length], valid[i : i + length]) for i in range(0, len(done), length)]
    pieces.reverse()
    return lambda: {"p": pieces.pop()}


def test_episodes_are_collected_until_those_under_way_have_ended():
    done = np.array([[0, 0], [1, 0], [0, 0], [0, 1], [1, 0], [0, 0]], bool)
    valid = np.array([[1, 1], [1, 1], [0, 1], [1, 1], [1, 0], [0, 1]], bool)
    fragment = collect_complete_episodes(parts_of(done, valid, 2), target=4, most_steps=100)["p"]
    assert fragment.length == 4
    assert fragment.valid.T.astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]


def test_an_agent_that_never_comes_is_not_waited_for():
    done = np.array([[0, 0], [1, 0]], bool)
    valid = np.array([[1, 0], [1, 0]], bool)
    fragment = collect_complete_episodes(parts_of(done, valid, 2), target=2, most_steps=100)["p"]
    assert fragment.valid.sum() == 2


def test_an_agent_that_comes_late_is_left_out():
    done = np.array([[0, 0], [0, 0], [0, 0], [1, 0]], bool)
    valid = np.array([[1, 0], [1, 0], [1, 1], [1, 1]], bool)
    fragment = collect_complete_episodes(parts_of(done, valid, 2), target=2, most_steps=100)["p"]
    assert fragment.valid.T.astype(int).tolist() == [[1, 1, 1, 1], [0, 0, 0, 0]]


def test_episodes_without_end_are_given_up():
    none = np.zeros((100, 1), bool)
    with pytest.raises(TimeoutError):
        collect_complete_episodes(parts_of(none, ~none, 5), target=2, most_steps=30)


def test_sequences_without_a_real_timestep_are_left_out():
    fragment = make_fragment([[0, 0], [1, 0], [0, 0], [0, 0]], [[1, 1], [1, 1], [0, 1], [0, 1]])
    fragment.state_every = 2
    fragment.states = [np.arange(4, dtype=np.float32).reshape(2, 2, 1)]
    batch = flatten_sequences({"observations": fragment.observations[:-1]}, fragment)
    assert batch.size == 3
    assert batch["state_in_0"][:, 0].tolist() == [0, 1, 3]


def test_rows_that_are_no_transition_are_left_out_of_batches():
    fragment = make_fragment([[1, 0], [0, 0]], [[1, 1], [0, 1]])
    batch = flatten_rows({"observations": fragment.observations[:-1]}, fragment)
    assert batch["observations"][:, 0].tolist() == [0, 1, 3]


def test_sequences_are_cut_evenly_padded_and_carry_their_first_state():
    fragment = make_fragment([[0, 0], [1, 0], [0, 0], [0, 0], [0, 0]], [[1, 1], [1, 1], [0, 1], [1, 1], [1, 1]])
    fragment.state_every = 2
    fragment.states = [np.arange(6, dtype=np.float32).reshape(3, 2, 1)]
    batch = flatten_sequences({"observations": fragment.observations[:-1]}, fragment)
    assert batch["observations"].shape == (2, 6, 1)
    assert batch.size == 6
    assert batch["valid"].astype(int).T.tolist() == [[1, 1], [1, 1], [0, 1], [1, 1], [1, 0], [1, 0]]
    assert batch["starts"].astype(int).T.tolist() == [[0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [0, 0]]
    assert batch["state_in_0"][:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert batch["observations"][:, 2, 0].tolist() == [4, 6]
