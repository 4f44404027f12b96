"""How an attempt ends: exit codes, the operator's answer, a last checkpoint for the preStop hook, logs."""

import json
import logging
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from rlcore.checkpoint import CheckpointStore
from rlcore.checkpoint.storage import open_storage
from rlcore.checkpoint.store import require_same_job
from rlcore.driver import logs
from rlcore.driver.checkpoint_socket import CheckpointSocket
from rlcore.driver.final_status import failed, judge, succeeded, wait_until_observed
from rlcore.driver.interrupt import Interrupt
from rlcore.driver.log_archive import archive_logs
from rlcore.driver.logs import KeyValueFormatter, LogDisplay, LogTail
from rlcore.env.registry import find_spec, load_factory
from rlcore.errors import (
    CheckpointError,
    EnvironmentFailure,
    FencedError,
    LearnerLostError,
    ManifestError,
    NoEvaluatorsError,
    NonFiniteError,
    UnsupportedError,
    UserError,
)
from rlcore.metrics.attempt_status import AttemptBoard
from rlcore.metrics.result import IterationResult
from rlcore.prestop import SOCKET_FILE, ask_for_checkpoint, wait_for_checkpoint

ROOT = Path(__file__).parents[2]


def raised(function, *arguments) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is, is the question
        function(*arguments)
    return caught.value


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


