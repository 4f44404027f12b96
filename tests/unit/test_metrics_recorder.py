"""metrics.jsonl and TensorBoard files: complete after a crash, without duplicates after a resume."""

from __future__ import annotations

import errno
import itertools
import json
import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlcore.metrics.jsonl import read_results
from rlcore.metrics.recorder import MetricsRecorder, training_scalars
from rlcore.metrics.result import IterationResult
from rlcore.metrics.tensorboard_events import masked_crc32c


def make_result(iteration: int, **changes: Any) -> IterationResult:
    values: dict[str, Any] = {
        "iteration": iteration,
        "timesteps": 100 * iteration,
        "timesteps_this_iteration": 100,
        "episodes": iteration,
        "episode_reward_mean": float(iteration),
        "timesteps_per_s": 1000.0,
        "sample_time_s": 0.05,
        "learn_time_s": 0.04,
        "wait_time_s": 0.01,
        "elapsed_s": 0.1 * iteration,
    }
    return IterationResult(**(values | changes))


def record(directory: Path, iterations: range, **resumed: int) -> None:
    recorder = MetricsRecorder(directory, **resumed, clock=itertools.count().__next__)
    for iteration in iterations:
        recorder.record(make_result(iteration, learner={"kl": 0.01 * iteration}))
    recorder.close()


def iterations(directory: Path) -> list[int]:
    return [result["iteration"] for result in read_results(directory / "metrics.jsonl")]


def tensorboard_points(directory: Path, tag: str) -> list[tuple[int, float]]:
    """What TensorBoard itself reads from the files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(directory / "tensorboard"))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def test_each_line_is_there_as_soon_as_it_is_recorded(tmp_path: Path) -> None:
    recorder = MetricsRecorder(tmp_path)
    recorder.record(make_result(1))
    [line] = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line) == make_result(1).to_json_dict()
    recorder.close()
    recorder.close()
    recorder.record(make_result(2))  # a late result after closing is no error
    assert iterations(tmp_path) == [1]


def test_a_resumed_run_drops_what_it_will_do_again(tmp_path: Path) -> None:
    record(tmp_path, range(1, 8))
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 5, "torn')
    record(tmp_path, range(6, 10), resumed_iteration=5, resumed_timesteps=500)
    assert iterations(tmp_path) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [name for name in os.listdir(tmp_path) if name.startswith("metrics")] == ["metrics.jsonl"]
    assert [step for step, _ in tensorboard_points(tmp_path, "train/episode_reward_mean")] == list(
        range(100, 1000, 100)
    )


def test_a_run_that_starts_over_keeps_nothing(tmp_path: Path) -> None:
    record(tmp_path, range(1, 5))
    record(tmp_path, range(1, 3))
    assert iterations(tmp_path) == [1, 2]
    assert [step for step, _ in tensorboard_points(tmp_path, "train/episode_reward_mean")] == [100, 200]


def test_fast_iterations_give_tensorboard_ten_points_a_second_and_the_last_one(tmp_path: Path) -> None:
    clock = iter([0.0, 0.03, 0.06, 0.11, 0.14, 0.17]).__next__
    recorder = MetricsRecorder(tmp_path, clock=clock)
    for iteration in range(1, 6):
        recorder.record(make_result(iteration))
    recorder.record(make_result(6, evaluation={"episode_reward_mean": 1.0, "timesteps": 600}))
    recorder.close()
    assert iterations(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in tensorboard_points(tmp_path, "train/episodes")] == [100, 400, 600]

    recorder = MetricsRecorder(tmp_path, resumed_iteration=6, resumed_timesteps=600, clock=iter([0.0, 0.01]).__next__)
    recorder.record(make_result(7))
    recorder.record(make_result(8))
    recorder.close()
    assert [step for step, _ in tensorboard_points(tmp_path, "train/episodes")][-2:] == [700, 800]


def test_tensorboard_reads_what_was_recorded(tmp_path: Path) -> None:
    recorder = MetricsRecorder(tmp_path, clock=itertools.count().__next__)
    evaluation = {"episode_reward_mean": 7.5, "episodes": 10, "timesteps": 150}
    for iteration in (1, 2, 3):
        recorder.record(
            make_result(
                iteration,
                learner={"kl": 0.5, "left/entropy": 0.25, "loss": float("nan")},
                optimizer={"late_timesteps": 3},
                evaluation=evaluation if iteration > 1 else None,
            )
        )
    recorder.close()
    assert tensorboard_points(tmp_path, "train/episode_reward_mean") == [(100, 1.0), (200, 2.0), (300, 3.0)]
    assert tensorboard_points(tmp_path, "learner/left/entropy") == [(100, 0.25), (200, 0.25), (300, 0.25)]
    assert tensorboard_points(tmp_path, "time/timesteps_per_s")[0] == (100, 1000.0)
    assert tensorboard_points(tmp_path, "optimizer/late_timesteps")[0] == (100, 3.0)
    # The newest evaluation is repeated in each result, and is one point at the timesteps it was made at.
    assert tensorboard_points(tmp_path, "evaluation/episode_reward_mean") == [(150, 7.5)]


def test_what_is_unknown_or_not_finite_is_left_out_of_tensorboard() -> None:
    tags = training_scalars(make_result(1, episode_reward_mean=None, learner={"kl": float("inf")}))
    assert "train/episode_reward_mean" not in tags
    assert "learner/kl" not in tags
    assert all(isinstance(value, float) for value in tags.values())


def test_recording_imports_neither_torch_nor_tensorflow(tmp_path: Path) -> None:
    code = (
        "import sys; from rlcore.metrics.recorder import MetricsRecorder; "
        "assert 'tensorboard' not in sys.modules; MetricsRecorder(sys.argv[1]).close(); "
        "print([name for name in ('torch', 'tensorflow', 'ray', 'matplotlib') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize(("data", "crc"), [(b"123456789", 0xE3069283), (b"", 0), (bytes(32), 0x8A9136AA)])
def test_crc32c_of_the_published_test_vectors(data: bytes, crc: int) -> None:
    unmasked = (masked_crc32c(data) - 0xA282EAD8) & 0xFFFFFFFF
    assert ((unmasked >> 17) | (unmasked << 15)) & 0xFFFFFFFF == crc
    assert len(struct.pack("<I", masked_crc32c(data))) == 4


@contextmanager
def files_no_longer_than(size_bytes: int) -> Iterator[None]:
    """The kernel refuses writes beyond this size, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_logged_once_and_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = MetricsRecorder(tmp_path, clock=itertools.count().__next__)
    recorder.record(make_result(1))
    with files_no_longer_than((tmp_path / "metrics.jsonl").stat().st_size + 40):
        for iteration in (2, 3, 4):
            recorder.record(make_result(iteration))
    recorder.record(make_result(5))
    recorder.close()
    assert len(caplog.messages) == 2  # metrics.jsonl, TensorBoard events
    assert all(os.strerror(errno.EFBIG) in message for message in caplog.messages)
    # The parts that were written are gone again, so that what came later can be read.
    assert iterations(tmp_path) == [1, 5]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 2
    assert tensorboard_points(tmp_path, "train/episode_reward_mean") == [(100, 1.0), (500, 5.0)]
