"""Runs that are stopped in every way, and go on as if nothing had happened."""

import signal
import time

import pytest

from tests.jobs import pools
from tests.runs import (
    assert_equal_trees,
    assert_user_error,
    latest_state,
    metrics,
    start,
    wait_for,
    wait_for_iterations,
    without_clocks,
    write_manifest,
)


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
    assert "before training began: no checkpoint was touched" in output
    assert rlcore_run(manifest).returncode == 0


def test_a_second_run_of_the_same_job_is_refused(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, stop={"timesteps": 10_000_000})
    process = start(manifest)
    wait_for_iterations(tmp_path / "runs" / "job", 1, process)
    assert_user_error(rlcore_run(manifest), f"in use by pid {process.pid}")
    process.terminate()
    process.communicate(timeout=60)
