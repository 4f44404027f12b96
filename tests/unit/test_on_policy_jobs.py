"""Whole jobs of the asynchronous and distributed optimizers: they run, save, and go on where they were."""

import pytest

from tests.jobs import pools
from tests.runs import assert_equal_trees, latest_state, metrics, without_clocks, write_manifest

JOBS = {
    "AsyncSamples": ("IMPALA", {"trainBatchSize": 160, "fragmentLength": 10, "updatesPerIteration": 5}),
    "AsyncGradients": ("A3C", {"trainBatchSize": 160, "fragmentLength": 10, "updatesPerIteration": 10}),
    "ShardedParameterServer": ("A3C", {"trainBatchSize": 160, "fragmentLength": 10, "updatesPerIteration": 10}),
    "Allreduce": ("PPO", {"trainBatchSize": 512, "minibatchSize": 128, "numEpochs": 2}),
}


def spec_of(optimizer: str, iterations: int) -> dict:
    algorithm, config = JOBS[optimizer]
    stop = {"iterations": iterations}
    return {"algorithm": algorithm, "optimizer": optimizer, "config": config, "evaluators": pools(2), "stop": stop}


@pytest.mark.parametrize("optimizer", list(JOBS))
def test_a_resumed_job_is_the_uninterrupted_one(tmp_path, rlcore_run, optimizer):
    for name in ("whole", "halves"):
        (tmp_path / name).mkdir()
    whole = write_manifest(tmp_path / "whole", **spec_of(optimizer, 4))
    assert rlcore_run(whole).returncode == 0
    halves = write_manifest(tmp_path / "halves", **spec_of(optimizer, 2))
    assert rlcore_run(halves).returncode == 0
    halves = write_manifest(tmp_path / "halves", **spec_of(optimizer, 4))
    assert rlcore_run(halves).returncode == 0
    assert len(metrics(tmp_path / "halves" / "runs" / "job")) == 4
    states = [without_clocks(latest_state(manifest)) for manifest in (whole, halves)]
    for state in states:
        state["optimizer"]["counters"].pop("groups_built", None)  # a resume builds one more
    assert_equal_trees(*states)


def test_impala_runs_over_ray(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, **spec_of("AsyncSamples", 4))
    done = rlcore_run(manifest, in_process=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = metrics(tmp_path / "runs" / "job")
    assert len(lines) == 4
    assert lines[-1]["timesteps"] >= 4 * 5 * 160 * 0.9
