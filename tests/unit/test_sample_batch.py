"""SampleBatch and MultiAgentBatch: columns, layouts, joining and cutting."""

import pickle

import numpy as np
import pytest

from rlcore.sample_batch import DEFAULT_POLICY, Fragment, MultiAgentBatch, SampleBatch


def rows(count: int, start: int = 0, version: int = 0) -> SampleBatch:
    columns = {"observations": np.arange(start, start + count, dtype=np.float32), "actions": np.arange(count)}
    return SampleBatch(columns, policy_version=version)


def sequences(count: int, length: int = 3) -> SampleBatch:
    return SampleBatch(
        {
            "observations": np.arange(length * count, dtype=np.float32).reshape(length, count),
            "valid": np.arange(length)[:, None] <= np.arange(count)[None] % length,
            "state_in_0": np.arange(count, dtype=np.float32)[:, None],
        },
        time_major=True,
    )


def test_columns_of_different_length_are_refused_with_both_lengths():
    with pytest.raises(ValueError, match=r"'a': 2.*'b': 3"):
        SampleBatch({"a": np.zeros(2), "b": np.zeros(3)})


def test_float64_becomes_float32_and_other_types_stay():
    batch = SampleBatch({"a": np.zeros(2), "b": np.zeros(2, np.int64), "c": np.zeros(2, np.uint8)})
    assert [batch[name].dtype for name in "abc"] == [np.float32, np.int64, np.uint8]


def test_concat_keeps_the_given_order_and_the_oldest_version():
    joined = SampleBatch.concat([rows(2, start=10, version=7), rows(3, start=0, version=5)])
    assert joined["observations"].tolist() == [10, 11, 0, 1, 2]
    assert joined.policy_version == 5


def test_concat_of_nothing_or_of_different_columns_is_refused():
    with pytest.raises(ValueError, match="no batches"):
        SampleBatch.concat([])
    with pytest.raises(ValueError, match=r"\['actions', 'observations'\] and \['observations'\]"):
        SampleBatch.concat([rows(1), rows(1).without("actions")])


def test_split_gives_views_that_together_are_the_whole():
    batch = rows(7)
    parts = batch.split(3)
    assert [part.count for part in parts] == [2, 2, 3]
    assert np.concatenate([part["observations"] for part in parts]).tolist() == batch["observations"].tolist()
    assert all(np.shares_memory(part["observations"], batch["observations"]) for part in parts)


def test_shuffle_keeps_rows_together_and_is_reproducible():
    batch = rows(50, start=100)
    once, again = (batch.shuffle(np.random.default_rng(3)) for _ in range(2))
    assert once["observations"].tolist() == again["observations"].tolist() != batch["observations"].tolist()
    assert (once["observations"] - 100 == once["actions"]).all()


def test_copy_and_with_columns_leave_the_original_alone():
    batch = rows(3)
    batch.copy()["observations"][:] = -1
    changed = batch.with_columns(rewards=np.ones(3))
    assert batch["observations"].tolist() == [0, 1, 2]
    assert "rewards" not in batch
    assert sorted(changed) == ["actions", "observations", "rewards"]


def test_sequences_are_cut_along_sequences_and_counted_in_timesteps():
    batch = sequences(4)
    assert batch.size == 4
    assert batch.count == int(batch["valid"].sum())
    part = batch.take(np.array([2, 0]))
    assert part["observations"].shape == (3, 2)
    assert part["state_in_0"].tolist() == [[2], [0]]
    assert SampleBatch.concat([batch, part])["observations"].shape == (3, 6)


def test_rows_give_one_dict_a_row():
    assert [row["actions"] for row in rows(3).rows()] == [0, 1, 2]


def test_batches_survive_pickling_out_of_band_without_a_copy():
    batch = rows(1000, version=4)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(batch, protocol=5, buffer_callback=buffers.append)
    back = pickle.loads(data, buffers=buffers)
    assert len(data) < 1000
    assert back.policy_version == 4
    assert (back["observations"] == batch["observations"]).all()


def test_multi_agent_batches_count_environment_steps_and_join_policy_by_policy():
    one = MultiAgentBatch({"a": rows(4, version=3), "b": rows(2, version=2)}, count=2)
    two = MultiAgentBatch({"b": rows(5, version=9)}, count=5)
    joined = MultiAgentBatch.concat([one, two])
    assert joined.count == 7
    assert joined.agent_steps == 11
    assert joined.policy_version == 2
    assert {policy: batch.count for policy, batch in joined.policy_batches.items()} == {"a": 4, "b": 7}


def test_wrap_as_needed_names_the_default_policy_once():
    wrapped = MultiAgentBatch.wrap_as_needed(rows(3))
    assert list(wrapped.policy_batches) == [DEFAULT_POLICY]
    assert MultiAgentBatch.wrap_as_needed(wrapped) is wrapped


def test_a_fragment_knows_where_episodes_start():
    flags = np.zeros((4, 2), bool)
    valid = np.ones((4, 2), bool)
    valid[1, 0] = False  # slot 0 was reset by step 1, so its row 2 is the first of an episode
    fragment = Fragment(
        np.zeros((5, 2, 1)),
        np.zeros((4, 2)),
        np.zeros((4, 2)),
        flags,
        flags,
        valid,
        first_starts=np.array([False, True]),
    )
    assert fragment.starts.tolist() == [[False, True], [False, False], [True, False], [False, False]]
