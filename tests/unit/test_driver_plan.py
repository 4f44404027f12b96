"""From a manifest and a machine to a plan; when training is over; where files go."""

import shutil
from pathlib import Path

import pytest

from rlcore.api import StopSpec
from rlcore.driver.identity import identity
from rlcore.driver.plan import Machine, Plan, make_plan
from rlcore.driver.run_directory import move_aside, run_directory
from rlcore.driver.stop import stop_reason
from rlcore.errors import UnsupportedError, UserError
from tests.jobs import make_job, pools

LAPTOP = Machine(cores=2, gpus=0)


def plan(machine: Machine = LAPTOP, *, strict: bool = False, **spec) -> Plan:
    return make_plan(make_job(**spec).spec, machine, strict=strict)


def pool(name: str, low: int, cpu: int = 1) -> dict:
    return {"name": name, "minReplicas": low, "maxReplicas": 10, "resources": {"cpu": cpu, "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("evaluators", "machine", "expected", "notes"),
    [
        (pools(2), LAPTOP, 2, ()),
        (pools(0), LAPTOP, 0, ()),
        (pools(8), LAPTOP, 2, ("8 evaluators asked for, 2 started: this machine has 2 cores",)),
        ({"pools": [pool("spot", 1, cpu=4), pool("base", 1)]}, Machine(cores=16, gpus=0), 5, ()),
        ({"replicas": 3, "pools": [pool("base", 1)]}, Machine(cores=16, gpus=0), 3, ()),
        ({"pools": [pool("base", 1)]}, Machine(cores=2, gpus=0, cluster_evaluators=40), 40, ()),
    ],
    ids=["fits", "none", "clamped", "pods with several cores", "replicas", "a cluster"],
)
def test_how_many_evaluators_there_are(evaluators, machine, expected, notes):
    made = plan(machine, evaluators=evaluators)
    assert made.evaluators == expected
    assert made.notes == notes


@pytest.mark.parametrize(
    ("gpus", "machine", "devices", "noted"),
    [
        (0, Machine(cores=2, gpus=4), ("cpu",), False),
        (2, Machine(cores=2, gpus=4), ("cuda:0", "cuda:1"), False),
        (2, Machine(cores=2, gpus=1), ("cuda:0",), True),
        (1, LAPTOP, ("cpu",), True),
        (1, Machine(cores=2, gpus=0, cluster_evaluators=4, cluster_learner_gpus=1), ("cuda:0",), False),
    ],
)
def test_which_devices_learn(gpus, machine, devices, noted):
    made = plan(machine, learner={"gpus": gpus})
    assert made.devices == devices
    assert bool(made.notes) == noted


def test_straggler_mitigation_that_cannot_work_is_noted():
    config = {"trainBatchSize": 512, "stragglerMitigation": True}
    assert "no effect" in plan(optimizer="SyncSamples", config=config).notes[0]
    assert plan(config=config).notes == ()


def test_strict_makes_a_note_an_error():
    with pytest.raises(UserError, match=r"1 GPUs asked for, 0 found: learning on the CPU(.|\n)*--strict"):
        plan(learner={"gpus": 1}, strict=True)


@pytest.mark.parametrize(
    ("spec", "length"),
    [
        ({"evaluators": pools(2, envs=4), "config": {"trainBatchSize": 512}}, 64),
        ({"evaluators": pools(0, envs=4), "config": {"trainBatchSize": 512}}, 128),
        ({"evaluators": pools(2, envs=4), "config": {"trainBatchSize": 512, "fragmentLength": 10}}, 10),
        ({"evaluators": pools(2, envs=4), "config": {"trainBatchSize": 513}}, 65),
        ({"evaluators": pools(2, envs=400), "config": {"trainBatchSize": 512}}, 1),
    ],
)
def test_fragments_fill_a_train_batch_in_one_round(spec, length):
    made = plan(**spec)
    assert made.fragment_length == length
    assert made.fragment_size == length * spec["evaluators"]["envsPerEvaluator"]


def test_what_this_driver_cannot_run_is_refused():
    population = {"size": 4, "mutations": [{"parameter": "learningRate", "min": 1e-4, "max": 1e-2}]}
    with pytest.raises((UnsupportedError, ValueError), match="population"):
        plan(population=population)
    with pytest.raises(UnsupportedError, match=r"spec.learner.replicas: .*2 were asked for"):
        plan(learner={"replicas": 2})


NOTHING = {"timesteps": 0, "iterations": 0, "episode_reward_mean": None, "elapsed_s": 0.0}


@pytest.mark.parametrize(
    ("stop", "progress", "reason"),
    [
        ({"timesteps": 10}, {"timesteps": 9}, None),
        ({"timesteps": 10}, {"timesteps": 10}, "10 timesteps are done, of 10"),
        ({"iterations": 3}, {"iterations": 3}, "3 iterations are done, of 3"),
        ({"episodeReward": -200}, {}, None),
        (
            {"episodeReward": -200},
            {"episode_reward_mean": -199.5},
            "mean episode reward -199.5 reached the goal of -200",
        ),
        ({"wallClock": "1m"}, {"elapsed_s": 59.9}, None),
        ({"wallClock": "1m"}, {"elapsed_s": 60.0}, "60 s of training are over, of 60 s"),
        (
            {"timesteps": 10, "episodeReward": 5},
            {"timesteps": 10, "episode_reward_mean": 6.0},
            "mean episode reward 6.0",
        ),
    ],
)
def test_when_training_is_over(stop, progress, reason):
    said = stop_reason(StopSpec.model_validate(stop), **{**NOTHING, **progress})
    assert said is None if reason is None else said.startswith(reason)


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        ({}, "root/job/checkpoints"),
        ({"persistentVolumeClaim": "claim"}, "root/job/checkpoints"),
        ({"path": "/shared/rl/"}, "/shared/rl/job"),
        ({"uri": "s3://bucket/prefix"}, "s3://bucket/prefix/job"),
    ],
)
def test_where_checkpoints_go(storage, expected):
    job = make_job("job", checkpoint={"storage": storage})
    assert run_directory(job, Path("root")).checkpoints == expected


def test_an_earlier_run_is_moved_aside_and_never_lost(tmp_path):
    directory = run_directory(make_job("job"), tmp_path)
    assert move_aside(directory, "then") is None
    directory.path.mkdir()
    (directory.path / ".lock").touch()
    assert move_aside(directory, "then") is None  # a lock is no run
    shutil.rmtree(directory.path)
    moved = []
    for content in ("one", "two", "three"):
        directory.path.mkdir()
        (directory.path / "result").write_text(content)
        moved.append(Path(move_aside(directory, "then")))
    assert [(path / "result").read_text() for path in moved] == ["one", "two", "three"]
    assert not directory.path.exists()


def test_identity_tells_jobs_apart_and_ignores_what_may_change():
    job = make_job()
    assert identity(job) == identity(make_job("other", stop={"timesteps": 99}, config={"learningRate": 0.5}))
    for change in (
        {"environment": {"id": "Acrobot-v1"}},
        {"model": {"hiddens": [32]}},
        {"config": {"observationFilter": "meanStd"}},
    ):
        assert identity(job) != identity(make_job(**change))
