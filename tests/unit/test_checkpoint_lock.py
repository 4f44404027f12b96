"""Two drivers never share a run directory, and a driver that died never keeps it."""

from __future__ import annotations

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
