"""The same checkpoints in object stores: memory://, and s3:// against a real S3 server on the loopback interface."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rlcore.checkpoint import CheckpointStore, read_completion, write_completion
from rlcore.errors import CheckpointError

BUCKET = "rl-checkpoints"

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """An S3 server with one bucket; the AWS variables of a user's shell point at it."""
    import s3fs

    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    patch = pytest.MonkeyPatch()
    try:
        for variable in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(variable)
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{process.stdout.readline().strip()}")
        patch.setenv("AWS_ACCESS_KEY_ID", "dummy")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "dummy")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("NO_PROXY", "127.0.0.1")
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir(BUCKET)
        yield f"s3://{BUCKET}"
    finally:
        patch.undo()
        s3fs.S3FileSystem.clear_instance_cache()
        process.stdin.close()
        process.stdout.close()
        process.wait(timeout=30)


@pytest.fixture(params=["memory", "s3"])
def location(request: pytest.FixtureRequest) -> str:
    root = "memory://root" if request.param == "memory" else request.getfixturevalue("s3")
    return f"{root}/{request.node.name.replace('[', '-').rstrip(']')}"


def make_store(location: str, **options: Any) -> CheckpointStore:
    defaults: dict[str, Any] = {"identity": {"algorithm": "PPO"}, "keep": 2}
    return CheckpointStore(location, **(defaults | options))


def save(store: CheckpointStore, n: int) -> None:
    store.save({"n": n, "w": np.full(50_000, n)}, timesteps=n * 10, iteration=n)


def files(store: CheckpointStore) -> Any:
    """The raw file system below a store, to damage it, and the store's root there."""
    return store.storage._files, store.storage._root  # type: ignore[attr-defined]


def test_save_list_prune_and_load(location: str) -> None:
    store = make_store(location)
    assert store.latest() is None
    for n in (1, 2, 3):
        save(store, n)
    other = make_store(location + "/")
    assert [info.name for info in other.list()] == ["ckpt-000000000020-2", "ckpt-000000000030-3"]
    loaded = other.latest()
    assert loaded is not None
    assert loaded[0].location == f"{location}/ckpt-000000000030-3"
    assert loaded[1]["n"] == 3
    np.testing.assert_array_equal(loaded[1]["w"], np.full(50_000, 3))


