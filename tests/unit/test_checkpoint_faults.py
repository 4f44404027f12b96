"""A save that is killed at any step, or runs out of disk, costs that checkpoint and never the ones before it."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from rlcore.checkpoint import CheckpointStore, read_completion, write_completion
from rlcore.errors import CheckpointError

IDENTITY = {"algorithm": "PPO"}
KEEP = 2

# Saves a third checkpoint in one forked child after another, each into a copy of its own of the two before it, and
# kills the k-th child at its k-th step; prints one line a child: the step it died at, or "finished".
KILLER = f"""
import os, shutil, signal, sys
from pathlib import Path
import numpy as np
from rlcore.checkpoint import CheckpointStore

before, work = Path(sys.argv[1]), Path(sys.argv[2])
for k in range(1000):
    location = work / f"{{k:03d}}"
    shutil.copytree(before, location)
    read, write = os.pipe()
    if os.fork() == 0:
        count = 0
        def fault(step):
            global count
            if count == k:
                os.write(write, step.encode())
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
        store = CheckpointStore(str(location), identity={IDENTITY!r}, keep={KEEP}, fault=fault)
        store.save({{"n": 3, "w": np.full(5000, 3.0), "v": np.full(7, 3.0)}}, timesteps=300, iteration=3)
        os.write(write, b"finished")
        os._exit(0)
    os.close(write)
    os.wait()
    step = os.read(read, 1000).decode()
    os.close(read)
    print(step, flush=True)
    if step == "finished":
        break
