"""Checkpoints in a directory: saved, listed, pruned, verified; broken ones skipped, those of other jobs refused."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.checkpoint import CheckpointStore, read_completion, write_completion
from rlcore.checkpoint.manifest import CheckpointName
from rlcore.errors import CheckpointError, UserError

IDENTITY = {"algorithm": "PPO", "environment": "CartPole-v1", "model": {"hiddens": [64, 64], "lstmSize": None}}


def make_store(location: Path | str, **options: Any) -> CheckpointStore:
    return CheckpointStore(str(location), **({"identity": IDENTITY} | options))


def state(n: int) -> dict[str, Any]:
    return {"n": n, "weights": np.full((3, 2), n, np.float32), "rng": np.random.default_rng(n).bit_generator.state}


def save_three(location: Path, keep: int = 3) -> CheckpointStore:
    store = make_store(location, keep=keep)
    for iteration in (1, 2, 3):
        store.save(state(iteration), timesteps=1000 * iteration, iteration=iteration)
    return store


def names(store: CheckpointStore) -> list[str]:
    return [info.name for info in store.list()]


def test_latest_gives_back_the_state_that_was_saved_last(tmp_path: Path) -> None:
    save_three(tmp_path / "checkpoints")
    loaded = make_store(tmp_path / "checkpoints").latest()
    assert loaded is not None
    info, tree = loaded
    assert (info.name, info.timesteps, info.iteration) == ("ckpt-000000003000-3", 3000, 3)
    assert info.size_bytes == sum((Path(info.location) / f).stat().st_size for f in ("state.json", "arrays.npz"))
    assert tree["n"] == 3
    assert tree["rng"] == state(3)["rng"]
    np.testing.assert_array_equal(tree["weights"], state(3)["weights"])


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_path_and_a_file_url_are_the_same_place(tmp_path: Path, prefix: str) -> None:
    make_store(f"{prefix}{tmp_path}/a").save(state(1), timesteps=1, iteration=1)
    assert (tmp_path / "a" / "ckpt-000000000001-1" / "manifest.json").is_file()


def test_nothing_saved_yet_is_none_and_makes_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path / "none")
    assert store.latest() is None
    assert store.list() == ()
    assert not (tmp_path / "none").exists()


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    store = save_three(tmp_path, keep=2)
    assert names(store) == ["ckpt-000000002000-2", "ckpt-000000003000-3"]
    assert sorted(os.listdir(tmp_path)) == names(store)


def test_order_is_by_number_not_by_text(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    for timesteps, iteration in ((5, 9), (5, 10), (10**13, 11)):
        store.save(state(iteration), timesteps=timesteps, iteration=iteration)
    assert [info.iteration for info in store.list()] == [9, 10, 11]


def test_load_takes_one_of_the_list(tmp_path: Path) -> None:
    store = save_three(tmp_path)
    assert store.load(store.list()[0])["n"] == 1


def test_saving_the_same_iteration_again_never_touches_the_first(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.save(state(1), timesteps=7, iteration=1)
    store.save(state(2), timesteps=7, iteration=1)
    assert names(store) == ["ckpt-000000000007-1", "ckpt-000000000007-1-1"]
    assert store.load(store.list()[0])["n"] == 1
    assert store.latest()[1]["n"] == 2  # type: ignore[index]


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip_one_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def make_it_a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "damage", [truncate, flip_one_bit, Path.unlink, make_it_a_directory, lambda f: f.write_text("")]
)
@pytest.mark.parametrize("file", ["state.json", "arrays.npz", "manifest.json"])
def test_a_damaged_checkpoint_is_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, damage: Any
) -> None:
    store = save_three(tmp_path)
    damage(tmp_path / "ckpt-000000003000-3" / file)
    with caplog.at_level(logging.WARNING, "rlcore.checkpoint"):
        loaded = store.latest()
    assert loaded is not None
    assert loaded[1]["n"] == 2
    assert [record.name for record in caplog.records] == ["rlcore.checkpoint"]
    assert re.search(rf"ckpt-000000003000-3: {file} (has|is|was)", caplog.text)


def test_when_all_are_damaged_there_is_none_and_a_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = save_three(tmp_path)
    for directory in tmp_path.iterdir():
        truncate(directory / "arrays.npz")
    assert store.latest() is None
    assert "no usable checkpoint among the 3" in caplog.text


def test_a_damaged_checkpoint_is_not_counted_and_goes_once_a_newer_one_is_safe(tmp_path: Path) -> None:
    store = save_three(tmp_path)
    flip_one_bit(tmp_path / "ckpt-000000003000-3" / "arrays.npz")  # the size stays: only the hash tells
    store.latest()
    store.save(state(4), timesteps=4000, iteration=4)
    assert names(store) == ["ckpt-000000001000-1", "ckpt-000000002000-2", "ckpt-000000004000-4"]
    assert not (tmp_path / "ckpt-000000003000-3").exists()


def test_going_back_never_prunes_what_was_just_saved(tmp_path: Path) -> None:
    save_three(tmp_path, keep=3)
    store = make_store(tmp_path, keep=1)
    store.save(state(9), timesteps=1500, iteration=2)
    assert names(store) == ["ckpt-000000001500-2", "ckpt-000000002000-2", "ckpt-000000003000-3"]


def test_files_that_are_no_checkpoints_are_left_alone(tmp_path: Path) -> None:
    for other in ("ckpt-1-1", "ckpt-000000000001-01", "notes", "ckpt-000000000001-1.bak"):
        (tmp_path / other).mkdir()
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    store = save_three(tmp_path, keep=1)
    assert names(store) == ["ckpt-000000003000-3"]
    assert len(list(tmp_path.iterdir())) == 6


def rewrite_manifest(directory: Path, change: Any) -> None:
    """Change a manifest as someone would who also repairs its checksum."""
    from rlcore.checkpoint.manifest import _checksum

    content = json.loads((directory / "manifest.json").read_bytes())
    content.pop("checksum")
    change(content)
    (directory / "manifest.json").write_text(json.dumps(content | {"checksum": _checksum(content)}))


def test_a_manifest_can_never_point_outside_its_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = save_three(tmp_path)

    def point_outside(content: dict[str, Any]) -> None:
        content["files"]["../ckpt-000000001000-1/state.json"] = content["files"].pop("state.json")

    rewrite_manifest(tmp_path / "ckpt-000000003000-3", point_outside)
    assert store.latest()[0].iteration == 2  # type: ignore[index]
    assert "manifest.json names the files" in caplog.text


def test_a_renamed_checkpoint_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = save_three(tmp_path)
    (tmp_path / "ckpt-000000001000-1").rename(tmp_path / "ckpt-000000009000-9")
    assert store.latest()[0].iteration == 3  # type: ignore[index]
    assert "renamed" in caplog.text


def test_a_newer_format_is_refused_rather_than_passed_over(tmp_path: Path) -> None:
    store = save_three(tmp_path)
    rewrite_manifest(tmp_path / "ckpt-000000003000-3", lambda content: content.update(format=2))
    with pytest.raises(CheckpointError, match="has format 2; this rlcore reads format 1"):
        store.latest()


def test_a_checkpoint_of_another_job_is_refused_and_says_each_difference(tmp_path: Path) -> None:
    save_three(tmp_path)
    other = {"algorithm": "PPO", "environment": "Acrobot-v1", "model": {"hiddens": [64, 128], "lstmSize": 32}}
    with pytest.raises(CheckpointError) as caught:
        make_store(tmp_path, identity=other).latest()
    text = str(caught.value)
    assert "environment: checkpoint has CartPole-v1, this job has Acrobot-v1" in text
    assert "model.hiddens: checkpoint has [64, 64], this job has [64, 128]" in text
    assert "model.lstmSize: checkpoint has none, this job has 32" in text
    assert "algorithm" not in text
    assert "--fresh" in text
    assert isinstance(caught.value, UserError)


def test_load_of_a_damaged_checkpoint_says_what_is_wrong(tmp_path: Path) -> None:
    store = save_three(tmp_path)
    info = store.list()[0]
    truncate(Path(info.location) / "state.json")
    with pytest.raises(CheckpointError, match=r"state\.json has \d+ bytes"):
        store.load(info)


def test_a_state_that_cannot_be_saved_leaves_nothing_behind(tmp_path: Path) -> None:
    store = save_three(tmp_path)
    with pytest.raises(TypeError, match=r"state\.hook"):
        store.save({"hook": print}, timesteps=4000, iteration=4)
    assert len(list(tmp_path.iterdir())) == 3


def test_an_unknown_kind_of_location_names_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"no storage of the kind ftp://[^$]*file://, s3://"):
        make_store("ftp://somewhere/x")


def test_keep_must_keep_something(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep is 0"):
        make_store(tmp_path, keep=0)


@pytest.mark.parametrize(
    "text",
    ["ckpt-000000000001-1/../x", "ckpt-000000000001-1\n", "ckpt-٠٠٠٠٠٠٠٠٠٠٠١-1", "ckpt-000000000001-1-0", "ckpt-1-1"],
)
def test_names_that_no_save_makes_are_not_checkpoints(text: str) -> None:
    assert CheckpointName.parse(text) is None


def test_the_completion_record_comes_back_and_has_no_nan(tmp_path: Path) -> None:
    store = make_store(tmp_path / "new")
    assert read_completion(store) is None
    write_completion(store, {"phase": "Succeeded", "reward": float("nan"), "evaluation": {"rewards": (1.0, 2.0)}})
    assert read_completion(store) == {
        "phase": "Succeeded",
        "reward": None,
        "evaluation": {"rewards": [1.0, 2.0]},
        "identity": IDENTITY,
    }
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["completion.json"]


def test_a_completion_record_of_another_job_is_refused_and_says_each_difference(tmp_path: Path) -> None:
    write_completion(make_store(tmp_path), {"phase": "Succeeded"})
    with pytest.raises(CheckpointError) as caught:
        read_completion(make_store(tmp_path, identity=IDENTITY | {"environment": "Acrobot-v1"}))
    assert caught.value.message.splitlines() == [
        f"{tmp_path}/completion.json belongs to another job:",
        "  environment: checkpoint has CartPole-v1, this job has Acrobot-v1",
    ]
    assert "--fresh" in str(caught.value)


def test_a_completion_record_without_an_identity_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "completion.json").write_text('{"phase": "Succeeded"}')
    assert read_completion(make_store(tmp_path)) == {"phase": "Succeeded"}


def test_an_identity_with_infinite_bounds_is_its_own_in_a_completion_record(tmp_path: Path) -> None:
    store = make_store(tmp_path, identity={"environment kwargs": {"high": float("inf")}})
    write_completion(store, {"phase": "Succeeded"})
    assert read_completion(store) is not None


@pytest.mark.parametrize("content", ["", "{", "[]", "\udcff", '{"identity": "PPO"}'])
def test_a_completion_record_that_cannot_be_read_is_no_completion(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    (tmp_path / "completion.json").write_bytes(content.encode(errors="surrogateescape"))
    assert read_completion(make_store(tmp_path)) is None
    assert "is not a completion record" in caplog.text


def test_moving_aside_renames_the_whole_location_and_leaves_an_empty_store(tmp_path: Path) -> None:
    store = save_three(tmp_path / "run")
    write_completion(store, {"phase": "Succeeded"})
    assert store.move_aside("old") == f"{tmp_path}/run.old"
    assert store.latest() is None
    assert read_completion(store) is None
    moved = make_store(tmp_path / "run.old")
    assert moved.latest()[0].iteration == 3  # type: ignore[index]
    assert read_completion(moved) is not None


def test_moving_aside_never_replaces_what_was_moved_before(tmp_path: Path) -> None:
    (tmp_path / "run.old-2").write_text("somebody's notes")
    targets = []
    for _ in range(3):
        targets.append(save_three(tmp_path / "run").move_aside("old"))
    assert targets == [f"{tmp_path}/run.old", f"{tmp_path}/run.old-3", f"{tmp_path}/run.old-4"]
    assert (tmp_path / "run.old-2").read_text() == "somebody's notes"


def test_where_nothing_is_stored_nothing_is_moved(tmp_path: Path) -> None:
    store = make_store(tmp_path / "run")
    assert store.move_aside("old") is None
    (tmp_path / "run").mkdir()
    assert store.move_aside("old") is None
    (tmp_path / "run" / ".lock").write_text("")
    assert store.move_aside("old") is None
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_a_name_found_damaged_is_good_again_after_moving_aside(tmp_path: Path) -> None:
    store = save_three(tmp_path / "run")
    flip_one_bit(tmp_path / "run" / "ckpt-000000003000-3" / "arrays.npz")
    store.latest()
    store.move_aside("old")
    store.save(state(3), timesteps=3000, iteration=3)
    assert names(store) == ["ckpt-000000003000-3"]


@pytest.mark.parametrize("suffix", ["", "a/b"])
def test_a_suffix_stays_in_the_same_directory(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ValueError, match="cannot be the end of a name"):
        save_three(tmp_path / "run").move_aside(suffix)


def test_a_location_that_cannot_be_moved_is_an_error_on_one_screen(tmp_path: Path) -> None:
    def fault(step: str) -> None:
        if step == "rename run.old":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    save_three(tmp_path / "run")
    store = make_store(tmp_path / "run", fault=fault)
    with pytest.raises(CheckpointError, match=r"cannot move .*run aside to .*run\.old: Permission denied") as caught:
        store.move_aside("old")
    assert "write permission" in (caught.value.hint or "")
    assert len(names(store)) == 3
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="Not a directory"):
        make_store(tmp_path / "file").move_aside("old")