# exit codes -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "exit_code", "failure_class"),
    [
        (ManifestError("x"), 2, "ConfigInvalid"),
        (UnsupportedError("x"), 2, "ConfigInvalid"),
        (raised(find_spec, "CartPol-v1"), 2, "ConfigInvalid"),
        (raised(load_factory, "no_such_module:Env"), 2, "ConfigInvalid"),
        (raised(load_factory, "tests.jobs:NoSuchEnv"), 2, "ConfigInvalid"),
        (raised(open_storage, "ftp://host/path"), 2, "ConfigInvalid"),
        (raised(require_same_job, "checkpoint", {"algorithm": "A"}, {"algorithm": "B"}), 2, "ConfigInvalid"),
        (ImportError("no module named torch"), 2, "ConfigInvalid"),
        (EnvironmentFailure("failed 11 times"), 3, "ApplicationFailed"),
        (NonFiniteError("x"), 3, "ApplicationFailed"),
        (CheckpointError("cannot write"), 3, "ApplicationFailed"),
        (LearnerLostError("x"), 3, "ApplicationFailed"),
        (NoEvaluatorsError("x"), 3, "EvaluatorsLost"),
        (OSError("no route"), 3, "ApplicationFailed"),
        (MemoryError(), 3, "OutOfMemory"),
        (torch.OutOfMemoryError("CUDA out of memory"), 3, "OutOfMemory"),
        (caused_by(UserError("the evaluator died"), MemoryError()), 3, "OutOfMemory"),
        (FencedError("x"), 75, ""),
        (ZeroDivisionError("x"), 70, "ApplicationFailed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_what_a_failure_means_for_the_next_attempt(error, exit_code, failure_class):
    assert judge(error) == (exit_code, failure_class)


def test_rays_own_failures_are_not_bugs():
    from ray.exceptions import OutOfMemoryError, RaySystemError

    assert judge(RaySystemError("the GCS is gone")) == (3, "ApplicationFailed")
    assert judge(OutOfMemoryError("the node ran low on memory")) == (3, "OutOfMemory")


def test_a_final_status_says_why_in_words_and_in_one_word():
    final = failed(EnvironmentFailure("it failed 11 times", hint="mend it"), "1.pod.2")
    assert (final.phase, final.reason, final.token) == ("Failed", "EnvironmentFailure", "1.pod.2")
    assert final.message == "it failed 11 times\n  -> mend it"
    assert failed(ZeroDivisionError("division by zero"), "t").message == "ZeroDivisionError: division by zero"
    assert succeeded("4,000 timesteps are done", "t").exit_code == 0


def test_the_wait_for_the_operator_ends_with_its_answer_a_signal_or_in_time():
    final = succeeded("done", "1.pod.2")
    answers = iter([None, "1.pod.1", "1.pod.2"])
    assert wait_until_observed(final, lambda: next(answers), Interrupt())
    assert not wait_until_observed(final, lambda: None, Interrupt(), deadline_s=0.0)
    stopped = Interrupt()
    stopped.signal = 15
    assert not wait_until_observed(final, lambda: None, stopped)


def test_the_status_of_an_attempt_shows_checkpoints_and_the_end_without_secrets():
    board = AttemptBoard(job="j", algorithm="PPO", environment="CartPole-v1", attempt=2, token="2.pod.1")
    assert board.snapshot()["checkpoint"] == {"location": None, "timesteps": None, "time_s": None, "request": None}
    board.note_checkpoint(location="s3://key:secret@bucket/run/ckpt-1", timesteps=7, time_s=3.5)
    board.note_request("please")
    board.note_completion({"timesteps": 7, "iterations": 2, "episode_reward_mean": float("nan")})
    board.set_final(succeeded("done", "2.pod.1"))
    status = board.snapshot()
    assert status["checkpoint"] == {
        "location": "s3://bucket/run/ckpt-1", "timesteps": 7, "time_s": 3.5, "request": "please"
    }  # fmt: skip
    assert (status["attempt"], status["token"], status["phase"]) == (2, "2.pod.1", "Succeeded")
    assert (status["iteration"], status["timesteps"], status["episode_reward_mean"]) == (2, 7, None)
    assert status["final"]["exit_code"] == 0
    json.dumps(status, allow_nan=False)


# preStop -----------------------------------------------------------------------


def prestop(directory: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RLCORE_RUNTIME_DIR": str(directory)}
    return subprocess.run(
        [sys.executable, "-m", "rlcore.prestop"], capture_output=True, text=True, timeout=60, env=environment, cwd=ROOT
    )  # fmt: skip


def test_the_hook_gets_the_drivers_answer(tmp_path):
    deep = tmp_path / ("d" * 100)  # longer than a socket's path may be
    deep.mkdir()
    requests = CheckpointSocket(deep)
    try:
        answers: list[str] = []
        client = threading.Thread(target=lambda: answers.append(ask_for_checkpoint(str(deep))))
        client.start()
        end_s = time.monotonic() + 60
        while not requests.asked:
            assert time.monotonic() < end_s
        requests.answer("saved at 100 timesteps")
        client.join(60)
        assert answers == ["saved at 100 timesteps"]
        assert not requests.asked
    finally:
        requests.close()
    assert not (deep / SOCKET_FILE).exists()


def test_a_driver_that_ends_lets_the_hook_go(tmp_path):
    requests = CheckpointSocket(tmp_path)
    answers: list[str] = []
    client = threading.Thread(target=lambda: answers.append(ask_for_checkpoint(str(tmp_path))))
    client.start()
    end_s = time.monotonic() + 60
    while not requests.asked:
        assert time.monotonic() < end_s
    requests.close()
    client.join(60)
    assert answers == ["the driver ends"]


@pytest.mark.parametrize("there", [True, False], ids=["no driver", "no directory"])
def test_the_hook_never_fails(tmp_path, there):
    done = prestop(tmp_path if there else tmp_path / "nowhere")
    assert done.returncode == 0
    assert "no checkpoint" in done.stderr


def test_the_hook_gives_up_on_a_driver_that_is_busy(tmp_path):
    requests = CheckpointSocket(tmp_path)
    try:
        assert ask_for_checkpoint(str(tmp_path), deadline_s=0.2) == "no checkpoint: timed out"
    finally:
        requests.close()


class StatusServer:
    """A driver's status, which names the next of `requests` at each look."""

    def __init__(self, *requests: str | None) -> None:
        left = list(requests)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps({"checkpoint": {"request": left.pop(0) if len(left) > 1 else left[0]}}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/status"

    def __enter__(self) -> "StatusServer":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_a_learners_hook_waits_for_the_checkpoint_that_was_asked_for_on_its_account():
    with StatusServer(None, "learner-another", "learner-uid") as server:
        assert wait_for_checkpoint(server.url, "learner-uid") == "the checkpoint is written"
    assert wait_for_checkpoint(server.url, "learner-uid").startswith("no driver to wait for")
    with StatusServer(None) as server:
        assert wait_for_checkpoint(server.url, "learner-uid", deadline_s=0.2) == "no checkpoint within 0 s"


def test_a_learners_hook_never_fails():
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "rlcore.prestop", "learner"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=ROOT)
    assert done.returncode == 0
    assert "no driver to wait for" in done.stderr


def test_the_hook_imports_nothing_but_the_standard_library():
    code = (
        "import sys; before = set(sys.modules); import rlcore.prestop; "
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))"
    )
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "['rlcore']"


# logs --------------------------------------------------------------------------


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("rlcore.driver", logging.INFO, __file__, 1, message, (), None)
    setattr(made, logs.FIELDS, fields)
    return made


def test_a_log_line_is_keys_and_values():
    line = KeyValueFormatter().format(record('two words and a "quote"', timesteps=3))
    assert line.partition(" ")[2] == (
        'level=info logger=rlcore.driver message="two words and a \\"quote\\"" timesteps=3'
    )
    assert "\n" not in KeyValueFormatter().format(record("two\nlines"))


def test_the_tail_keeps_the_last_lines():
    tail = LogTail()
    for number in range(1000):
        tail.handle(record("line", number=number))
    lines = tail.text().splitlines()
    assert len(lines) == logs.TAIL_LINES
    assert lines[-1].endswith("number=999")


def iteration(number: int) -> IterationResult:
    return IterationResult(
        iteration=number, timesteps=number * 10, timesteps_this_iteration=10, episodes=0, timesteps_per_s=1.0,
        sample_time_s=0.1, learn_time_s=0.1, wait_time_s=0.0, elapsed_s=1.0,
    )  # fmt: skip


def test_iterations_are_logged_once_a_second_and_the_last_one_always(caplog):
    now_s = 0.0
    display = LogDisplay(clock=lambda: now_s)
    with caplog.at_level(logging.INFO, "rlcore.driver"):
        for number in range(1, 11):
            display.update(iteration(number))
            now_s += 0.25
        display.stop()
    logged = [getattr(each, logs.FIELDS)["iteration"] for each in caplog.records]
    assert logged == [1, 5, 9, 10]


def test_the_ends_of_rays_logs_are_archived_the_drivers_own_first(tmp_path, monkeypatch):
    session = tmp_path / "session" / "logs"
    session.mkdir(parents=True)
    for name, text in (("raylet.out", "r" * 50), ("job-driver-x.log", "begin" + "d" * 45), ("gcs.out", "g" * 50)):
        (session / name).write_text(text)
    monkeypatch.setattr("rlcore.driver.log_archive.LARGEST_FILE_BYTES", 45)
    monkeypatch.setattr("rlcore.driver.log_archive.LARGEST_ARCHIVE_BYTES", 80)
    storage = open_storage(str(tmp_path / "store"))
    assert archive_logs(session.parent, storage, 3) == 80
    archive = tmp_path / "store" / "logs" / "3"
    assert (archive / "job-driver-x.log").read_text() == "d" * 45
    assert len(list(archive.iterdir())) == 2
    # It is no checkpoint, and stands in no checkpoint's way.
    store = CheckpointStore(str(tmp_path / "store"), identity={})
    assert store.latest() is None
    store.save({"x": 1}, timesteps=1, iteration=1)
    assert json.loads((tmp_path / "store" / "ckpt-000000000001-1" / "manifest.json").read_text())["timesteps"] == 1


def test_logs_that_are_not_there_are_no_error(tmp_path):
    assert archive_logs(tmp_path / "nowhere", open_storage(str(tmp_path)), 1) == 0