"""


def save(store: CheckpointStore, n: int, size: int = 5000) -> None:
    store.save({"n": n, "w": np.full(size, float(n)), "v": np.full(7, float(n))}, timesteps=100 * n, iteration=n)


def two_checkpoints(location: Path) -> CheckpointStore:
    store = CheckpointStore(str(location), identity=IDENTITY, keep=KEEP)
    save(store, 1)
    save(store, 2)
    return store


def iterations(store: CheckpointStore) -> list[int]:
    return [info.iteration for info in store.list()]


def test_killed_at_any_step_of_a_save_the_newest_complete_checkpoint_loads(tmp_path: Path) -> None:
    two_checkpoints(tmp_path / "before")
    (tmp_path / "work").mkdir()
    result = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path / "before"), str(tmp_path / "work")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    steps = result.stdout.split("\n")[:-1]
    assert steps[-1] == "finished"
    died_at = [f"{step.split(' ')[0]} {re.split('[ /]', step)[-1]}" for step in steps[:-1]]
    for expected in ("open state.json", "write arrays.npz", "sync arrays.npz", "replace manifest.json"):
        assert expected in died_at
    published = died_at.index("published manifest.json")

    for k, step in enumerate(steps):
        store = CheckpointStore(str(tmp_path / "work" / f"{k:03d}"), identity=IDENTITY, keep=KEEP)
        loaded = store.latest()
        assert loaded is not None, step
        assert loaded[1]["n"] == (2 if k < published else 3), f"killed before {step!r}"
        assert (loaded[1]["w"] == loaded[1]["n"]).all()
        # The next save succeeds and clears up whatever the killed one left.
        save(store, 4)
        assert iterations(store)[-1] == 4
        assert len(os.listdir(store.location)) == KEEP


def test_everything_is_on_the_disk_before_the_manifest_vouches_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        real_fsync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    at_replace: list[int] = []

    def fault(step: str) -> None:
        if step == "replace manifest.json":
            at_replace.extend(synced)

    monkeypatch.setattr(os, "fsync", fsync)
    save(CheckpointStore(str(tmp_path), identity=IDENTITY, fault=fault), 1)
    directory = tmp_path / "ckpt-000000000100-1"
    files = [(directory / name).stat().st_ino for name in ("state.json", "arrays.npz", "manifest.json")]
    assert at_replace == files
    assert synced == [*files, directory.stat().st_ino, tmp_path.stat().st_ino]


def test_an_old_checkpoint_loses_its_manifest_before_anything_else(tmp_path: Path) -> None:
    """Killed in the middle of its removal, it must not look complete."""
    two_checkpoints(tmp_path)
    left: list[list[str]] = []

    def fault(step: str) -> None:
        if step == "remove ckpt-000000000100-1":
            left.append(sorted(os.listdir(tmp_path / "ckpt-000000000100-1")))

    save(CheckpointStore(str(tmp_path), identity=IDENTITY, keep=KEEP, fault=fault), 3)
    assert left == [["arrays.npz", "state.json"]]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()], ids=repr)
def test_an_error_at_any_step_removes_the_part_that_was_written(tmp_path: Path, error: BaseException) -> None:
    two_checkpoints(tmp_path / "before")
    steps: list[str] = []
    save(CheckpointStore(str(tmp_path / "count"), identity=IDENTITY, fault=steps.append), 3)
    writing = [k for k, step in enumerate(steps) if not step.startswith(("remove", "published"))]
    for k in writing:
        location = tmp_path / f"{k}"
        shutil.copytree(tmp_path / "before", location)
        remaining = iter(range(len(steps) + 100))

        def fault(step: str, k: int = k, remaining: Iterator[int] = remaining) -> None:
            if next(remaining) == k:
                raise error

        store = CheckpointStore(str(location), identity=IDENTITY, keep=KEEP, fault=fault)
        with pytest.raises((CheckpointError, KeyboardInterrupt)):
            save(store, 3)
        assert sorted(os.listdir(location)) == ["ckpt-000000000100-1", "ckpt-000000000200-2"], steps[k]
        save(store, 3)
        assert iterations(store) == [2, 3]


def test_a_failing_removal_of_old_checkpoints_does_not_fail_the_save(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    two_checkpoints(tmp_path)

    def fault(step: str) -> None:
        if step.startswith("remove"):
            raise PermissionError(errno.EACCES, "Permission denied")

    store = CheckpointStore(str(tmp_path), identity=IDENTITY, keep=KEEP, fault=fault)
    save(store, 3)
    assert iterations(store) == [1, 2, 3]
    assert "old checkpoints stay" in caplog.text


@contextmanager
def small_disk(directory: Path, size_kib: int, kind: str) -> Iterator[str]:
    """A place that refuses what is too much: a `mount` of that size, or a `limit` on this process's files.

    Where nothing can be mounted (not root) it is the limit. Both are real refusals by the kernel. Yields its words.
    """
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(directory)]
    if kind == "mount" and subprocess.run(mount, capture_output=True).returncode == 0:
        try:
            yield os.strerror(errno.ENOSPC)
        finally:
            subprocess.run(["umount", str(directory)], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_kib * 1024 // 2, hard))
    try:
        yield os.strerror(errno.EFBIG)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("kind", ["mount", "limit"])
def test_a_full_disk_keeps_the_previous_checkpoint_and_says_what_to_do(tmp_path: Path, kind: str) -> None:
    with small_disk(tmp_path / "disk", size_kib=512, kind=kind) as reason:
        store = two_checkpoints(tmp_path / "disk" / "checkpoints")
        with pytest.raises(CheckpointError, match=reason) as caught:
            save(store, 3, size=100_000)  # 800 kB
        assert "older ones are untouched" in str(caught.value)
        assert caught.value.hint is not None
        assert iterations(store) == [1, 2]
        assert len(os.listdir(store.location)) == 2
        assert store.latest()[1]["n"] == 2  # type: ignore[index]
        save(store, 4)  # what fits is saved again
        assert iterations(store) == [2, 4]


@pytest.mark.parametrize("kind", ["mount", "limit"])
def test_a_full_disk_keeps_the_previous_completion_record(tmp_path: Path, kind: str) -> None:
    with small_disk(tmp_path / "disk", size_kib=64, kind=kind):
        store = CheckpointStore(str(tmp_path / "disk"), identity=IDENTITY)
        write_completion(store, {"phase": "Succeeded"})
        with pytest.raises(CheckpointError, match=r"completion\.json cannot be written"):
            write_completion(store, {"phase": "x" * 100_000})
        assert read_completion(store) == {"phase": "Succeeded", "identity": IDENTITY}
        assert os.listdir(tmp_path / "disk") == ["completion.json"]


def test_a_location_that_is_a_file_is_an_error_on_one_screen(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot write checkpoint .*file"):
        save(CheckpointStore(str(tmp_path / "file"), identity=IDENTITY), 1)
