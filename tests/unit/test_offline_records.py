"""Recorded transitions: from fragments to files and back, by plain arrays that are checked."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile

import gymnasium as gym
import numpy as np
import pytest

from rlcore.errors import UserError
from rlcore.offline import records
from rlcore.offline.dataset import OfflineDataset, require_fitting_input
from rlcore.offline.records import RecordsInfo, RecordWriter, read_info, read_rows
from rlcore.offline.transitions import returns_to_go, space_text, transitions_of
from rlcore.sample_batch import Fragment, SampleBatch

INFO = RecordsInfo("CartPole-v1", "Box(4,) float32", "Discrete(2)")
CARTPOLE = (gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(2))


def fragment() -> Fragment:
    """Two slots of five steps: slot 0 terminates at step 1 and is reset at step 2, slot 1 is cut off at step 3."""
    observations = np.arange(12, dtype=np.float32).reshape(6, 2, 1)
    no = np.zeros((5, 2), bool)
    terminated, truncated, valid = no.copy(), no.copy(), ~no
    terminated[1, 0] = True
    valid[2, 0] = False
    truncated[3, 1] = True
    valid[4, 1] = False
    return Fragment(
        observations=observations,
        actions=np.arange(10).reshape(5, 2),
        rewards=np.arange(10, dtype=np.float32).reshape(5, 2),
        terminated=terminated,
        truncated=truncated,
        valid=valid,
    )


def rows(count: int = 6, *, start: int = 0) -> SampleBatch:
    """Transitions of one trajectory."""
    observations = np.arange(start, start + 4 * (count + 1), dtype=np.float32).reshape(count + 1, 4)
    last = np.arange(count) == count - 1
    return SampleBatch(
        {
            "observations": observations[:-1],
            "next_observations": observations[1:],
            "actions": np.arange(count) % 2,
            "rewards": np.ones(count, np.float32),
            "terminated": last,
            "truncated": np.zeros(count, bool),
        }
    )


def write(folder, *, append=False, info=INFO, **changes) -> None:
    RecordWriter(folder, info, append=append).write(rows().with_columns(**changes), [6.0])


# transitions --------------------------------------------------------------------


def test_a_fragment_becomes_trajectories_in_the_order_of_time():
    found = transitions_of(fragment())
    np.testing.assert_array_equal(found["observations"][:, 0], [0, 2, 6, 8, 1, 3, 5, 7])
    np.testing.assert_array_equal(found["next_observations"][:, 0], [2, 4, 8, 10, 3, 5, 7, 9])
    np.testing.assert_array_equal(found["actions"], [0, 2, 6, 8, 1, 3, 5, 7])
    np.testing.assert_array_equal(found["terminated"], [0, 1, 0, 0, 0, 0, 0, 0])
    # the environment cut slot 1 off, the recording slot 0
    np.testing.assert_array_equal(found["truncated"], [0, 0, 0, 1, 0, 0, 0, 1])


def test_observations_are_recorded_before_the_filter_and_rewards_before_clipping():
    raw = fragment()
    raw.raw_observations = raw.observations + 100
    raw.paid_rewards = raw.rewards * 10
    found = transitions_of(raw)
    assert found["observations"][0, 0] == 100
    assert found["rewards"][1] == 20


def test_returns_are_discounted_to_the_end_of_each_trajectory():
    totals, last = returns_to_go(np.array([1, 2, 4, 8, 16]), np.array([False, False, True, False, True]), 0.5)
    np.testing.assert_allclose(totals, [1 + 1 + 1, 2 + 2, 4, 8 + 8, 16])
    np.testing.assert_array_equal(last, [2, 2, 2, 4, 4])


def test_after_a_cut_comes_the_value_of_the_last_observation_and_after_an_end_nothing():
    found = transitions_of(fragment())
    batch = OfflineDataset(found, 0.5).batch(np.arange(8), with_returns=True)
    np.testing.assert_allclose(batch["discounts"], [0, 0, 0.25, 0.5, 1 / 16, 1 / 8, 1 / 4, 1 / 2])
    np.testing.assert_array_equal(batch["final_observations"][:, 0], [4, 4, 10, 10, 9, 9, 9, 9])
    np.testing.assert_allclose(batch["returns"][:4], [0 + 1, 2, 6 + 4, 8])


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (gym.spaces.Box(0, 255, (3, 84, 84), np.uint8), "Box(3, 84, 84) uint8"),
        (gym.spaces.Discrete(4), "Discrete(4)"),
        (gym.spaces.Tuple((gym.spaces.Discrete(2), gym.spaces.Box(0, 1, (2,)))), "Tuple(Discrete(2), Box(2,) float32)"),
    ],
)
def test_spaces_are_compared_as_text(space, text):
    assert space_text(space) == text


# files --------------------------------------------------------------------------


def test_what_was_written_is_read(tmp_path):
    write(tmp_path)
    info = read_info(tmp_path)
    assert (info.timesteps, info.episodes, info.episode_reward_mean, info.environment) == (6, 1, 6.0, "CartPole-v1")
    found = read_rows(tmp_path, info)
    assert set(found) == set(rows())
    for name, column in rows().items():
        np.testing.assert_array_equal(found[name], column)
        assert found[name].dtype == column.dtype


def test_shards_are_arrays_that_numpy_reads_without_pickles(tmp_path):
    write(tmp_path)
    with np.load(tmp_path / "shard-000000.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["actions"], rows()["actions"])
    assert zipfile.ZipFile(tmp_path / "shard-000000.npz").testzip() is None


def test_a_pickle_is_refused(tmp_path):
    write(tmp_path)
    path = tmp_path / "shard-000000.npz"
    np.savez(path, observations=np.array([{"code": 1}], dtype=object))
    manifest = json.loads((tmp_path / "records.json").read_text())
    data = path.read_bytes()
    manifest["shards"][0] |= {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (tmp_path / "records.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="cannot be used"):
        read_rows(tmp_path, read_info(tmp_path))


def test_more_is_added_with_append_only(tmp_path):
    write(tmp_path)
    with pytest.raises(UserError, match="holds records already") as caught:
        write(tmp_path)
    assert "--append" in caught.value.hint
    write(tmp_path, append=True)
    assert read_info(tmp_path).timesteps == read_rows(tmp_path, read_info(tmp_path)).size == 12


def test_another_space_is_not_added(tmp_path):
    write(tmp_path)
    other = RecordsInfo("Pendulum-v1", "Box(3,) float32", "Box(1,) float32")
    with pytest.raises(UserError, match=r"Box\(4,\) float32 and actions Discrete\(2\), not Box\(3,\) float32"):
        write(tmp_path, append=True, info=other)


@pytest.mark.parametrize("damage", ["cut", "changed", "missing"])
def test_a_damaged_shard_is_named(tmp_path, damage):
    write(tmp_path)
    path = tmp_path / "shard-000000.npz"
    data = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    else:
        data[200] ^= 1
        path.write_bytes(bytes(data[:-50] if damage == "cut" else data))
    with pytest.raises(UserError, match=r"shard-000000\.npz cannot be used"):
        read_rows(tmp_path, read_info(tmp_path))


def test_a_shard_outside_of_its_folder_is_refused(tmp_path):
    write(tmp_path)
    manifest = json.loads((tmp_path / "records.json").read_text())
    manifest["shards"][0]["name"] = "../shard-000000.npz"
    (tmp_path / "records.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="not the name of a file"):
        read_rows(tmp_path, read_info(tmp_path))


def test_a_folder_without_records_is_said_with_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"records\.json is missing") as caught:
        read_info(tmp_path)
    assert "rlcore record" in caught.value.hint


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 9}', '{"format": 1, "surprise": 1}'])
def test_a_manifest_that_is_none_is_said(tmp_path, text):
    (tmp_path / "records.json").write_text(text)
    with pytest.raises(UserError, match=r"records\.json"):
        read_info(tmp_path)


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    write(tmp_path, rewards=np.array([1, 2, np.nan, 4, 5, 6], np.float32))
    with pytest.raises(UserError, match="rewards has numbers that are not finite"):
        read_rows(tmp_path, read_info(tmp_path))


def test_what_does_not_fit_in_memory_is_said_with_the_estimate(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.setattr(records, "available_bytes", lambda: 100)
    with pytest.raises(UserError, match=r"takes about 0\.0 GB to read"):
        read_rows(tmp_path, read_info(tmp_path))


# spaces --------------------------------------------------------------------------


def test_records_of_another_space_are_refused_with_both_spaces(tmp_path):
    write(tmp_path)
    pendulum = (gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(-2, 2, (1,), np.float32))
    require_fitting_input(str(tmp_path), CARTPOLE, "CartPole-v1")
    with pytest.raises(UserError) as caught:
        require_fitting_input(str(tmp_path), pendulum, "Pendulum-v1")
    for text in ("Box(4,) float32", "Discrete(2)", "Pendulum-v1", "Box(3,) float32", "Box(1,) float32"):
        assert text in caught.value.message


def test_no_input_is_said():
    with pytest.raises(UserError, match=r"spec\.config\.input is missing"):
        require_fitting_input(None, CARTPOLE, "CartPole-v1")


# minari --------------------------------------------------------------------------


MAKE_DATASET = """
import gymnasium as gym, minari, numpy as np
from minari.data_collector import EpisodeBuffer
env, buffers = gym.make("CartPole-v1"), []
env.action_space.seed(0)
for number in range(3):
    observations, actions, rewards, over = [env.reset(seed=number)[0]], [], [], False
    while not over:
        actions.append(env.action_space.sample())
        observation, reward, over, _, _ = env.step(actions[-1])
        observations.append(observation)
        rewards.append(reward)
    ends = [False] * (len(actions) - 1) + [True]
    columns = dict(observations=np.array(observations), actions=np.array(actions), rewards=rewards)
    buffers.append(EpisodeBuffer(id=number, terminations=ends, truncations=[False] * len(ends), **columns))
