"""`rlcore run` as a user meets it: results, resuming, starting over, what may change between runs."""

import json
import re
import urllib.request

import pytest

from rlcore.checkpoint import RunLock
from rlcore.cli.main import run_cli
from tests.runs import (
    assert_user_error,
    metrics,
    start,
    wait_for_iterations,
    write_manifest,
)


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


def test_fresh_leaves_a_running_jobs_checkpoints_alone(tmp_path, rlcore_run):
    elsewhere = {"checkpoint": {"storage": {"path": str(tmp_path / "shared")}}, "stop": {"timesteps": 600}}
    manifest = write_manifest(tmp_path, **elsewhere)
    with RunLock(tmp_path / "shared" / "job"):
        assert_user_error(rlcore_run(manifest, "--fresh"), "in use by pid")
    assert (tmp_path / "shared" / "job").is_dir()


def test_checkpoints_may_be_kept_among_the_runs(tmp_path, rlcore_run):
    manifest = write_manifest(
        tmp_path, checkpoint={"storage": {"path": str(tmp_path / "runs")}}, stop={"timesteps": 600}
    )
    assert rlcore_run(manifest).returncode == 0
    again = rlcore_run(manifest, "--fresh")
    assert again.returncode == 0, again.stderr
    assert "is complete: " in again.stdout


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
