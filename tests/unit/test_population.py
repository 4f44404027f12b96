"""A population as a user meets it: its files, its lineage, and how it goes on after an interruption or a crash."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from rlcore.checkpoint import CheckpointStore
from rlcore.cli.main import run_cli
from rlcore.driver.driver import Driver
from rlcore.driver.finished import open_store
from rlcore.driver.identity import identity
from rlcore.driver.interrupt import Interrupt
from rlcore.driver.plan import Machine, make_plan
from rlcore.driver.population import save_as_newest
from rlcore.driver.population_state import PopulationState
from rlcore.driver.run_directory import RunDirectory
from rlcore.driver.trial_runner import RemoteTrials
from rlcore.errors import NonFiniteError, UnsupportedError
from tests.jobs import make_job, pools
from tests.runs import assert_user_error, descendants, is_alive, metrics, start, wait_for, wait_until, write_manifest

POPULATION = {
    "size": 3,
    "interval": 2,
    "quantile": 0.34,
    "mutations": [{"parameter": "learningRate", "minimum": 1e-4, "maximum": 1e-2, "scale": "log"}],
}
SPEC = {"population": POPULATION, "stop": {"iterations": 6}}


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def state_of(directory: Path) -> dict:
    return json.loads((directory / "population.json").read_text())


def weights(location: Path, manifest_spec: dict) -> np.ndarray:
    found = CheckpointStore(str(location), identity=identity(make_job(**manifest_spec))).latest()
    return found[1]["optimizer"]["learner"]["policies"]["default"]["weights"]


def test_a_population_leaves_its_trials_its_lineage_and_the_best_one_as_the_job(tmp_path, rlcore_run, capsys):
    manifest = write_manifest(tmp_path, **SPEC)
    run = rlcore_run(manifest)
    assert run.returncode == 0, run.stderr
    assert "population of 3 trials" in run.stdout
    assert "is complete: trial" in run.stdout
    directory = tmp_path / "runs" / "job"
    state = state_of(directory)
    assert state["round"] == 3
    lineage = lines(directory / "lineage.jsonl")
    births, copies = ([e for e in lineage if e["event"] == event] for event in ("birth", "copy"))
    assert [e["trial"] for e in births] == [0, 1, 2]
    assert len(copies) == 2  # one after each round but the last
    for entry in copies:
        assert entry["source_score"] > (entry["score"] or 0)
        assert entry["values"].keys() == {"learningRate"}
        assert f"trial {entry['trial']}" in run.stdout
    for number in range(3):
        trial = directory / "trials" / str(number)
        assert [line["iteration"] for line in metrics(trial)] == list(range(1, 7))
    assert [line["iteration"] for line in metrics(directory)] == [2, 4, 6]
    assert (directory / "population.png").stat().st_size > 5000
    best = max(range(3), key=lambda number: state["members"][number]["score"])
    assert metrics(directory)[-1]["optimizer"]["population_best_trial"] == best
    for path in (directory, directory / "trials" / str(best)):
        assert run_cli(["eval", str(path), "--episodes", "2", "-o", "json"]) == 0
    capsys.readouterr()
    assert "complete already" in rlcore_run(manifest).stdout


def test_two_populations_with_one_seed_are_equal(tmp_path, rlcore_run):
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        rlcore_run(write_manifest(tmp_path / name, **SPEC))
        state = state_of(tmp_path / name / "runs" / "job")
        found.append({**state, "elapsed_s": 0})
    assert found[0] == found[1]


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_a_population_that_was_stopped_goes_on_and_ends_as_if_it_had_not_been(tmp_path, rlcore_run, signal_number):
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    spec = {**SPEC, "stop": {"iterations": 12}}
    rlcore_run(write_manifest(tmp_path / "whole", **spec))
    manifest = write_manifest(tmp_path / "cut", **spec)
    directory = tmp_path / "cut" / "runs" / "job"
    process = start(manifest)
    wait_for(lambda: (directory / "population.json").exists() and state_of(directory)["round"] >= 2, process)
    process.send_signal(signal_number)
    process.communicate(timeout=60)
    stopped = state_of(directory)["round"]
    again = rlcore_run(manifest)
    assert again.returncode == 0, again.stderr
    assert stopped < 6
    assert f"resumed after round {stopped}" in again.stdout
    whole = state_of(tmp_path / "whole" / "runs" / "job")
    resumed = state_of(directory)
    assert resumed["round"] == whole["round"] == 6
    # CartPole offers its state, so a resumed trial is the very same one.
    assert [m["values"] for m in resumed["members"]] == [m["values"] for m in whole["members"]]
    assert resumed["lineage"] == whole["lineage"]
    timesteps = [line["timesteps"] for line in metrics(directory)]
    assert len(timesteps) == 6


def test_an_interrupted_copy_is_made_once_more(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, **{**SPEC, "stop": {"iterations": 4}})
    rlcore_run(manifest)
    directory = tmp_path / "runs" / "job"
    state = PopulationState.load(directory)
    best, worst = state.best, min(range(3), key=lambda n: state.members[n].score)
    state.members[worst].source = best
    state.save(directory)
    write_manifest(tmp_path, **SPEC)
    run = rlcore_run(manifest)
    assert run.returncode == 0, run.stderr
    assert PopulationState.load(directory).members[worst].copies >= 1


def test_a_copy_is_its_directorys_newest_though_it_is_younger(tmp_path):
    job = make_job()
    store = open_store(job, RunDirectory(tmp_path, str(tmp_path / "checkpoints")))
    store.save({"who": "mine"}, timesteps=1005, iteration=10)
    other = open_store(job, RunDirectory(tmp_path, str(tmp_path / "other")))
    info = other.save({"who": "the source's"}, timesteps=1001, iteration=10)
    save_as_newest(store, {"who": "the source's"}, info)
    assert store.latest()[1] == {"who": "the source's"}
    save_as_newest(store, {"who": "the source's again"}, info)
    assert store.latest()[1] == {"who": "the source's again"}


def test_another_population_in_the_same_place_is_refused(tmp_path, rlcore_run):
    rlcore_run(write_manifest(tmp_path, **{**SPEC, "stop": {"iterations": 2}}))
    manifest = write_manifest(tmp_path, **{**SPEC, "population": {**POPULATION, "size": 4}})
    assert_user_error(rlcore_run(manifest), "has a population of 3 trials with learningRate", "asks for 4")


def test_a_torn_state_file_is_said(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, **{**SPEC, "stop": {"iterations": 2}})
    rlcore_run(manifest)
    (tmp_path / "runs" / "job" / "population.json").write_text("{")
    write_manifest(tmp_path, **SPEC)
    assert_user_error(rlcore_run(manifest), "population.json cannot be used", "--fresh")


def test_in_a_cluster_a_population_is_refused():
    spec = make_job(population=POPULATION).spec
    with pytest.raises(UnsupportedError, match=r"spec\.population.*not yet in a cluster"):
        make_plan(spec, Machine(cores=4, gpus=0, cluster_evaluators=4))


def test_a_trial_that_diverges_becomes_a_copy_and_the_others_train_on(tmp_path, rlcore_run, monkeypatch):
    run, calls = Driver.run, []

    def diverge_at_first(driver, interrupt):
        calls.append(driver)
        if len(calls) == 1:
            raise NonFiniteError("the loss is not finite")
        return run(driver, interrupt)

    monkeypatch.setattr(Driver, "run", diverge_at_first)
    result = rlcore_run(write_manifest(tmp_path, **SPEC))
    assert result.returncode == 0, result.stderr
    assert "trial 0 diverged with learningRate" in result.stdout
    first = next(e for e in lines(tmp_path / "runs" / "job" / "lineage.jsonl") if e["event"] == "copy")
    assert (first["trial"], first["score"]) == (0, None)
    assert state_of(tmp_path / "runs" / "job")["members"][0]["iteration"] == 6


def test_a_population_that_diverges_as_a_whole_is_an_error(tmp_path, rlcore_run):
    spec = {**SPEC, "environment": {"id": "tests.jobs:PoisonedEnv"}}
    assert_user_error(rlcore_run(write_manifest(tmp_path, **spec)), "every trial of the population diverged")


# over Ray -----------------------------------------------------------------------


@pytest.fixture
def trials(tmp_path, local_ray):
    """Two trials as actors with an evaluator actor each, and their job."""
    directories = {n: RunDirectory(tmp_path / str(n), str(tmp_path / str(n) / "checkpoints")) for n in range(2)}
    runner = RemoteTrials(directories, Machine(cores=1, gpus=0), 2, Interrupt())
    yield runner
    runner.stop()


def test_trials_over_ray_are_those_of_one_process(tmp_path, trials):
    from rlcore.driver.trial_runner import LocalTrials

    job = make_job(evaluators=pools(1))
    there = {report.trial: report for report in trials.train({0: (job, 0)}, 3)}
    directory = RunDirectory(tmp_path / "here", str(tmp_path / "here" / "checkpoints"))
    here = LocalTrials({0: directory}, Machine(cores=1, gpus=0), Interrupt())
    mine = next(here.train({0: (job, 0)}, 3))
    here.stop()
    assert (mine.score, mine.timesteps) == (there[0].score, there[0].timesteps)


def test_a_signal_over_ray_saves_every_trial_and_leaves_no_process_behind(tmp_path):
    spec = {**SPEC, "stop": {"iterations": 10_000}, "population": {**POPULATION, "size": 2, "interval": 1000}}
    manifest = write_manifest(tmp_path, evaluators=pools(1), **spec)
    directory = tmp_path / "runs" / "job"
    process = start(manifest, in_process=False)
    trials = [directory / "trials" / str(number) for number in range(2)]
    wait_for(lambda: all((t / "metrics.jsonl").exists() and len(metrics(t)) >= 3 for t in trials), process)
    children = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 130, output
    assert "stopped by SIGINT: saved at" in output
    assert all(member["iteration"] >= 3 for member in state_of(directory)["members"])
    for trial in trials:
        assert any((trial / "checkpoints").glob("ckpt-*"))
    wait_until(lambda: not any(is_alive(pid) for pid in children), "Ray's processes end")