minari.create_dataset_from_buffers("cartpole/random-v0", buffer=buffers, env=env, algorithm_name="random")
"""


@pytest.fixture(scope="module")
def minari_folder(tmp_path_factory):
    """A folder with a tiny Minari dataset of CartPole; made elsewhere, for minari leaves temporary folders behind."""
    pytest.importorskip("minari")
    folder = tmp_path_factory.mktemp("minari")
    variables = {**os.environ, "MINARI_DATASETS_PATH": str(folder)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", MAKE_DATASET], env=variables, check=True, timeout=120)
    return folder


@pytest.fixture
def minari_dataset(minari_folder, monkeypatch):
    """What spec.config.input calls it."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(minari_folder))
    return "minari:cartpole/random-v0"


def test_a_minari_dataset_is_read(minari_dataset):
    require_fitting_input(minari_dataset, CARTPOLE, "CartPole-v1")
    dataset = OfflineDataset.read(minari_dataset, 1.0)
    found = dataset.rows
    assert found["terminated"].sum() == 3
    np.testing.assert_array_equal(found["observations"][1], found["next_observations"][0])
    first = np.flatnonzero(found["terminated"])[0]
    assert dataset.batch(np.array([0]), with_returns=True)["returns"][0] == first + 1


def test_a_minari_dataset_of_another_space_is_refused(minari_dataset):
    with pytest.raises(UserError, match=r"holds observations Box\(4,\) float32 and actions Discrete\(2\)"):
        require_fitting_input(minari_dataset, (gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)), "Other-v0")


def test_a_minari_dataset_that_is_not_here_is_said(minari_dataset):
    with pytest.raises(UserError, match="there is no such dataset on this machine"):
        require_fitting_input("minari:cartpole/expert-v9", CARTPOLE, "CartPole-v1")
