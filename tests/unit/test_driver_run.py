"""`rlcore run` as a user meets it: training, resuming, interrupting, and everything that can go wrong."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml

from rlcore.checkpoint import CheckpointStore
from rlcore.cli.main import run_cli
from rlcore.driver.identity import identity
from tests.jobs import make_job, pools

ROOT = Path(__file__).parents[2]


def write_manifest(directory: Path, name: str = "job", **spec) -> Path:
    job = make_job(name, **spec)
    path = directory / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job.model_dump(mode="json", by_alias=True, exclude_unset=True)))
    return path


def command(manifest: Path, *options: str, in_process: bool = True) -> list[str]:
    mode = ["--in-process"] if in_process else []
    return [
        sys.executable,
        "-m",
        "rlcore",
        "run",
        str(manifest),
        "--runs",
        str(manifest.parent / "runs"),
        *mode,
        *options,
    ]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def rlcore_run(capsys):
    """Runs the command line; in this very process without Ray, which spares each test seconds of imports."""

    def run(manifest: Path, *options: str, in_process: bool = True) -> Result:
        arguments = command(manifest, *options, in_process=in_process)
        if not in_process:
            done = subprocess.run(
                arguments, capture_output=True, text=True, timeout=240, env=environment(), check=False
            )
            return Result(done.returncode, done.stdout, done.stderr)
        capsys.readouterr()
        code = run_cli(arguments[3:])
        return Result(code, *capsys.readouterr())

    return run


def start(manifest: Path, *options: str, in_process: bool = True) -> subprocess.Popen:
    return subprocess.Popen(
        command(manifest, *options, in_process=in_process),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(),
    )  # fmt: skip


def wait_for(condition: Callable[[], object], process: subprocess.Popen, deadline_s: float = 120) -> None:
    """Polls a condition while a process runs."""
    end = time.monotonic() + deadline_s
    while not condition():
        if process.poll() is not None:
            pytest.fail(f"ended early: {process.communicate()[0]}")
        if time.monotonic() > end:
            process.kill()
            pytest.fail(f"not within {deadline_s} s: {process.communicate()[0]}")
        time.sleep(0.02)


def wait_for_iterations(directory: Path, count: int, process: subprocess.Popen) -> None:
    wait_for(lambda: len(metrics(directory)) >= count, process)


def metrics(directory: Path) -> list[dict]:
    path = directory / "metrics.jsonl"
    return (
        [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if path.exists()
        else []
    )


def latest_state(manifest: Path) -> dict:
    from rlcore.api import load_job

    job = load_job(manifest)
    store = CheckpointStore(str(manifest.parent / "runs" / job.metadata.name / "checkpoints"), identity=identity(job))
    found = store.latest()
    assert found is not None
    return found[1]


def assert_equal_trees(one, two, path="") -> None:
    assert type(one) is type(two), path
    if isinstance(one, dict):
        assert one.keys() == two.keys(), path
        for key in one:
            assert_equal_trees(one[key], two[key], f"{path}/{key}")
    elif isinstance(one, list):
        assert len(one) == len(two), path
        for index, (a, b) in enumerate(zip(one, two, strict=True)):
            assert_equal_trees(a, b, f"{path}/{index}")
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, two, err_msg=path)
    else:
        assert one == two, path


def without_clocks(state: dict) -> dict:
    driver = {name: value for name, value in state["driver"].items() if name != "elapsed_s"}
    return {**state, "driver": driver}


def test_a_run_leaves_its_results_and_is_complete_when_run_again(tmp_path, rlcore_run, capsys):
    manifest = write_manifest(tmp_path, evaluation={"every": 2, "episodes": 4})
    first = rlcore_run(manifest)
    assert first.returncode == 0, first.stderr
    directory = tmp_path / "runs" / "job"
    assert re.search(r"job is complete: 4,\d+ timesteps are done, of 4,000", first.stdout)
    assert "deterministic policy: mean episode reward" in first.stdout
    for next_command in (f"rlcore eval {directory}", f"rlcore plot {directory}", "tensorboard --logdir"):
        assert next_command in first.stdout
    lines = metrics(directory)
    assert [line["iteration"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["timesteps"] >= 4000
    assert lines[-1]["evaluation"]["episodes"] == 4
    assert (directory / "learning_curve.png").stat().st_size > 5000
    assert list((directory / "tensorboard").iterdir())

    second = rlcore_run(manifest)
    assert second.returncode == 0
    assert "complete already" in second.stdout
    assert metrics(directory) == lines

    assert run_cli(["eval", str(directory), "--episodes", "3", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 3


def test_a_raised_goal_goes_on_from_the_end(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path)
    rlcore_run(manifest)
    write_manifest(tmp_path, stop={"timesteps": 6000})
    again = rlcore_run(manifest)
    assert again.returncode == 0
    assert "resumed at 4," in again.stdout
    timesteps = [line["timesteps"] for line in metrics(tmp_path / "runs" / "job")]
    assert timesteps == sorted(set(timesteps))
    assert timesteps[-1] >= 6000


def test_fresh_starts_over_and_keeps_the_old_run(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, stop={"timesteps": 1000})
    rlcore_run(manifest)
    again = rlcore_run(manifest, "--fresh")
    assert "the earlier run is kept in" in again.stdout
    assert re.search(r"is complete: 1,\d+ timesteps", again.stdout)
    assert len(list((tmp_path / "runs").glob("job.*"))) == 1


def test_fresh_on_a_first_run_moves_nothing(tmp_path, rlcore_run):
    first = rlcore_run(write_manifest(tmp_path, stop={"timesteps": 600}), "--fresh")
    assert first.returncode == 0
    assert "earlier run" not in first.stdout
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["job"]


def test_fresh_starts_over_where_checkpoints_are_elsewhere(tmp_path, rlcore_run):
    elsewhere = {"checkpoint": {"storage": {"path": str(tmp_path / "shared")}}, "stop": {"timesteps": 600}}
    manifest = write_manifest(tmp_path, **elsewhere)
    rlcore_run(manifest)
    assert "complete already" in rlcore_run(manifest).stdout
    write_manifest(tmp_path, model={"hiddens": [16]}, **elsewhere)
    again = rlcore_run(manifest, "--fresh")
    assert again.returncode == 0, again.stderr
    assert "complete already" not in again.stdout
    assert len(list((tmp_path / "shared").glob("job*"))) == 2


def test_a_seed_that_is_drawn_is_kept_for_resumes(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, seed=None, stop={"timesteps": 600})
    rlcore_run(manifest)
    seed_file = tmp_path / "runs" / "job" / "checkpoints" / "seed.json"
    seed = json.loads(seed_file.read_text())
    write_manifest(tmp_path, seed=None, stop={"timesteps": 1200})
    assert "resumed" in rlcore_run(manifest).stdout
    assert json.loads(seed_file.read_text()) == seed


@pytest.mark.parametrize(
    "change",
    [
        {"evaluators": {"envsPerEvaluator": 8, "pools": [{"name": "p", "minReplicas": 0, "maxReplicas": 1}]}},
        {"evaluators": {"envsPerEvaluator": 4, "pools": [{"name": "p", "minReplicas": 2, "maxReplicas": 2}]}},
        {"environment": {"id": "CartPole-v1", "vectorization": "sync"}},
        {"config": {"trainBatchSize": 1024, "learningRate": 1e-4}},
    ],
    ids=["environments", "evaluators", "vectorization", "hyper-parameters"],
)
def test_what_may_change_between_runs_changes(tmp_path, rlcore_run, change):
    manifest = write_manifest(tmp_path, stop={"timesteps": 1500})
    rlcore_run(manifest)
    write_manifest(tmp_path, stop={"timesteps": 4000}, **change)
    again = rlcore_run(manifest)
    assert again.returncode == 0, again.stderr
    assert "resumed at 1," in again.stdout
    assert metrics(tmp_path / "runs" / "job")[-1]["timesteps"] >= 4000


def test_several_policies_with_a_filter_train_resume_and_play(tmp_path, rlcore_run, capsys):
    spec = {
        "environment": {"id": "tests.jobs:TwoAgents"},
        "multiAgent": {"policies": {"same": {}, "other": {}}, "mapping": "tests.jobs:own_policy"},
        "config": {"trainBatchSize": 512, "minibatchSize": 128, "observationFilter": "meanStd"},
    }
    manifest = write_manifest(tmp_path, stop={"timesteps": 1500}, **spec)
    assert rlcore_run(manifest).returncode == 0
    write_manifest(tmp_path, stop={"timesteps": 3000}, **spec)
    again = rlcore_run(manifest)
    assert again.returncode == 0, again.stderr
    assert "resumed at 1," in again.stdout
    assert {"same/kl", "other/kl"} <= set(metrics(tmp_path / "runs" / "job")[-1]["learner"])
    assert run_cli(["eval", str(tmp_path / "runs" / "job"), "--episodes", "2"]) == 0


def test_a_run_that_was_moved_aside_plays_its_own_policy(tmp_path, rlcore_run, capsys):
    manifest = write_manifest(tmp_path, stop={"timesteps": 1500})
    rlcore_run(manifest)
    write_manifest(tmp_path, stop={"timesteps": 600})
    rlcore_run(manifest, "--fresh")
    (moved,) = (tmp_path / "runs").glob("job.*")
    assert run_cli(["eval", str(moved), "-o", "json", "--episodes", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["timesteps"] >= 1500


def test_another_environments_finished_run_is_not_this_jobs(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, stop={"timesteps": 600})
    rlcore_run(manifest)
    write_manifest(tmp_path, environment={"id": "Acrobot-v1"}, stop={"timesteps": 600})
    assert_user_error(rlcore_run(manifest), "CartPole-v1", "Acrobot-v1", "--fresh")


def test_an_evaluation_that_fails_does_not_fail_the_run(tmp_path, rlcore_run):
    deadly = {"id": "tests.jobs:FailsWhenEvaluated", "maxFailures": 0}
    manifest = write_manifest(
        tmp_path, environment=deadly, stop={"timesteps": 1200}, evaluation={"every": 1, "episodes": 2}
    )
    done = rlcore_run(manifest)
    assert done.returncode == 0, done.stderr
    assert "evaluation failed" in done.stderr
    assert "complete already" in rlcore_run(manifest).stdout


def test_a_signal_while_the_finished_run_is_evaluated_leaves_it_complete(tmp_path):
    slow = {"id": "tests.jobs:CountingEnv", "kwargs": {"length": 100_000_000}, "maxEpisodeSteps": 100_000}
    manifest = write_manifest(
        tmp_path, environment=slow, stop={"timesteps": 600}, evaluation={"every": 100, "episodes": 1}
    )
    process = start(manifest, in_process=False)
    completion = tmp_path / "runs" / "job" / "checkpoints" / "completion.json"
    wait_for(completion.exists, process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "job is complete" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("in_process", [True, False], ids=["in process", "ray"])
def test_an_interrupted_run_resumes_and_equals_an_uninterrupted_one(tmp_path, number, in_process, rlcore_run):
    config = {"trainBatchSize": 512, "minibatchSize": 128, "numEpochs": 2, "observationFilter": "meanStd"}
    evaluators = {"envsPerEvaluator": 4, "pools": [{"name": "p", "minReplicas": 2, "maxReplicas": 2}]}
    spec = {"stop": {"timesteps": 40_000}, "config": config, "evaluators": evaluators}
    whole = write_manifest(tmp_path, "whole", **spec)
    assert rlcore_run(whole).returncode == 0
    parted = write_manifest(tmp_path, "parted", **spec)
    process = start(parted, in_process=in_process)
    wait_for_iterations(tmp_path / "runs" / "parted", 5, process)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, output
    assert f"stopped by {signal.Signals(number).name}: saved at" in output
    stopped_at = metrics(tmp_path / "runs" / "parted")[-1]["iteration"]
    again = rlcore_run(parted, in_process=in_process)
    assert again.returncode == 0, again.stderr
    assert "resumed at" in again.stdout
    assert stopped_at < metrics(tmp_path / "runs" / "parted")[-1]["iteration"]
    assert_equal_trees(without_clocks(latest_state(whole)), without_clocks(latest_state(parted)))


def test_a_killed_run_resumes_from_its_last_checkpoint(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, stop={"timesteps": 10_000_000}, checkpoint={"every": "1s"})
    directory = tmp_path / "runs" / "job"
    process = start(manifest)
    wait_for_iterations(directory, 1, process)
    wait_for(lambda: list(directory.glob("checkpoints/*/manifest.json")), process)
    process.kill()
    process.communicate(timeout=30)
    write_manifest(tmp_path, stop={"timesteps": 1000})
    again = rlcore_run(manifest)
    assert again.returncode == 0, again.stderr
    assert "resumed at" in again.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_ray_starts_ends_the_run_at_once(tmp_path, rlcore_run, number):
    manifest = write_manifest(tmp_path, stop={"timesteps": 600}, evaluators=pools(1))
    process = start(manifest, in_process=False)
    for line in process.stdout:
        if "starting Ray" in line:
            break
    time.sleep(0.5)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, output
    assert "before training began: nothing was changed" in output
    assert rlcore_run(manifest).returncode == 0


def test_metrics_and_status_are_served_while_training(tmp_path):
    manifest = write_manifest(tmp_path, stop={"timesteps": 10_000_000})
    process = start(manifest, "--port", "0")
    lines = []
    for line in process.stdout:
        lines.append(line)
        if found := re.search(r"(http://127\.0\.0\.1:\d+)/metrics", line):
            break
    url = found.group(1)
    wait_for_iterations(tmp_path / "runs" / "job", 2, process)
    status = json.loads(urllib.request.urlopen(f"{url}/status", timeout=10).read())
    exposition = urllib.request.urlopen(f"{url}/metrics", timeout=10).read().decode()
    process.terminate()
    process.communicate(timeout=60)
    assert status["phase"] == "Running"
    assert status["iteration"] >= 1
    assert re.search(r"^rlcore_timesteps_total.* [1-9]", exposition, re.MULTILINE)


# what goes wrong ------------------------------------------------------------------


def assert_user_error(result: subprocess.CompletedProcess, *patterns: str) -> None:
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) <= 24
    for pattern in patterns:
        assert re.search(pattern, result.stderr), result.stderr


def test_an_unknown_environment_names_the_nearest(tmp_path, rlcore_run):
    result = rlcore_run(write_manifest(tmp_path, environment={"id": "CartPol-v1"}))
    assert_user_error(result, "CartPol-v1", "CartPole-v1")


def test_an_unknown_environment_is_said_over_ray_too(tmp_path, rlcore_run):
    result = rlcore_run(write_manifest(tmp_path, environment={"id": "tests.jobs:Nothing"}), in_process=False)
    assert_user_error(result, "tests.jobs", "Nothing")


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_nan_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path, what, rlcore_run):
    poisoned = {"id": "tests.jobs:PoisonedEnv", "kwargs": {"what": what, "after": 500}}
    manifest = write_manifest(tmp_path, environment=poisoned, checkpoint={"every": "1s"}, stop={"timesteps": 100_000})
    first = rlcore_run(manifest)
    assert_user_error(first, f"gave a {what} that is not finite", "last good checkpoint is kept")


def test_an_environment_that_keeps_failing_ends_the_run_with_the_evidence(tmp_path, rlcore_run):
    failing = {"id": "tests.jobs:FailingEnv", "kwargs": {"length": 100}, "maxFailures": 5}
    result = rlcore_run(
        write_manifest(tmp_path, environment=failing, config={"trainBatchSize": 64, "minibatchSize": 32})
    )
    assert_user_error(result, r"failed \d+ times", r"seed \d+", "action", "the simulator crashed")
    assert "environment failed, replaced" in result.stderr


def test_a_checkpoint_of_another_job_is_refused_and_the_difference_said(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, stop={"timesteps": 1000})
    rlcore_run(manifest)
    write_manifest(tmp_path, environment={"id": "Acrobot-v1"}, stop={"timesteps": 5000})
    assert_user_error(rlcore_run(manifest), "CartPole-v1", "Acrobot-v1", "--fresh")


def test_a_damaged_checkpoint_is_skipped_and_the_one_before_used(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, stop={"timesteps": 1000})
    rlcore_run(manifest)
    write_manifest(tmp_path, stop={"timesteps": 2000})
    rlcore_run(manifest)
    checkpoints = sorted((tmp_path / "runs" / "job" / "checkpoints").glob("ckpt-*"))
    assert len(checkpoints) == 2
    arrays = next(path for path in checkpoints[1].iterdir() if path.stat().st_size > 10_000)
    arrays.write_bytes(arrays.read_bytes()[:-100])
    write_manifest(tmp_path, stop={"timesteps": 3000})
    again = rlcore_run(manifest)
    assert again.returncode == 0
    assert re.search(r"skipped.*" + checkpoints[1].name, again.stderr)
    assert re.search(r"resumed at 1,\d+ timesteps", again.stdout)


def test_a_port_in_use_is_said_before_anything_is_started(tmp_path, rlcore_run):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert_user_error(rlcore_run(write_manifest(tmp_path), "--port", str(port)), str(port), "in use")


def test_a_second_run_of_the_same_job_is_refused(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, stop={"timesteps": 10_000_000})
    process = start(manifest)
    wait_for_iterations(tmp_path / "runs" / "job", 1, process)
    assert_user_error(rlcore_run(manifest), f"in use by pid {process.pid}")
    process.terminate()
    process.communicate(timeout=60)


def fill(path: Path) -> None:
    """Writes until the file system is full."""
    try:
        with path.open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path, small_disk, rlcore_run):
    manifest = write_manifest(tmp_path, stop={"timesteps": 1000}, checkpoint={"storage": {"path": str(small_disk)}})
    assert rlcore_run(manifest).returncode == 0
    kept = sorted((small_disk / "job").glob("ckpt-*"))
    fill(small_disk / "ballast")
    write_manifest(tmp_path, stop={"timesteps": 2000}, checkpoint={"storage": {"path": str(small_disk)}})
    assert_user_error(rlcore_run(manifest), "No space left|space", "older ones are untouched|free")
    assert sorted((small_disk / "job").glob("ckpt-*")) == kept
    (small_disk / "ballast").unlink()
    again = rlcore_run(manifest)
    assert again.returncode == 0
    assert re.search(r"resumed at 1,\d+ timesteps", again.stdout)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB; mounting one takes root, which CI has."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_gpus_that_are_not_there_are_noted_and_strict_refuses(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, learner={"gpus": 1}, stop={"timesteps": 600})
    assert "1 GPUs asked for, 0 found: learning on the CPU" in rlcore_run(manifest).stdout
    assert_user_error(rlcore_run(manifest, "--strict", "--fresh"), "1 GPUs asked for")


def test_a_bad_manifest_is_refused_before_anything_is_imported(tmp_path, rlcore_run):
    manifest = tmp_path / "bad.yaml"
    manifest.write_text(write_manifest(tmp_path).read_text().replace("numEpochs", "numEpoch"))
    assert_user_error(rlcore_run(manifest), "spec.config.numEpoch", "numEpochs")
