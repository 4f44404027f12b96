"""What goes wrong in the user's hands: a message on one screen, exit code 2, nothing lost."""

import re

import pytest

from tests.runs import (
    assert_user_error,
    fill,
    write_manifest,
)


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


def test_gpus_that_are_not_there_are_noted_and_strict_refuses(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, learner={"gpus": 1}, stop={"timesteps": 600})
    assert "1 GPUs asked for, 0 found: learning on the CPU" in rlcore_run(manifest).stdout
    assert_user_error(rlcore_run(manifest, "--strict", "--fresh"), "1 GPUs asked for")


def test_a_bad_manifest_is_refused_before_anything_is_imported(tmp_path, rlcore_run):
    manifest = tmp_path / "bad.yaml"
    manifest.write_text(write_manifest(tmp_path).read_text().replace("numEpochs", "numEpoch"))
    assert_user_error(rlcore_run(manifest), "spec.config.numEpoch", "numEpochs")