def test_without_a_manifest_or_with_other_bytes_the_one_before_is_used(
    location: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(location, keep=3)
    for n in (1, 2, 3):
        save(store, n)
    raw, root = files(store)
    raw.rm(f"{root}/ckpt-000000000030-3/manifest.json")
    raw.pipe_file(f"{root}/ckpt-000000000020-2/arrays.npz", b"short")
    loaded = make_store(location).latest()
    assert loaded is not None
    assert loaded[1]["n"] == 1
    assert "ckpt-000000000030-3: manifest.json is missing" in caplog.text
    assert "ckpt-000000000020-2: arrays.npz has 5 bytes" in caplog.text


def test_a_save_that_fails_leaves_nothing_and_the_next_one_clears_up(location: str) -> None:
    store = make_store(location)
    save(store, 1)

    def fault(step: str) -> None:
        if step.startswith("publish ckpt"):
            raise OSError("the network is gone")

    with pytest.raises(CheckpointError, match="the network is gone"):
        save(make_store(location, fault=fault), 2)
    assert make_store(location).storage.directories() == ["ckpt-000000000010-1"]
    save(store, 3)
    assert [info.iteration for info in store.list()] == [1, 3]


def test_the_completion_record(location: str) -> None:
    store = make_store(location)
    assert read_completion(store) is None
    write_completion(store, {"phase": "Succeeded"})
    assert read_completion(make_store(location)) == {"phase": "Succeeded", "identity": {"algorithm": "PPO"}}


def objects(store: CheckpointStore) -> list[str]:
    """Every object of a store, by its path there."""
    raw, root = files(store)
    raw.invalidate_cache()
    return [name.removeprefix(f"{root}/") for name in raw.find(root)] if raw.exists(root) else []


def test_moving_aside_takes_every_object_and_leaves_the_neighbors(location: str) -> None:
    store = make_store(location)
    assert store.move_aside("old") is None
    neighbor = make_store(f"{location}-2")
    save(neighbor, 9)
    for n in (1, 2):
        save(store, n)
    write_completion(store, {"phase": "Succeeded"})
    before = objects(store)
    assert store.move_aside("old") == f"{location}.old"
    assert objects(store) == []
    assert store.latest() is None
    moved = make_store(f"{location}.old")
    assert objects(moved) == before
    assert [info.iteration for info in moved.list()] == [1, 2]
    assert moved.latest()[1]["n"] == 2  # type: ignore[index]
    assert read_completion(moved) is not None
    assert neighbor.latest() is not None

    save(store, 3)
    assert store.move_aside("old") == f"{location}.old-2"
    assert objects(moved) == before


def test_a_lock_file_alone_is_nothing_to_move(location: str) -> None:
    store = make_store(location)
    raw, root = files(store)
    raw.pipe_file(f"{root}/.lock", b"")
    assert store.move_aside("old") is None
    assert objects(store) == [".lock"]


def finished_run(location: str) -> None:
    """Two checkpoints and a completion record: seven objects."""
    store = make_store(location)
    for n in (1, 2):
        save(store, n)
    write_completion(store, {"phase": "Succeeded"})


def test_a_file_is_copied_before_what_vouches_for_it_and_removed_after_it() -> None:
    steps: list[str] = []
    finished_run("memory://root/order")
    make_store("memory://root/order", fault=steps.append).move_aside("old")
    manifests = ["ckpt-000000000010-1/manifest.json", "ckpt-000000000020-2/manifest.json"]
    assert len(steps) == 2 * 7
    assert steps[4:7] == [f"copy {path}" for path in [*manifests, "completion.json"]]
    assert steps[7:10] == [f"delete {path}" for path in ["completion.json", *manifests]]


@pytest.mark.parametrize("step", range(2 * 7))
def test_moving_aside_stopped_at_any_step_leaves_whole_checkpoints_and_can_be_repeated(step: int) -> None:
    location = f"memory://root/stopped-{step}"
    finished_run(location)
    remaining = iter(range(step))

    def fault(_: str) -> None:
        if next(remaining, None) is None:
            raise OSError("the network is gone")

    with pytest.raises(CheckpointError, match="the network is gone; nothing is lost"):
        make_store(location, fault=fault).move_aside("old")
    here, there = make_store(location), make_store(f"{location}.old")
    for store in (here, there):
        manifests = [path for path in objects(store) if path.endswith("manifest.json")]
        assert len(store.list()) == len(manifests)
        if read_completion(store) is not None:
            assert len(store.list()) == 2
    loaded = here.latest() or there.latest()  # without --fresh the old run goes on where it was, until all is away
    assert loaded is not None
    assert loaded[1]["n"] == 2
    here.move_aside("old")
    assert objects(here) == []


def test_nothing_is_removed_when_the_copy_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store("memory://root/incomplete")
    save(store, 1)
    before = objects(store)
    raw, _ = files(store)
    monkeypatch.setattr(raw, "cp_file", lambda source, target: None)
    with pytest.raises(CheckpointError, match="is not complete; nothing was removed"):
        store.move_aside("old")
    assert objects(store) == before


def test_a_whole_bucket_is_not_moved(s3: str) -> None:
    store = make_store(s3)
    save(store, 1)
    with pytest.raises(CheckpointError, match="a bucket cannot be renamed"):
        store.move_aside("old")
    assert store.latest() is not None


def test_a_bucket_that_does_not_exist_is_an_error_on_one_screen(s3: str) -> None:
    store = make_store("s3://no-such-bucket/run")
    assert store.latest() is None
    with pytest.raises(CheckpointError, match=r"cannot write checkpoint s3://no-such-bucket/run"):
        save(store, 1)


def test_an_unreachable_server_is_an_error_and_not_an_empty_store(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1, raising=False)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(CheckpointError, match=r"cannot read s3://rl-checkpoints/run"):
        make_store(f"{s3}/run").latest()
    with pytest.raises(CheckpointError, match=r"cannot move s3://rl-checkpoints/run aside"):
        make_store(f"{s3}/run").move_aside("old")
    s3fs.S3FileSystem.clear_instance_cache()


WITHOUT_DRIVER = """
import sys
sys.modules[sys.argv[1]] = None  # as if it were not installed
from rlcore.checkpoint import CheckpointStore
from rlcore.errors import UserError
try:
    CheckpointStore(sys.argv[2], identity={})
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize(("scheme", "module", "extra"), [("s3", "s3fs", "s3"), ("gs", "gcsfs", "gcs")])
def test_a_missing_driver_names_the_extra_to_install(scheme: str, module: str, extra: str) -> None:
    location = f"{scheme}://bucket/run"
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_DRIVER, module, location], capture_output=True, text=True, check=True
    )
    assert f"{location!r} needs a driver that is not installed" in result.stdout
    assert f"-> pip install 'rlcore[{extra}]'" in result.stdout
