"""Two drivers never share a run directory, and a driver that died never keeps it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlcore.checkpoint import RunLock
from rlcore.errors import UserError

HOLDER = """
import sys
from rlcore.checkpoint.lock import RunLock
RunLock(sys.argv[1]).acquire()
print("held", flush=True)
sys.stdin.read()
"""


def start_holder(directory: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_driver_is_told_who_has_the_directory(tmp_path: Path) -> None:
    with start_holder(tmp_path / "run") as holder:
        with pytest.raises(UserError, match=f"run directory .*run is in use by pid {holder.pid}"):
            RunLock(tmp_path / "run").acquire()
        holder.kill()
        holder.wait()
        with RunLock(tmp_path / "run"):
            pass


def test_a_released_directory_is_free(tmp_path: Path) -> None:
    first, second = RunLock(tmp_path), RunLock(tmp_path)
    with first, pytest.raises(UserError, match="in use"):
        second.acquire()
    with second:
        second.acquire()  # taking it twice is no error
    second.release()  # nor is giving it back twice


def test_a_lock_file_without_a_name_in_it_still_locks(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        (tmp_path / ".lock").write_text("")
        with pytest.raises(UserError, match="in use by another process"):
            RunLock(tmp_path).acquire()


def test_a_directory_that_cannot_be_made_is_an_error_on_one_screen(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot use run directory"):
        RunLock(tmp_path / "file" / "run").acquire()


class RenamedAfterOpen(RunLock):
    """Whose directory is renamed, `times` times, when the lock file is open and not yet locked."""

    def __init__(self, directory: Path, times: int) -> None:
        super().__init__(directory)
        self._directory = directory
        self._moves = iter(range(times))

    def _open(self) -> int:
        descriptor = super()._open()
        number = next(self._moves, None)
        if number is not None:
            self._directory.rename(self._directory.with_name(f"moved-{number}"))
        return descriptor


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_directory_renamed_before_the_lock_is_taken_is_locked_at_its_name(tmp_path: Path) -> None:
    run, before = tmp_path / "run", open_descriptors()
    lock = RenamedAfterOpen(run, times=2)
    with lock:
        assert open_descriptors() == before + 1
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["moved-0", "moved-1", "run"]
        with pytest.raises(UserError, match=f"in use by pid {os.getpid()}"):
            RunLock(run).acquire()
        with RunLock(tmp_path / "moved-1"):  # what was renamed away is not held
            pass
    assert open_descriptors() == before


def test_a_lock_on_a_renamed_directory_does_not_stop_the_one_at_the_old_name(tmp_path: Path) -> None:
    """Another driver with --fresh renames the directory and locks a new one, while this one has the old file open."""
    run = tmp_path / "run"
    other = RunLock(run)

    class Overtaken(RunLock):
        def _open(self) -> int:
            descriptor = super()._open()
            if not (tmp_path / "old").exists():
                run.rename(tmp_path / "old")
                other.acquire()
            return descriptor

    with pytest.raises(UserError, match=f"in use by pid {os.getpid()}"):
        Overtaken(run).acquire()
    other.release()


def test_a_directory_that_is_renamed_every_time_is_given_up(tmp_path: Path) -> None:
    before = open_descriptors()
    with pytest.raises(UserError, match="renamed or removed 10 times"):
        RenamedAfterOpen(tmp_path / "run", times=100).acquire()
    assert open_descriptors() == before


def test_a_full_disk_does_not_stop_the_run_and_the_lock_is_held(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, lock = open_descriptors(), RunLock(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # no file may hold a single byte
    try:
        lock.acquire()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert "is locked and cannot name this process: File too large" in caplog.text
    with pytest.raises(UserError, match="in use by another process"):
        RunLock(tmp_path).acquire()
    assert open_descriptors() == before + 1
    lock.release()
    assert open_descriptors() == before
